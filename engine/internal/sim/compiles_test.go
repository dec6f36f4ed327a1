//go:build !race

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compiler checks the types of a package of which a file is changed. What the package imports is
// compiled, and comes from the build cache, so a change takes some milliseconds.
type compiler struct {
	fset   *token.FileSet
	from   types.Importer
	parsed map[string]map[string]*ast.File // by directory and name: what is not changed
	paths  map[string]string               // of packages, by directory
}

// listed is a package as go list shows it.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// newCompiler returns one for the packages of some directories.
func newCompiler(t *testing.T, dirs []string) *compiler {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly"}, dirs...)...)
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	c := &compiler{token.NewFileSet(), nil, make(map[string]map[string]*ast.File), make(map[string]string)}
	exports := make(map[string]string)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if p.DepOnly {
			continue
		}
		c.paths[p.Dir], c.parsed[p.Dir] = p.ImportPath, make(map[string]*ast.File)
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			c.parsed[p.Dir][name] = f
		}
	}
	c.from = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(exports[path])
	})
	return c
}

// compile checks the package of a file that has another text.
func (c *compiler) compile(file, text string) error {
	dir, name := filepath.Split(file)
	dir = filepath.Clean(dir)
	changed, err := parser.ParseFile(c.fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	files := []*ast.File{changed}
	for other, f := range c.parsed[dir] {
		if other != name {
			files = append(files, f)
		}
	}
	_, err = (&types.Config{Importer: c.from}).Check(c.paths[dir], c.fset, files, nil)
	return err
}

// A change that does not compile is told from one that does.
func TestAMutantThatDoesNotCompileIsNoticed(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("../serial")
	if err != nil {
		t.Fatal(err)
	}
	c, file := newCompiler(t, []string{dir}), filepath.Join(dir, "headwait.go")
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.compile(file, string(src)); err != nil {
		t.Errorf("it is not changed: %v", err)
	}
	for _, wrong := range []string{"\nfunc f() { unused := 1 }\n", "\nfunc f() { nobody() }\n", "\nfunc f() {\n"} {
		if c.compile(file, string(src)+wrong) == nil {
			t.Errorf("it compiles with %q", wrong)
		}
	}
}
