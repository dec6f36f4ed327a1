package lint

import (
	"slices"
	"strings"
	"testing"
)

// topLevel is all that may lie at the top of the repository, beside names that
// begin with a dot.
var topLevel = []string{
	"go.mod", "go.sum", "Makefile", "README.md", "DESIGN.md", "CHANGELOG.md", "LICENSE",
	"docs", "engine", "resp", "wheel", "bench", "cmd", "pprof", "internal",
}

func TestTopLevelHoldsOnlyWhatTheDesignNames(t *testing.T) {
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

func TestStrayNamesAreFound(t *testing.T) {
	t.Parallel()
	got := strayNames([]string{"go.mod", "engine/a.go", ".ci/run", "util/a.go", "util/b.go", "notes.txt"})
	if want := []string{"util", "notes.txt"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
