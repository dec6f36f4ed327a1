package lock

import "testing"

// A lane works if a server answered; a server may have seen what was sent.
func TestWhichVerdictsAServerHasGiven(t *testing.T) {
	t.Parallel()
	for v, want := range map[Verdict]struct{ sent, heard bool }{
		Answered: {true, true}, Busy: {true, true}, WrongType: {true, true}, Denied: {true, true},
		Unknown: {true, false},
		NotSent: {}, Full: {}, Unwanted: {}, Shut: {},
	} {
		if v.Sent() != want.sent || v.Heard() != want.heard {
			t.Errorf("verdict %d: sent %v, heard %v", v, v.Sent(), v.Heard())
		}
	}
}
