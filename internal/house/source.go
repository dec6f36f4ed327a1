package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// source is a Go file that is no test.
type source struct {
	path   string
	lines  int
	syntax *ast.File
}

// name is the file's name without its folder and ".go".
func (s source) name() string { return strings.TrimSuffix(path.Base(s.path), ".go") }

// sources parses the Go files below a folder, tests and testdata aside.
func sources(fsys fs.FS, folder string) ([]source, error) {
	var all []source
	err := fs.WalkDir(fsys, folder, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		// Identifiers are resolved inside their file: see fileReferences.
		syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{path: name, lines: countLines(text), syntax: syntax})
		return nil
	})
	return all, err
}

func countLines(text []byte) int { return bytes.Count(text, []byte("\n")) }

// inFolder are the files that lie in a folder itself.
func inFolder(files []source, folder string) []source {
	return slices.DeleteFunc(slices.Clone(files), func(s source) bool { return path.Dir(s.path) != folder })
}

// tools are the folders and files of engine that are not counted: the simulation, the test kit, the
// suites, and what only inspects. enginetest is counted: users import it.
var tools = []string{"engine/internal/sim", "engine/internal/kit", "engine/internal/testkit", "engine/suite", "engine/internal/suite",
	"engine/internal/inspect", "engine/inspect.go", "engine/internal/driver/inspect.go", "engine/internal/lock/inspect.go"}

// withoutTools are the files that are shipped.
func withoutTools(files []source) []source {
	return slices.DeleteFunc(slices.Clone(files), func(s source) bool {
		return slices.ContainsFunc(tools, func(tool string) bool { return s.path == tool || strings.HasPrefix(s.path, tool+"/") })
	})
}

// testFiles counts the test files that lie in a folder itself, examples aside.
func testFiles(fsys fs.FS, folder string) (int, error) {
	names, err := fs.Glob(fsys, folder+"/*_test.go")
	n := 0
	for _, name := range names {
		if !strings.HasPrefix(path.Base(name), "example_") {
			n++
		}
	}
	return n, err
}

func lines(files []source) int {
	n := 0
	for _, file := range files {
		n += file.lines
	}
	return n
}

// statements counts statements. A block is none itself; the statements in it count.
func statements(files []source) int {
	n := 0
	for _, file := range files {
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node.(type) {
			case *ast.BlockStmt, *ast.EmptyStmt:
			case ast.Stmt:
				n++
			}
			return true
		})
	}
	return n
}
