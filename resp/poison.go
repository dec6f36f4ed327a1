package resp

import "github.com/pawl-lock/pawl/internal/invariants"

// poison overwrites bytes whose loan has ended, in builds that check invariants:
// who kept a Value or a payload beyond its time then reads rubbish, and a test
// fails that passed by luck.
func poison(b []byte) {
	if invariants.Enabled {
		for i := range b {
			b[i] = 0xDB
		}
	}
}
