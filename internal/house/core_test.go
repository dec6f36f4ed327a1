package house

import "testing"

func TestPorts_MethodsOfInterfacesAndFuncFields_AreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"type A interface { B(); C() int }":                     2,
		"type a interface { b() }; type c interface { a; d() }": 2,
		"type A struct { f, g func(); n int }":                  2,
		"type F func(); type A struct { f F; F }":               2,
		"type A struct { inner struct { f func() } }":           1,
		"func f(g func()) {}; func (a A) h() {}":                0,
		"var x interface { M() }":                               1,
		"type A struct { f map[int]func() }":                    0,
	} {
		if got := ports(parse(t, map[string]string{"a.go": text})); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestBooleans_FieldsAndBitFlags_AreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"type A struct { b, c bool; n int }":                    2,
		"type A struct { b [2]bool; c []bool; d map[int]bool }": 2,
		"type A struct { b atomic.Bool; c atomic.Int64 }":       1,
		"type flag bool; type A struct { f flag }":              1,
		"type A struct { inner struct { b bool } }":             1,
		"func f(b bool) bool { var c bool; return c }":          0,
		"const (A = 1 << iota; B; _; C)":                        3,
		"const (A flags = 1 << 0; B flags = 1 << 1)":            2,
		"const (A flags = 1 << iota; B; all = A | B)":           2,
		"const size = 1 << 16; const other = 2 << iota":         0,
		"const (A kind = iota; B; C)":                           0,
	} {
		if got := booleans(parse(t, map[string]string{"a.go": text})); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
