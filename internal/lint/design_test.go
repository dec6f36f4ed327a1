package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reference is `path/file.go`, `path/file.go:function` or `folder/sub`, in backticks.
var reference = regexp.MustCompile("`((?:engine|resp|wheel|bench|pprof|cmd|internal)/[\\w/]+(?:\\.\\w+)?)(?::(\\w+))?`")

// TestDocuments_References_Exist: a document that names files and functions goes
// stale with the first rename.
func TestDocuments_References_Exist(t *testing.T) {
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

// notObvious is that section of a package's documentation, and named are the functions in it:
// they stand in brackets at the end of a sentence.
var (
	notObvious = regexp.MustCompile(`(?ms)^// # Not obvious\n(.*?)^(?:// # |package )`)
	named      = regexp.MustCompile(`\(([a-zA-Z]\w*(?:, [a-zA-Z]\w*)*)\)\.`)
)

// TestPackages_References_Exist does for the documentation of packages what
// TestDocuments_References_Exist does for documents.
func TestPackages_References_Exist(t *testing.T) {
	t.Parallel()
	files, found := repositoryFiles(t), 0
	for _, name := range files {
		if path.Ext(name) != ".go" || strings.HasPrefix(name, "internal/lint/") {
			continue
		}
		for _, section := range notObvious.FindAllStringSubmatch(readText(t, name), -1) {
			text := strings.ReplaceAll(section[1], "\n//", "")
			for _, m := range named.FindAllStringSubmatch(text, -1) {
				for function := range strings.SplitSeq(m[1], ", ") {
					found++
					if !declaredIn(t, files, path.Dir(name), function) {
						t.Errorf("%s: %s: no such function in that folder", name, function)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("no reference was found")
	}
}

func declaredIn(t *testing.T, files []string, dir, function string) bool {
	t.Helper()
	return slices.ContainsFunc(files, func(file string) bool {
		return path.Dir(file) == dir && path.Ext(file) == ".go" &&
			declares(t, filepath.Join(moduleRoot(t), filepath.FromSlash(file)), function)
	})
}
