package pubsub

import (
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/fifo"
)

// retryQueue are topics whose commands the server has refused, perhaps only for now: it is
// busy, or does not know the command. They are asked for again at the next tick, and then
// less and less often, so that a server which goes on refusing 100,000 channels is not
// asked for them ten times a second. Guarded by subs.mu.
//
// Topics that were refused equally often wait equally long. So each line is sorted by time,
// and topics that were refused together share a command again.
type retryQueue struct {
	rand  *rand.Rand // nil: the global source
	fresh []*topic   // since the last tick
	lines [maxRefusals]fifo.Ring[retry]
}

type retry struct {
	topic *topic
	due   clock.Instant
}

const (
	// maxRefusals is the number of refusals after which the pauses no longer grow.
	maxRefusals = 7
	// firstRetry is the first pause of a topic that was refused; it doubles from there.
	firstRetry = 100 * time.Millisecond
	// maxRetry is the longest pause. Meanwhile the waiters of a channel must poll.
	maxRetry = 5 * time.Second
)

// add keeps t, until a tick says that it is due.
func (h *retryQueue) add(t *topic) {
	if !t.retrying {
		t.retrying = true
		h.fresh = append(h.fresh, t)
	}
}

// len is how many there are.
func (h *retryQueue) len() int {
	n := len(h.fresh)
	for i := range h.lines {
		n += h.lines[i].Len()
	}
	return n
}

// tick calls ask for the topics that are due.
func (h *retryQueue) tick(now clock.Instant, ask func(*topic)) {
	for i := range h.lines {
		line := &h.lines[i]
		for line.Len() > 0 && !now.Before(line.Front().due) {
			t := line.Pop().topic
			t.retrying = false
			ask(t)
		}
		line.Shrink()
	}
	var due [maxRefusals]clock.Instant // one for all of this tick
	for _, t := range h.fresh {
		if t.refusals <= 1 {
			t.retrying = false
			ask(t)
			continue
		}
		i := t.refusals - 1
		if due[i] == 0 {
			due[i] = now.Add(h.pause(int(t.refusals)))
		}
		h.lines[i].Push(retry{t, due[i]})
	}
	clear(h.fresh)
	h.fresh = h.fresh[:0]
}

// pause is how long a topic waits that was refused so often.
func (h *retryQueue) pause(refusals int) time.Duration {
	d := min(maxRetry, firstRetry<<(refusals-1))
	if h.rand != nil {
		return d/2 + time.Duration(h.rand.Int64N(int64(d/2)))
	}
	return d/2 + rand.N(d/2)
}
