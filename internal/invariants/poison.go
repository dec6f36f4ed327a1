package invariants

// Poison overwrites bytes whose loan has ended, in builds that check invariants: code
// that kept them beyond that time then reads rubbish, and a test fails that passed by
// luck.
func Poison(b []byte) {
	if Enabled {
		for i := range b {
			b[i] = 0xDB
		}
	}
}
