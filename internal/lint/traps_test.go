package lint

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// traps is how many there are between two clients of Redisson's locks.
const traps = 41

var (
	trap      = regexp.MustCompile(`^//\tT(\d+) \w`)
	trapProof = regexp.MustCompile(`^//\t {4}(\S+_test\.go):(Test\w+)$`)
)

// trapComplaints complains about a list of traps that lacks one, or the tests of one. has reports
// whether a file has a test.
func trapComplaints(list string, has func(file, test string) bool) (complaints []string) {
	proofs := make([]int, traps+1)
	at := 0
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\n")
		switch proof := trapProof.FindStringSubmatch(line); {
		case trap.MatchString(line):
			at++
			if !strings.HasPrefix(line, fmt.Sprintf("//\tT%d ", at)) || at > traps {
				return append(complaints, fmt.Sprintf("%q is where T%d belongs", line, at))
			}
		case proof != nil && at > 0:
			proofs[at]++
			if !has(proof[1], proof[2]) {
				complaints = append(complaints, fmt.Sprintf("T%d: there is no %s in %s", at, proof[2], proof[1]))
			}
		case at > 0 && strings.HasPrefix(line, "//\t"):
			complaints = append(complaints, fmt.Sprintf("T%d: %q is no test", at, line))
		}
	}
	for n := 1; n <= traps; n++ {
		if proofs[n] == 0 {
			complaints = append(complaints, fmt.Sprintf("T%d has no test", n))
		}
	}
	return complaints
}

// Every trap has tests, and they are there.
func TestTraps_Each_HasItsTests(t *testing.T) {
	t.Parallel()
	files := repositoryFiles(t)
	has := func(file, test string) bool {
		return slices.Contains(files, file) && declares(t, filepath.Join(moduleRoot(t), filepath.FromSlash(file)), test)
	}
	for _, complaint := range trapComplaints(readText(t, "engine/internal/suite/redisson/doc.go"), has) {
		t.Error(complaint)
	}
}

func TestTrapComplaints_Samples_AreFound(t *testing.T) {
	t.Parallel()
	var all []string
	for n := 1; n <= traps; n++ {
		all = append(all, fmt.Sprintf("//\tT%d what", n), "//\t    a_test.go:TestA")
	}
	for _, test := range []struct {
		name   string
		change func(lines []string) []string
		want   []string
	}{
		{"good", func(l []string) []string { return l }, nil},
		{"one is missing", func(l []string) []string { return slices.Delete(l, 2, 4) }, []string{`"//\tT3 what" is where T2 belongs`}},
		{"the last is missing", func(l []string) []string { return l[:len(l)-2] }, []string{"T41 has no test"}},
		{"one without a test", func(l []string) []string { return slices.Delete(l, 3, 4) }, []string{"T2 has no test"}},
		{"a test that is not there", func(l []string) []string { l[3] = "//\t    b_test.go:TestB"; return l }, []string{"T2: there is no TestB in b_test.go"}},
		{"no test", func(l []string) []string { return slices.Insert(l, 4, "//\t    b.go") }, []string{`T2: "//\t    b.go" is no test`}},
	} {
		list := strings.Join(test.change(slices.Clone(all)), "\n")
		got := trapComplaints(list, func(file, _ string) bool { return file == "a_test.go" })
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
