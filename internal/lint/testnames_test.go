package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// misnamed lists the test files that broke the rule when it was made. The list only gets shorter: a
// commit that renames such a file, or folds it into the file of its subject, deletes its line.
const misnamed = "internal/lint/testdata/misnamed.txt"

// TestTestFiles_Names_SayWhatTheyTest: the tests of hold.go are found in hold_test.go.
func TestTestFiles_Names_SayWhatTheyTest(t *testing.T) {
	t.Parallel()
	known := strings.Fields(readText(t, misnamed))
	for _, complaint := range testNameComplaints(repositoryFiles(t), known) {
		t.Error(complaint)
	}
}

// testNameComplaints complains about test files that are named after no source file and are not
// known, and about known ones that are gone. A folder with tests alone, such as a suite, has no
// source file to name them after.
func testNameComplaints(files, known []string) (all []string) {
	has := make(map[string]bool)     // files
	sources := make(map[string]bool) // folders with source files, doc.go aside
	for _, file := range files {
		has[file] = true
		if path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") && path.Base(file) != "doc.go" {
			sources[path.Dir(file)] = true
		}
	}
	var found []string
	for _, file := range files {
		name, isTest := strings.CutSuffix(path.Base(file), "_test.go")
		if isTest && sources[path.Dir(file)] && !saysWhatItTests(name, func(source string) bool { return has[path.Dir(file)+"/"+source+".go"] }) {
			found = append(found, file)
		}
	}
	for _, file := range found {
		if !slices.Contains(known, file) {
			all = append(all, fmt.Sprintf("%s: name it after the source file whose tests it has, or as ownNames says", file))
		}
	}
	for _, file := range known {
		if !slices.Contains(found, file) {
			all = append(all, fmt.Sprintf("%s: take it out of %s, it is gone or well named", file, misnamed))
		}
	}
	return all
}

// ownNames begin the names of test files that have no source file: examples, doors into the package,
// TestMain, the model and the laboratory that tests of several files share, benchmarks, fuzz targets.
var ownNames = []string{"example", "export", "main", "model", "lab", "bench", "fuzz"}

// builds end the names of files that only some builds have: on some systems, with invariants, or
// without the race detector.
var builds = []string{"_darwin", "_linux", "_unix", "_windows", "_other", "_invariants", "_norace"}

// saysWhatItTests reports whether a test file, called name without "_test.go", is named after a
// source file of its folder, or needs none.
func saysWhatItTests(name string, hasSource func(string) bool) bool {
	first, _, _ := strings.Cut(name, "_")
	if hasSource(name) || slices.Contains(ownNames, first) || name == "helpers" || strings.HasSuffix(name, "_helpers") {
		return true
	}
	for _, build := range builds {
		if base, ok := strings.CutSuffix(name, build); ok {
			return saysWhatItTests(base, hasSource) || slices.ContainsFunc(builds, func(b string) bool { return hasSource(base + b) })
		}
	}
	return false
}

func TestTestNameComplaints_StrayNames_AreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file  string
		known string
		want  string // part of the one complaint; "": none
	}{
		{"engine/hold_test.go", "", ""},
		{"engine/hold_linux_test.go", "", ""},
		{"engine/tls_unix_test.go", "", ""},
		{"engine/tls_linux_test.go", "", ""}, // of tls_unix.go
		{"engine/hold_norace_test.go", "", ""},
		{"engine/tls_test.go", "", "engine/tls_test.go: name it"},
		{"engine/example_test.go", "", ""},
		{"engine/example_fair_test.go", "", ""},
		{"engine/export_test.go", "", ""},
		{"engine/main_windows_test.go", "", ""},
		{"engine/proxy_helpers_test.go", "", ""},
		{"engine/helpers_test.go", "", ""},
		{"engine/hold_corners_test.go", "", "engine/hold_corners_test.go: name it"},
		{"engine/told_test.go", "", "engine/told_test.go: name it"},
		{"engine/model_faults_test.go", "", ""},
		{"engine/modelled_test.go", "", "engine/modelled_test.go: name it"},
		{"resp/hold_test.go", "", "resp/hold_test.go: name it"}, // engine's hold.go
		{"engine/internal/suite/faults/dead_test.go", "", ""},   // no source file at all
		{"engine/told_test.go", "engine/told_test.go", ""},
		{"engine/hold_test.go", "engine/hold_test.go", "engine/hold_test.go: take it out"},
		{"engine/hold_test.go", "engine/gone_test.go", "engine/gone_test.go: take it out"},
	} {
		files := []string{"engine/hold.go", "engine/tls_unix.go", "resp/client.go", "engine/internal/suite/faults/doc.go", c.file}
		expectComplaint(t, c.file+" "+c.known, testNameComplaints(files, strings.Fields(c.known)), c.want)
	}
}
