package fifo

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

func TestBacklog_TwoPriorities_HighGoesFirst(t *testing.T) {
	t.Parallel()
	var b Backlog[string]
	b.Push("acquire 1", request.PriorityNormal)
	b.Push("release 1", request.PriorityHigh)
	b.Push("acquire 2", request.PriorityNormal)
	b.Push("release 2", request.PriorityHigh)
	for _, want := range []string{"release 1", "release 2", "acquire 1", "acquire 2"} {
		if got := b.Pop(); got != want {
			t.Fatalf("popped %s, want %s", got, want)
		}
	}
	if b.Len() != 0 {
		t.Errorf("%d left", b.Len())
	}
}
