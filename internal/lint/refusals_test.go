package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// knowsRefusals are the files and folders that may look at the code or the text of a server's error
// themselves. Everywhere else resp.RefusalOf says what it means: servers, proxies and managed services
// refuse in words of their own, and a list of them that is one of several is forgotten.
var knowsRefusals = map[string]string{
	"resp/internal/request/":             "it has the table",
	"resp/wire/server_error.go":          "it makes the codes",
	"resp/internal/topology/redirect.go": "it reads where MOVED and ASK lead to",
	"engine/internal/driver/reply.go":    "it makes an error of the engine's own from WRONGTYPE",
	"engine/internal/sim/":               "it plays the server",
	"engine/enginetest/":                 "it plays the server",
	"internal/embedded/":                 "it plays the server",
	"internal/fakenode/":                 "it plays the server",
	"internal/redistest/":                "it asks real servers, for tests",
	"cmd/pawl/internal/target/":          "it says what to do about some",
	"bench/":                             "it measures other libraries, too",
}

func TestRefusals_AreReadFromOneTable(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	for _, name := range repositoryFiles(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") || knowsRefusal(name) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, complaint := range refusalComplaints(name, src) {
			t.Error(complaint)
		}
	}
}

func knowsRefusal(name string) bool {
	for known := range knowsRefusals {
		if name == known || strings.HasSuffix(known, "/") && strings.HasPrefix(name, known) {
			return true
		}
	}
	return false
}

// refusalText is the beginning of an error as servers word it.
var refusalText = regexp.MustCompile(`^-?(ERR|[A-Z]{4,}) `)

// comparing are functions of strings and bytes that compare.
var comparing = []string{"HasPrefix", "HasSuffix", "Contains", "Cut", "CutPrefix", "Index", "EqualFold", "Equal"}

// refusalComplaints finds comparisons of an error's code, and of its text.
func refusalComplaints(name string, src []byte) (all []string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, 0)
	if err != nil {
		return []string{err.Error()}
	}
	complain := func(n ast.Node) {
		all = append(all, fmt.Sprintf("%s:%d: compares the code or text of a refusal: ask resp.RefusalOf, and add a row to its table", name, files.Position(n.Pos()).Line))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (isField(n.X, "Code", "Message") && text(n.Y) != "" || isField(n.Y, "Code", "Message") && text(n.X) != "") {
				complain(n)
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && isField(n.Tag, "Code", "Message") {
				complain(n)
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			of, _ := f.X.(*ast.Ident)
			library := of != nil && (of.Name == "strings" || of.Name == "bytes")
			switch {
			case f.Sel.Name == "Begins" && len(n.Args) > 0 && text(n.Args[0]) != "":
				complain(n)
			case library && slices.Contains(comparing, f.Sel.Name) && len(n.Args) == 2 && refusalText.MatchString(text(n.Args[1])):
				complain(n)
			}
		}
		return true
	})
	return all
}

// isField reports whether x is a field, or the result of a method, of one of these names.
func isField(x ast.Expr, names ...string) bool {
	s, ok := x.(*ast.SelectorExpr)
	return ok && slices.Contains(names, s.Sel.Name)
}

// text is the value of a literal, perhaps as bytes; "" if x is none.
func text(x ast.Expr) string {
	if c, ok := x.(*ast.CallExpr); ok && len(c.Args) == 1 {
		x = c.Args[0]
	}
	lit, ok := x.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, _ := strconv.Unquote(lit.Value)
	return s
}

func TestRefusals_ComparisonsAreFound(t *testing.T) {
	t.Parallel()
	for stmt, found := range map[string]bool{
		`_ = e.Code == "NOPERM"`:                                         true,
		`_ = "MOVED" != e.Code`:                                          true,
		`switch e.Code { case "ASK": }`:                                  true,
		`_ = e.Begins("ERR unknown command")`:                            true,
		`_ = strings.HasPrefix(e.Message, "ERR max number of clients")`:  true,
		`_ = bytes.HasPrefix(v.Bytes, []byte("NOSCRIPT "))`:              true,
		`_ = strings.Contains(err.Error(), "CROSSSLOT Keys in request")`: true,
		`_ = end.Code == 0`:                                              false,
		`_ = resp.RefusalOf(e).Forbidden()`:                              false,
		`_ = strings.HasPrefix(line, "redis_version:")`:                  false,
		`_ = e.Code`: false,
	} {
		got := refusalComplaints("a.go", []byte("package p\n\nfunc f() {\n\t"+stmt+"\n}\n"))
		if len(got) > 0 != found {
			t.Errorf("%s: %q", stmt, got)
		}
	}
}
