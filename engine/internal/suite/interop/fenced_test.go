package interop

import (
	"strconv"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Tokens rise from hold to hold, whichever side has them: both count in one key.
func TestTokensRiseAcross(t *testing.T) {
	onEachStage(t, calm, func(k kind) bool { return k.counts }, func(t *testing.T, s *stage, k kind) {
		x := s.subject(t, k, "tokens")
		last := int64(0)
		for i := range pick(100, 1000) {
			var token int64
			if i%3 == 1 {
				token = parse(t, x.ask("main", "fence").want(t))
				x.ask("main", "unlock").want(t)
			} else {
				h, err := x.lock(testkit.Within(t, patience))
				if err != nil {
					t.Fatal(err)
				}
				token = h.(*engine.Hold).Token()
				if err := h.Unlock(testkit.Within(t, patience)); err != nil {
					t.Fatal(err)
				}
			}
			if token != last+1 {
				t.Fatalf("token %d after %d", token, last)
			}
			last = token
		}
	})
}

func parse(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
