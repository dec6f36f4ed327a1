package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// reference is `path/file.go`, `path/file.go:function` or `folder/sub`, in backticks.
var reference = regexp.MustCompile("`((?:engine|resp|wheel|bench|pprof|cmd|internal)/[\\w/]+(?:\\.\\w+)?)(?::(\\w+))?`")

// TestDocumentsReferToWhatIsThere: a document that names files and functions goes
// stale with the first rename.
func TestDocumentsReferToWhatIsThere(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	for _, doc := range documents(t) {
		found := reference.FindAllStringSubmatch(readText(t, doc), -1)
		if len(found) == 0 && (doc == "DESIGN.md" || doc == "README.md") {
			t.Errorf("%s: no reference was found", doc)
		}
		for _, m := range found {
			path := filepath.Join(root, filepath.FromSlash(m[1]))
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %s is not there", doc, m[0])
				continue
			}
			if m[2] != "" && !declares(t, path, m[2]) {
				t.Errorf("%s: %s: no such function in that file", doc, m[0])
			}
		}
	}
}

// declares reports whether the file has a function or method of that name.
func declares(t *testing.T, path, name string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
			return true
		}
	}
	return false
}
