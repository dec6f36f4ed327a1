package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/pawl-lock/pawl"

// goMod is the path of go.mod. The go command is run once, not for every file that a test reads.
var goMod = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	return strings.TrimSpace(string(out)), err
})

// moduleRoot is the folder of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	name, err := goMod()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Dir(name)
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
}

// name is the package's path inside the module, "." for the root.
func (p goPackage) name() string { return inModule(p.ImportPath) }

// inModule strips the module's path; it is "" for a package of elsewhere.
func inModule(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	rest, ok := strings.CutPrefix(importPath, modulePath+"/")
	if !ok {
		return ""
	}
	return rest
}

// listPackages lists the module's packages as a build with tags sees them; those
// that do not compile are listed too.
func listPackages(t *testing.T, tags string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-tags", tags,
		"-json=ImportPath,Standard,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = moduleRoot(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatal("go list names no package")
	}
	return all
}

// repositoryFiles lists the repository's files, as slash paths from its root:
// those that git tracks or would, or, outside a checkout, all.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	root := moduleRoot(t)
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		var files []string
		for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
			// A tracked file may have been removed from the work tree.
			if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
				files = append(files, name)
			}
		}
		return files
	}
	var files []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
