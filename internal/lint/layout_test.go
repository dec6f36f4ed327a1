package lint

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// topLevel is all that may lie at the top of the repository, beside names that
// begin with a dot.
var topLevel = []string{
	"go.mod", "go.sum", "Makefile", "README.md", "DESIGN.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
	"docs", "engine", "resp", "wheel", "bench", "cmd", "pprof", "internal",
	"examples", "plugin", // modules of their own, for what they need
}

func TestLayout_TopLevel_IsWhatTheDesignNames(t *testing.T) {
	t.Parallel()
	for _, name := range strayNames(repositoryFiles(t)) {
		t.Errorf("%s is not part of the design; find it a place in one of %s", name, strings.Join(topLevel, " "))
	}
}

func strayNames(files []string) []string {
	var stray []string
	for _, file := range files {
		top, _, _ := strings.Cut(file, "/")
		if !strings.HasPrefix(top, ".") && !slices.Contains(topLevel, top) && !slices.Contains(stray, top) {
			stray = append(stray, top)
		}
	}
	return stray
}

func TestStrayNames_Samples_AreFound(t *testing.T) {
	t.Parallel()
	got := strayNames([]string{"go.mod", "engine/a.go", ".ci/run", "util/a.go", "util/b.go", "notes.txt"})
	if want := []string{"util", "notes.txt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// mostFiles is how many source files a folder may have, tests aside: a newcomer reads their
// names at a glance. What wants to be more has a package in it that wants to be found.
const mostFiles = 20

// larger are the folders with more, and how many they may have.
var larger = map[string]int{
	"engine":               36, // one for each synchronizer, and what they share
	"engine/internal/sim":  25, // each kind has its programs and its checks
	"engine/internal/lock": 30, // in five layers, which its doc.go lists
}

func TestLayout_Folders_AreSmall(t *testing.T) {
	t.Parallel()
	for _, complaint := range wallComplaints(repositoryFiles(t)) {
		t.Error(complaint)
	}
}

func wallComplaints(files []string) (all []string) {
	count := make(map[string]int)
	for _, file := range files {
		if path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") {
			count[path.Dir(file)]++
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		if most := max(mostFiles, larger[dir]); count[dir] > most {
			all = append(all, fmt.Sprintf("%s has %d source files, more than %d: find the package in it", dir, count[dir], most))
		}
	}
	return all
}

func TestWallComplaints_Samples_AreFound(t *testing.T) {
	t.Parallel()
	var files []string
	for i := range mostFiles {
		files = append(files, fmt.Sprintf("wheel/a%d.go", i), fmt.Sprintf("bench/a%d.go", i), fmt.Sprintf("wheel/a%d_test.go", i))
	}
	if got := wallComplaints(files); got != nil {
		t.Errorf("complaints about %d files: %q", mostFiles, got)
	}
	got := wallComplaints(append(files, "bench/b.go", "wheel/lua/b.lua"))
	if len(got) != 1 || !strings.HasPrefix(got[0], "bench has 21 source files") {
		t.Errorf("got %q", got)
	}
}
