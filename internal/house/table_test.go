package house

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// small is the smallest tree that can be measured.
func small() map[string]string {
	return map[string]string{
		"engine/doc.go":                 "// Package engine is.\npackage engine\n",
		"engine/hold.go":                "package engine\n\ntype Hold struct{}\n\nfunc (*Hold) Unlock() { f() }\n",
		"engine/hold_test.go":           "package engine\n",
		"engine/internal/lock/doc.go":   "// Package machine is.\n//\n// # Layers\n//\n//\tport\n//\tentry\npackage machine\n",
		"engine/internal/lock/port.go":  "package machine\n\ntype Port interface{ Now() int }\n",
		"engine/internal/lock/entry.go": "package machine\n\ntype entry struct{ held bool; p Port }\n",
		"DESIGN.md":                     "# How\n",
		"docs/promises.md":              "- **Removal by others** is noticed\n  late.\n",
	}
}

func TestMeasure_SmallTree_CountsEachRow(t *testing.T) {
	t.Parallel()
	rows, err := Measure(tree(small()))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	for _, row := range rows {
		got[row.Key] = row.Value
	}
	want := map[string]int{
		"names": 1, "methods": 1, "hold-types": 1, "source-files": 2, "test-files": 1, "lines": 20, "statements": 1,
		"design-bytes": 6, "doc-lines": 2, "removal-lines": 2, "core-ports": 1, "core-booleans": 1, "core-upward": 0,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestMeasure_NothingToMeasure_Fails(t *testing.T) {
	t.Parallel()
	for name := range small() {
		if strings.HasSuffix(name, "_test.go") || name == "engine/hold.go" {
			continue // without these there is something left
		}
		files := small()
		delete(files, name)
		if strings.HasPrefix(name, core) {
			maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, core) })
		}
		if _, err := Measure(tree(files)); err == nil {
			t.Errorf("without %s nothing is missing", name)
		}
	}
}

func TestTable_RowsOverTheLimit_SaySo(t *testing.T) {
	t.Parallel()
	got := Table([]Row{
		{Key: "a", What: "apples", Value: 3, Limit: 3, Note: "green"},
		{Key: "b", What: "pears", Value: 4, Limit: 3},
		{Key: "c", What: "plums", Value: 5, Limit: 3},
		{Key: "d", What: "nuts", Value: 6},
	}, Recorded{"c": 4})
	var words [][]string
	for line := range strings.Lines(got) {
		words = append(words, strings.Fields(line))
	}
	want := [][]string{{"today", "limit"}, {"apples", "3", "3", "ok", "green"}, {"pears", "4", "3", "over"}, {"plums", "5", "3", "over,", "recorded", "4"}, {"nuts", "6"}}
	if !slices.EqualFunc(words, want, slices.Equal) {
		t.Errorf("got\n%s\nwant %q", got, want)
	}
}

// A row that finds nothing in the repository would be within its limit for ever.
func TestMeasure_ThisRepository_FindsSomethingInEachRow(t *testing.T) {
	t.Parallel()
	rows, err := Measure(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]bool)
	for _, row := range rows {
		keys[row.Key] = true
		if row.Value == 0 && row.Limit > 0 {
			t.Errorf("%s: nothing was found", row.What)
		}
	}
	text, err := os.ReadFile("recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := ParseRecorded(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for key := range recorded {
		if !keys[key] {
			t.Errorf("recorded.txt: there is no row %s", key)
		}
	}
}
