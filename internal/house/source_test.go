package house

import (
	"testing"
	"testing/fstest"
)

// tree is a file system of these files.
func tree(files map[string]string) fstest.MapFS {
	fsys := make(fstest.MapFS)
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// parse parses the files of a package, by their names without a folder. Texts lack the package
// clause.
func parse(t *testing.T, files map[string]string) []source {
	t.Helper()
	fsys := make(fstest.MapFS)
	for name, text := range files {
		fsys["p/"+name] = &fstest.MapFile{Data: []byte("package p\n" + text)}
	}
	all, err := sources(fsys, "p")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSources_TestsAndTestdata_AreNone(t *testing.T) {
	t.Parallel()
	all, err := sources(tree(map[string]string{
		"engine/a.go":                   "package engine\n\nvar a int\n",
		"engine/a_test.go":              "package engine\n",
		"engine/a.lua":                  "return 1\n",
		"engine/testdata/copies/a.go":   "package copies\n",
		"engine/internal/kind/a.go":     "package kind\n",
		"engine/internal/sim/a.go":      "package sim\n",
		"engine/internal/simple/a.go":   "package simple\n",
		"engine/internal/kit/a.go":      "package kit\n",
		"engine/internal/testkit/a.go":  "package testkit\n",
		"engine/suite/faults/a.go":      "package faults\n",
		"engine/internal/suite/rw/a.go": "package rw\n",
		"engine/enginetest/a.go":        "package enginetest\n",
		"wheel/a.go":                    "package wheel\n",
	}), "engine")
	if err != nil {
		t.Fatal(err)
	}
	if front := inFolder(all, "engine"); len(front) != 1 || front[0].name() != "a" || front[0].lines != 3 {
		t.Errorf("files of engine: %v", front)
	}
	if got := lines(withoutTools(all)); got != 6 {
		t.Errorf("%d lines of engine, kind, simple and enginetest, want 6", got)
	}
}

func TestSources_NoGo_Fails(t *testing.T) {
	t.Parallel()
	if _, err := sources(tree(map[string]string{"engine/a.go": "package"}), "engine"); err == nil {
		t.Error("half a file was parsed")
	}
}

func TestTestFiles_ExamplesAndOtherFolders_AreNotCounted(t *testing.T) {
	t.Parallel()
	got, err := testFiles(tree(map[string]string{
		"engine/a_test.go": "", "engine/examples_test.go": "",
		"engine/example_test.go": "", "engine/example_a_test.go": "", "engine/a.go": "", "engine/internal/b_test.go": "",
	}), "engine")
	if got != 2 || err != nil {
		t.Errorf("%d test files, %v, want 2", got, err)
	}
}

func TestStatements_Blocks_CountForWhatTheyContain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"":                                       0,
		"func f() {}":                            0,
		"func f() { ; { } }":                     0,
		"func f() { g(); g() }":                  2,
		"func f() {\n\tg()\n\tg()\n}":            2, // joining lines makes none go
		"func f() { if x := g(); x { return } }": 3,
		"func f() { for { break } }":             2,
		"func f() { switch { case x: g() } }":    3,
		"var f = func() { g() }":                 1,
	} {
		if got := statements(parse(t, map[string]string{"a.go": text})); got != want {
			t.Errorf("%q has %d statements, want %d", text, got, want)
		}
	}
}
