package serial

import (
	"testing"
	"time"
)

// Only what blocked a name unblocks it.
func TestBlocked_ByOne_IsUnblockedByNoOther(t *testing.T) {
	t.Parallel()
	var b Blocked
	if b.Unblock(Disconnected) || !b.Block(Disconnected) || b.Block(BackingOff) || b.Unblock(BackingOff) {
		t.Fatalf("it is blocked by %d", b)
	}
	if !b.Unblock(Disconnected) || b != NotBlocked {
		t.Errorf("it is blocked by %d still", b)
	}
}

// most draws all of what is random.
type most struct{}

func (most) Draw(d time.Duration) time.Duration { return d }

func TestRefusals_InARow_PauseLonger(t *testing.T) {
	t.Parallel()
	var n Refusals
	for _, want := range []time.Duration{20, 40, 80, 160, 320, 640, 640} {
		if got := n.Pause(false, most{}); got != want*time.Millisecond {
			t.Errorf("a pause of %v, want %v ms", got, want)
		}
	}
	if got := n.Pause(true, most{}); got != MovingPoll {
		t.Errorf("a pause of %v while the slot moves", got)
	}
	n = 0
	if got := n.Pause(true, most{}); got != 20*time.Millisecond {
		t.Errorf("the first pause is %v while the slot moves", got)
	}
}
