package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
)

// FuzzPipeline plays a history: each byte of the input is something that a caller,
// the kernel, the server or the clock does. What begins while a write is under way
// runs inside that write, as on another goroutine. Whatever happens, every request
// completes exactly once, and what is said of it is true.
func FuzzPipeline(f *testing.F) {
	const submit, room, wake, answer, noscript, noise, tick, fail = 0, 1, 2, 3, 4, 5, 6, 7
	for _, history := range [][]byte{
		{room | 31<<3, submit, submit, answer | 1<<3},
		{submit, submit, submit, submit, room | 5<<3, wake, answer | 3<<3, room | 31<<3, wake, submit, answer},
		{room | 31<<3, submit, noscript, submit, answer | 3<<3},
		{room | 2<<3, submit, submit, room | 6<<3, wake, noise, answer, answer, tick, tick},
		{room | 5<<3, submit, submit}, // but for its last byte, the second is on the wire
		{submit, room | 4<<3, submit, submit, submit, wake, answer | 3<<3, submit, fail, submit, wake, tick},
	} {
		f.Add(history)
	}
	f.Fuzz(func(t *testing.T, history []byte) {
		l, tr, fake := scripted(func(c *Config) { c.inlineDepth, c.MaxInFlight, c.MaxQueuedBytes = 2, 12, 40 })
		tr.room = 0
		h := &pipelineHistory{lane: l, tr: tr, clock: fake, left: history}
		tr.during = func() {
			tr.err = nil
			if h.depth < 3 {
				h.step()
			}
		}
		for len(h.left) > 0 {
			h.step()
		}
		if h.alive = tr.closed == nil; h.alive {
			tr.closed = io.EOF
		}
		tr.sink.OnClose(tr.closed)
		h.submit()
		for _, c := range h.calls {
			h.judge(t, c)
		}
		if c := l.Counters(); c.InFlight != 0 || l.Err() == nil {
			t.Errorf("at the end: up %v, %+v", l.Err() == nil, c)
		}
	})
}

type pipelineHistory struct {
	lane  *Lane
	tr    *scriptedTransport
	clock *clock.Fake
	left  []byte
	calls []*textCall

	depth           int
	inBytes, inWake bool
	woken           int // calls of wake that OnWake has answered
	unknownScripts  bool
	alive           bool // the connection lived until the history ended
}

func (h *pipelineHistory) step() {
	if len(h.left) == 0 {
		return
	}
	h.depth++
	defer func() { h.depth-- }()
	op, n := h.left[0]&7, int(h.left[0]>>3)
	h.left = h.left[1:]
	switch op {
	case 0:
		h.submit()
	case 1:
		h.tr.room += n
	case 2:
		if h.tr.wakes > h.woken && !h.inWake && h.tr.closed == nil {
			h.woken = h.tr.wakes
			h.inWake = true
			h.tr.sink.OnWake()
			h.inWake = false
		}
	case 3:
		h.feed(strings.Repeat(":1\r\n", n%8))
	case 4:
		h.unknownScripts = true
		h.feed("-NOSCRIPT x\r\n")
	case 5:
		h.feed([]string{":", "1\r", "\n", "$-1\r\n", "?", "$3\r\nab", "c\r\n", "-ERR x\r\n"}[n%8])
	case 6:
		h.clock.Advance(300 * time.Millisecond)
		h.lane.CheckAge(h.clock.Now())
	case 7:
		if h.tr.err = io.ErrClosedPipe; n == 31 {
			h.lane.Close(request.ErrClosed)
		}
	}
}

// feed delivers bytes of the server, as far as the transport's contract allows.
func (h *pipelineHistory) feed(b string) {
	if b != "" && !h.inBytes && h.tr.closed == nil {
		h.inBytes = true
		h.tr.sink.OnBytes([]byte(b))
		h.inBytes = false
	}
}

// submit submits a call; every third one submits another when it is completed.
func (h *pipelineHistory) submit() {
	i := len(h.calls)
	c := &textCall{text: fmt.Sprintf("s%d;", i)}
	if i%3 == 2 {
		c.then = func(request.Reply) {
			if len(h.left) > 0 {
				h.submit()
			}
		}
	}
	h.calls = append(h.calls, c)
	h.lane.Submit(c)
}

func (h *pipelineHistory) judge(t *testing.T, c *textCall) {
	if c.reply == nil { // twice would have panicked
		t.Fatalf("%s was never completed", c.text)
	}
	short := bytes.Contains(h.tr.wire, []byte(c.text))
	whole := bytes.Contains(h.tr.wire, []byte(strings.ToUpper(c.text)))
	sent := c.reply.Sent != 0
	switch err := c.reply.Err; {
	case errors.Is(err, request.ErrNotSent):
		// The short form may be on the wire, if the server did not know the script.
		if whole || short && !h.unknownScripts || sent {
			t.Errorf("%s: %v; wire %q, stamp %v", c.text, err, h.tr.wire, sent)
		}
	case errors.Is(err, request.ErrOutcomeUnknown):
		if !short && !whole || !sent {
			t.Errorf("%s: %v; wire %q, stamp %v", c.text, err, h.tr.wire, sent)
		}
	default: // An answer to what the kernel did not take must have cost the connection.
		if !short && h.alive || !sent {
			t.Errorf("%s: %v, %v; wire %q, stamp %v", c.text, c.reply.Value, err, h.tr.wire, sent)
		}
	}
}
