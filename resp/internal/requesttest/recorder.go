package requesttest

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
)

// Recorder is a ChannelHandler that hands every event to the test.
type Recorder struct{ Events chan recorded }

type recorded struct {
	ev      request.ChannelEvent
	payload string
	err     error
}

func NewRecorder() *Recorder { return &Recorder{Events: make(chan recorded, 1024)} }

func (r *Recorder) ChannelEvent(ev request.ChannelEvent, payload []byte, err error) {
	r.Events <- recorded{ev, string(payload), err}
}

// Await takes the next event, which must be ev, and returns its payload or error.
func (r *Recorder) Await(t *testing.T, ev request.ChannelEvent) string {
	t.Helper()
	ctx, cancel := cputime.WithTimeout(context.Background(), sockettest.Patience)
	defer cancel()
	select {
	case e := <-r.Events:
		if e.ev != ev {
			t.Fatalf("event %d (%q, %v) instead of %d", e.ev, e.payload, e.err, ev)
		}
		if e.err != nil {
			return e.err.Error()
		}
		return e.payload
	case <-ctx.Done():
		t.Fatalf("event %d did not come", ev)
	}
	return ""
}

// EventCounter is a ChannelHandler that counts, for tests with many channels.
type EventCounter struct {
	counts [request.Refused + 1]atomic.Int64
}

func (c *EventCounter) ChannelEvent(ev request.ChannelEvent, _ []byte, _ error) { c.counts[ev].Add(1) }

func (c *EventCounter) Count(ev request.ChannelEvent) int { return int(c.counts[ev].Load()) }

type HandlerFunc func(ev request.ChannelEvent)

func (f HandlerFunc) ChannelEvent(ev request.ChannelEvent, _ []byte, _ error) { f(ev) }
