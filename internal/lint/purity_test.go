package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure are the packages, and files of others, that decide without a world: no socket, no
// goroutine, no channel, no lock, no clock, no randomness. What they may import is all that
// they need.
var pure = map[string][]string{
	"engine/internal/lock": {
		"maps", "math", "slices", "sync/atomic", "time",
		"engine/internal/serial", "engine/internal/waitq", "engine/internal/lockerr", "internal/clock",
	},
	"engine/internal/quorum": {
		"cmp", "math", "slices", "time",
		"engine/internal/lock", "engine/internal/lockerr", "internal/clock",
	},
	"engine/internal/counter": {
		"slices", "time",
		"engine/internal/lock", "engine/internal/serial", "engine/internal/waitq", "engine/internal/lockerr", "internal/clock",
	},
	"engine/internal/waitq":               {"cmp", "slices"},
	"engine/internal/serial":              {"time", "internal/clock"},
	"engine/internal/recovery/reply.go":   {"time", "engine/internal/lock", "engine/internal/script"},
	"engine/internal/recovery/backlog.go": {"slices", "time", "engine/internal/lock", "internal/clock"},
	"engine/internal/recovery/ring.go":    {"slices", "time", "engine/internal/kind", "internal/clock"},
}

// pureUses are what a pure package may use of packages that also have a world in them.
var pureUses = map[string][]string{
	"time":  {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
	"clock": {"Instant"},
	// One number that a hold publishes for those who read it without the lock.
	"atomic": {"Int64"},
}

func TestPurity_PurePackages_ArePure(t *testing.T) {
	t.Parallel()
	for where, imports := range pure {
		dir, pattern := where, where+"/*.go"
		if path.Ext(where) == ".go" {
			dir, pattern = path.Dir(where), where
		}
		files, err := filepath.Glob(filepath.Join(moduleRoot(t), filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", where, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, complaint := range impurities(t, filepath.Base(file), string(src), imports) {
				t.Errorf("%s/%s", dir, complaint)
			}
		}
	}
}

// impurities are what a file of a pure package has and may not have.
func impurities(t *testing.T, name, src string, imports []string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	complain := func(at ast.Node, format string, args ...any) {
		all = append(all, files.Position(at.Pos()).String()+": "+fmt.Sprintf(format, args...))
	}
	for _, imp := range file.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		if in := inModule(path); in != "" {
			path = in
		}
		if !slices.Contains(imports, path) {
			complain(imp, "imports %s", path)
		}
	}
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
			complain(d, "has a variable of the package, which is state that no call hands in")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			complain(n, "starts a goroutine")
		case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			complain(n, "uses a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				complain(n, "uses a channel")
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil { // a variable of that name
				break
			}
			if allowed, bound := pureUses[x.Name]; bound && !slices.Contains(allowed, n.Sel.Name) {
				complain(n, "uses %s.%s", x.Name, n.Sel.Name)
			}
		}
		return true
	})
	return all
}

func TestPurity_Samples_AreFound(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		`import "net"`:                               "imports net",
		`import "sync"`:                              "imports sync",
		`import . "context"`:                         "imports context",
		`import "` + modulePath + `/resp"`:           "imports resp",
		`import "time"; func f() { _ = time.Now() }`: "uses time.Now",
		`import "time"; func f(t *time.Timer) {}`:    "uses time.Timer",
		`import "` + modulePath + `/internal/clock"; var c = clock.System()`: "uses clock.System",
		`func f() { go f() }`:               "starts a goroutine",
		`type t struct { c chan int }`:      "uses a channel",
		`func f() { select {} }`:            "uses a channel",
		`func f[C ~int](c C) { _ = <-g() }`: "uses a channel",
		`var n int`:                         "has a variable",
	} {
		got := impurities(t, "a.go", "package a\n"+src, pure["engine/internal/lock"])
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%s: %q, want %q", src, got, want)
		}
	}
	const good = "package a\nimport \"time\"\nconst d = time.Second\nfunc f(time.Duration) {}\ntype t struct{ clock int }\nfunc (x t) f(clock t) int { return clock.clock }\n"
	if got := impurities(t, "a.go", good, []string{"time"}); len(got) != 0 {
		t.Errorf("a pure file: %q", got)
	}
}
