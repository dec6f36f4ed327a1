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
	"strings"
	"testing"
)

// reference is `path/file.go`, `path/file.go:function` or `folder/sub`, in backticks. Those of
// DESIGN.md to files of engine/internal begin below that.
var reference = regexp.MustCompile("`((?:engine|resp|wheel|bench|pprof|cmd|internal)/[\\w/]+(?:\\.\\w+)?|\\w+/[\\w/]*\\w+\\.\\w+)(?::(\\w+))?`")

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
			if _, err := os.Stat(path); err != nil && doc == "DESIGN.md" {
				path = filepath.Join(root, "engine", "internal", filepath.FromSlash(m[1]))
			}
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

var (
	oneLock      = regexp.MustCompile("(?s)## One Lock on one page\n.*?```\n(.*?)```")
	oneLockStep  = regexp.MustCompile(`(?m)^.{12}(\^ |  )(\w+) +(\w+\.go \w+(?:; \w+\.go \w+)*)`)
	oneLockCount = regexp.MustCompile(`(\d+) packages, (\d+) files and (\d+) calls upward`)
)

// TestDesign_OneLock_IsCounted: the page names functions that exist, and says how many packages and files a
// reader opens who follows one Lock, and how often it calls upward.
func TestDesign_OneLock_IsCounted(t *testing.T) {
	t.Parallel()
	text := readText(t, "DESIGN.md")
	page, stated := oneLock.FindStringSubmatch(text), oneLockCount.FindString(text)
	if page == nil || stated == "" {
		t.Fatal("DESIGN.md does not have one Lock with its counts")
	}
	steps := oneLockStep.FindAllStringSubmatch(page[1], -1)
	if lines := strings.Count(page[1], "\n"); len(steps) != lines {
		t.Errorf("%d of the %d lines are steps", len(steps), lines)
	}
	folders, files, upward := map[string]string{}, map[string]bool{}, 0
	for _, file := range repositoryFiles(t) {
		if dir := path.Dir(file); path.Ext(file) == ".go" && (within(dir, "engine") || within(dir, "resp")) {
			folders[path.Base(dir)] = dir
		}
	}
	packages := map[string]bool{}
	for _, step := range steps {
		if step[1] == "^ " {
			upward++
		}
		packages[step[2]] = true
		for call := range strings.SplitSeq(step[3], "; ") {
			name, function, _ := strings.Cut(call, " ")
			name = path.Join(folders[step[2]], name)
			files[name] = true
			if !declares(t, filepath.Join(moduleRoot(t), filepath.FromSlash(name)), function) {
				t.Errorf("%s has no %s", name, function)
			}
		}
	}
	if counted := fmt.Sprintf("%d packages, %d files and %d calls upward", len(packages), len(files), upward); counted != stated {
		t.Errorf("DESIGN.md says %s; they are %s", stated, counted)
	}
}
