// Package invariants checks what must always be true, in builds with the tag
// pawl_invariants; without it the checks compile to nothing.
//
// A check that costs more than a comparison stands inside `if
// invariants.Enabled { ... }`, so that its arguments are not computed either.
package invariants

import "fmt"

// Check panics with a text that starts with "BUG: " if ok is false and the
// checks are on. It is for our own mistakes only, never for input.
func Check(ok bool, what string) {
	if Enabled && !ok {
		panic("BUG: " + what)
	}
}

// Checkf is Check with a formatted text. Its arguments are evaluated, and may be
// allocated, in every build: on a hot path it stands inside `if Enabled`.
func Checkf(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("BUG: " + fmt.Sprintf(format, args...))
	}
}
