package lint

import (
	"bytes"
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

// The length at which a file wants to be two. Tests may be longer: tables are.
const (
	maxLines     = 400
	maxTestLines = 600
)

// clockExceptions are the files of engine, resp and wheel that may ask package
// time what time it is, each with the reason.
var clockExceptions = map[string]string{}

// clockFuncs read or wait for the system's clock without package clock. Runtime
// timers (NewTimer, AfterFunc, NewTicker) are not among them.
var clockFuncs = []string{"Now", "Since", "Until", "Sleep", "After", "Tick"}

// walksErrors are the files of engine that may ask with errors.Is and errors.As, which
// call methods of whatever an error wraps, a user's error too. Everywhere else it may be
// an event loop that asks, or somebody who holds a lock: classify and resp.Outcome call
// nothing.
var walksErrors = map[string]string{
	"engine/lock.go":                    "Do runs on a goroutine of the user's, without a lock",
	"engine/inspect.go":                 "Deadlocks runs on a goroutine of the user's, without a lock",
	"engine/observer.go":                "outcomes are found where the Observer is called",
	"engine/mutex.go":                   "so does Downgrade",
	"engine/internal/ctxwatch/watch.go": "contexts are asked on a goroutine of their own, or the user's, without a lock",
}

// testHelpers are packages of test code: it waits as tests do, and has their rules.
var testHelpers = []string{"engine/internal/testkit"}

// noLeakCheck are the folders whose tests need no goleak, each with the reason.
var noLeakCheck = map[string]string{
	"plugin/pawlprom/grafana":  "parses files",
	"engine/internal/driver":   "its tests start no goroutine",
	"engine/internal/lock":     "starts no goroutine",
	"engine/internal/waitq":    "starts no goroutine",
	"engine/internal/serial":   "starts no goroutine",
	"engine/internal/recovery": "starts no goroutine",
	"internal/invariants":      "starts no goroutine",
	"internal/house":           "starts no goroutine",
	"internal/lint":            "starts no goroutine",
	"internal/respio":          "starts no goroutine",
	"engine/internal/quorum":   "starts no goroutine",
}

func TestSources_Rules_AreKept(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	leakChecked := make(map[string]bool) // folder with tests -> goleak found
	for _, name := range repositoryFiles(t) {
		if strings.Contains(name, "testdata/") || strings.HasPrefix(name, "internal/lint/") {
			continue // samples, and the words that this package looks for
		}
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for _, complaint := range textComplaints(name, src) {
			t.Error(complaint)
		}
		if path.Ext(name) != ".go" {
			continue
		}
		for _, complaint := range goComplaints(name, src) {
			t.Error(complaint)
		}
		if strings.HasSuffix(name, "_test.go") {
			leakChecked[path.Dir(name)] = leakChecked[path.Dir(name)] || bytes.Contains(src, []byte("goleak."))
		}
	}
	for dir, checked := range leakChecked {
		if _, excepted := noLeakCheck[dir]; !checked && !excepted {
			t.Errorf("%s: its tests do not look for leaked goroutines; call goleak.VerifyTestMain in TestMain", dir)
		}
	}
	if len(leakChecked) == 0 {
		t.Error("no test file was found")
	}
}

var (
	unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	// Paths of somebody's machine.
	machinePath = regexp.MustCompile("(^|[\\s\"'`(=])/(work|root|home|Users)/")
)

// textComplaints checks what holds for every text file.
func textComplaints(name string, src []byte) []string {
	if bytes.IndexByte(src, 0) >= 0 || name == "go.sum" {
		return nil
	}
	var all []string
	n := 0
	for line := range bytes.Lines(src) {
		n++
		if m := unfinished.Find(line); m != nil {
			all = append(all, fmt.Sprintf("%s:%d: %s: finish it, or write down why it is right as it is", name, n, m))
		}
		if machinePath.Match(line) {
			all = append(all, fmt.Sprintf("%s:%d: a path of one machine: %s", name, n, bytes.TrimSpace(line)))
		}
	}
	return all
}

// goComplaints checks one Go file.
func goComplaints(name string, src []byte) []string {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	f := &sourceFile{name: name, isTest: strings.HasSuffix(name, "_test.go") || slices.Contains(testHelpers, path.Dir(name)), fset: fset}
	limit := maxLines
	if f.isTest {
		limit = maxTestLines
	}
	if lines := bytes.Count(src, []byte("\n")); lines > limit && !ast.IsGenerated(file) {
		f.complain(file.End(), "%d lines, more than %d: split it", lines, limit)
	}
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		if call, ok := n.(*ast.CallExpr); ok {
			f.call(call, stack)
		}
		stack = append(stack, n)
		return true
	})
	return f.complaints
}

type sourceFile struct {
	name       string
	isTest     bool
	fset       *token.FileSet
	complaints []string
}

func (f *sourceFile) complain(pos token.Pos, format string, args ...any) {
	at := f.fset.Position(pos)
	f.complaints = append(f.complaints, fmt.Sprintf("%s:%d: ", f.name, at.Line)+fmt.Sprintf(format, args...))
}

// call checks one call; stack holds what surrounds it.
func (f *sourceFile) call(call *ast.CallExpr, stack []ast.Node) {
	pkg, fn := callee(call)
	inClockedPackage := within(f.name, "engine") || within(f.name, "resp") || within(f.name, "wheel")
	switch {
	case pkg == "time" && !f.isTest && inClockedPackage && slices.Contains(clockFuncs, fn):
		if _, excepted := clockExceptions[f.name]; !excepted {
			f.complain(call.Pos(), "time.%s: time comes from internal/clock here", fn)
		}
	case pkg == "errors" && (fn == "Is" || fn == "As") && !f.isTest && within(f.name, "engine") && !within(f.name, "engine/enginetest") && !within(f.name, "engine/internal/sim"):
		if _, excepted := walksErrors[f.name]; !excepted {
			f.complain(call.Pos(), "errors.%s calls methods of a user's errors: see walksErrors", fn)
		}
	case pkg == "time" && fn == "Sleep" && f.isTest && !mayWait(stack):
		f.complain(call.Pos(), "a bare time.Sleep: wait for a condition, in a loop with a deadline")
	case pkg == "" && fn == "panic" && !f.isTest && inClockedPackage && len(call.Args) == 1:
		if text, ok := leadingText(call.Args[0]); ok && !strings.HasPrefix(text, "BUG: ") {
			f.complain(call.Pos(), "panic(%q): a panic is for our own mistakes, its text begins with \"BUG: \"", text)
		}
	}
}

// callee names what is called: package and function for pkg.F, "" and the
// function for F.
func callee(call *ast.CallExpr) (pkg, fn string) {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return "", fun.Name
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok {
			return x.Name, fun.Sel.Name
		}
	}
	return "", ""
}

// mayWait reports whether a sleep is a poll's, or in virtual time.
func mayWait(stack []ast.Node) bool {
	return slices.ContainsFunc(stack, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case *ast.CallExpr:
			pkg, _ := callee(n)
			return pkg == "synctest"
		}
		return false
	})
}

// leadingText returns the string literal that an expression begins with: of
// "a" + b, of fmt.Sprintf("a %d", n) and of fmt.Errorf it is "a".
func leadingText(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		return leadingText(e.X)
	case *ast.CallExpr:
		if pkg, _ := callee(e); pkg == "fmt" && len(e.Args) > 0 {
			return leadingText(e.Args[0])
		}
	}
	return "", false
}
