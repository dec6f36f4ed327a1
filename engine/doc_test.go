package engine_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/api.golden anew")

// The exported API with its documentation is pinned: a change of it is a decision,
// made with go test ./engine -run API -update, and seen in review.
func TestAPI_GoldenFile_SaysWhatItIs(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "doc", "-all", ".")
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	got, err := cmd.Output()
	if err != nil {
		t.Fatalf("go doc: %v", err)
	}
	golden := filepath.Join("testdata", "api.golden")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(strings.ReplaceAll(string(want), "\r\n", "\n"), "\n")
	for i := 0; i < max(len(g), len(w)); i++ {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("the API or its documentation differs from line %d of %s on:\n got: %s\nwant: %s\nIf that is meant: go test ./engine -run API -update",
				i+1, golden, strings.Join(g[min(i, len(g)):min(i+3, len(g))], "\n      "), strings.Join(w[min(i, len(w)):min(i+3, len(w))], "\n      "))
		}
	}
}

const mostNames = 90

func TestAPI_Names_AreAtMostNinety(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	note := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					note(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						note(spec.Name)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							note(id)
						}
					}
				}
			}
		}
	}
	sort.Strings(names)
	t.Logf("%d names", len(names))
	if len(names) == 0 || len(names) > mostNames {
		t.Errorf("%d exported names, at most %d: %s", len(names), mostNames, strings.Join(names, " "))
	}
}

// A copy of a Hold is not what the garbage collector watches, so that a lock which nobody can unlock
// would not be reported. The copy is found before the program runs.
func TestVet_CopiedHolds_AreFound(t *testing.T) {
	t.Parallel()
	said, err := exec.Command("go", "vet", "./testdata/copies").CombinedOutput()
	if err == nil {
		t.Fatal("go vet finds nothing")
	}
	for _, what := range []string{"Hold", "Permits", "Future[int]"} {
		if !strings.Contains(string(said), "engine."+what+" contains") {
			t.Errorf("a copied %s is not found:\n%s", what, said)
		}
	}
}
