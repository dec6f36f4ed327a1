package lock

import "testing"

// A lane works if a server answered; a server may have seen what was sent.
func TestWhichVerdictsAServerHasGiven(t *testing.T) {
	t.Parallel()
	for v, want := range map[Result]struct{ sent, heard bool }{
		Replied: {true, true}, RetryLater: {true, true}, WrongType: {true, true}, Refused: {true, true},
		Unknown: {true, false},
		NotSent: {}, LaneFull: {}, Cancelled: {}, ClientClosed: {},
	} {
		if v.Sent() != want.sent || v.Answered() != want.heard {
			t.Errorf("verdict %d: sent %v, heard %v", v, v.Sent(), v.Answered())
		}
	}
}
