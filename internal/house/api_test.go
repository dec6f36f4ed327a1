package house

import (
	"slices"
	"testing"
)

func TestExportedNames_EnumValuesAndErrors_AreNotCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"functions", "func A() {}; func b() {}", []string{"A"}},
		{"methods", "type A struct{}; func (A) B() {}", []string{"A"}},
		{"types", "type (A int; B = int; c int; D[T any] struct{})", []string{"A", "B", "D"}},
		{"variables", "var A, b, C = 1, 2, 3", []string{"A", "C"}},
		{"constants", "const A = 1; const B t = 2", []string{"A", "B"}},
		{"enum values", "const (A t = iota + 1; B; C = iota)", nil},
		{"errors", `var (ErrA = errors.New("a"); ErrB error)`, nil},
		{"an error's type", "type A struct{}; func (*A) Error() string { return x }", nil},
		{"a name of two builds", "type A int", []string{"A"}},
	} {
		files := parse(t, map[string]string{"a.go": c.text})
		if c.name == "a name of two builds" {
			files = parse(t, map[string]string{"a_linux.go": c.text, "a_other.go": c.text})
		}
		if got := exportedNames(files); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestExportedMethods_OfExportedTypesOnly_AreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want, only int // methods, and those that only print
	}{
		{"a value's and a pointer's", "type A int; func (A) B() {}; func (*A) C() {}; func (A) d() {}", 2, 0},
		{"a generic type's", "type A[T any] int; func (*A[T]) B() {}; type C[T, U any] int; func (C[T, U]) D() {}", 2, 0},
		{"a private type's", "type a int; func (a) B() {}", 0, 0},
		{"an interface's", "type A interface { B(); c(); error }", 1, 0},
		{"an embedded type's", "type A int; func (A) B() {}; type C struct { A }", 1, 0},
		{"printing", "type A int; func (A) String() string { return x }; func (A) Format() {}; func (A) Formatted() {}", 3, 2},
	} {
		got := exportedMethods(parse(t, map[string]string{"a.go": c.text}))
		if len(got) != c.want || printing(got) != c.only {
			t.Errorf("%s: %v, want %d, of which %d print", c.name, got, c.want, c.only)
		}
	}
}

func TestHoldTypes_WhatIsGivenBack_IsAHold(t *testing.T) {
	t.Parallel()
	got := holdTypes(parse(t, map[string]string{
		"a.go": "type Hold struct{}; func (*Hold) Unlock() {}\ntype Permits struct{}; func (*Permits) Release() {}",
		"b.go": "type A struct { B }; type B struct { C }; type C struct { D }; type D struct { *Hold }; type hidden struct { *Hold }",
		"c.go": "type Mutex struct { h *Hold }; func (Mutex) ForceUnlock() {}; type lock int; func (lock) Unlock() {}",
	}))
	if want := []string{"A", "B", "C", "D", "Hold", "Permits"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
