package house

import (
	"slices"
	"testing"
)

func TestFileReferences_UsesOfAnotherFile_AreReferences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		text string // of a.go
		want bool   // that it refers to b.go
	}{
		{"a function", "func f() { b() }", true},
		{"a type", "type A struct { b B }", true},
		{"a receiver", "func (b *B) g() {}", true},
		{"a constant", "var n = limit", true},
		{"a key of an array", "var n = [...]int{limit: 1}", true},
		{"a method", "func f(x any) { x.method() }", true},
		{"a method of an interface", "func f(x any) { x.asked() }", true},
		{"a field", "func f(x any) { x.field = 1 }", true},
		{"a method that a.go has, too", "type A int; func (A) method() {}; func f(x A) { x.method() }", false},
		{"a variable of that name", "func f(b func()) { b() }", false},
		{"a package of that name", `import "b"; func f() { b.F() }`, false},
		{"a function of its own", "func f() { f() }", false},
	} {
		got := fileReferences(parse(t, map[string]string{
			"a.go": c.text,
			"b.go": "type B struct { field int }; func b() {}; const limit = 1; func (B) method() {}; type port interface { asked() }",
		}))
		if slices.Contains(got, reference{"a", "b"}) != c.want {
			t.Errorf("%s: references %v, want one: %t", c.name, got, c.want)
		}
	}
}

func TestFileReferences_ManyUses_AreOneReference(t *testing.T) {
	t.Parallel()
	got := fileReferences(parse(t, map[string]string{"a.go": "func f() { b(); b(); c() }", "b.go": "func b() {}; func c() {}"}))
	if len(got) != 1 {
		t.Errorf("references %v, want one", got)
	}
}

func TestLayersOf_Documentation_ListsThemLowestFirst(t *testing.T) {
	t.Parallel()
	const layered = "// Package p is.\n//\n// # Layers\n//\n// From below:\n//\n//\ttypes\n//\trequest, command\n//\tentry\n//\n// # More\n//\n//\tother\npackage p\n"
	for _, c := range []struct {
		name, text string
		want       map[string]int
	}{
		{"listed", layered, map[string]int{"types": 0, "request": 1, "command": 1, "entry": 2}},
		{"no section", "// Package p is.\n//\n//\ttypes\npackage p\n", nil},
		{"no documentation", "package p\n", nil},
	} {
		all, err := sources(tree(map[string]string{"p/doc.go": c.text}), "p")
		if err != nil {
			t.Fatal(err)
		}
		got := layersOf(all)
		if len(got) != len(c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		for file, layer := range c.want {
			if at, ok := got[file]; !ok || at != layer {
				t.Errorf("%s: %s in layer %d, want %d", c.name, file, at, layer)
			}
		}
	}
}

func TestUpward_ReferencesToHigherLayersOrNone_AreCounted(t *testing.T) {
	t.Parallel()
	layers := map[string]int{"types": 0, "request": 1, "command": 1, "entry": 2}
	for r, want := range map[reference]int{
		{"entry", "types"}:     0,
		{"request", "command"}: 0, // beside each other
		{"types", "request"}:   1,
		{"request", "entry"}:   1,
		{"entry", "stray"}:     1,
		{"stray", "types"}:     1,
	} {
		if got := upward([]reference{r}, layers); got != want {
			t.Errorf("%v: %d, want %d", r, got, want)
		}
	}
}
