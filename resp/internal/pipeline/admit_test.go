package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

// patientCall is a textCall that waits for room.
type patientCall struct {
	textCall
	priority request.Priority
	left     atomic.Bool // nobody waits for it
}

func (p *patientCall) Priority() request.Priority { return p.priority }
func (p *patientCall) Wanted() bool               { return !p.left.Load() }

func submitPatient(l *Lane, priority request.Priority, texts ...string) []*patientCall {
	all := make([]*patientCall, len(texts))
	for i, text := range texts {
		all[i] = &patientCall{textCall: textCall{text: text}, priority: priority}
		l.Submit(all[i])
	}
	return all
}

func replies(n int) []byte { return []byte(strings.Repeat(":1\r\n", n)) }

func full(maxInFlight int) func(*Config) {
	return func(c *Config) { c.MaxInFlight = maxInFlight }
}

func TestPipeline_Backlog_KeepsPriorityAndOrder(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(2))
	submitTexts(l, "a", "b")
	submitPatient(l, request.PriorityNormal, "1", "2", "3")
	submitPatient(l, request.PriorityHigh, "x", "y")
	if got := string(tr.wire); got != "ab" {
		t.Fatalf("%q went out on a connection that takes 2", got)
	}
	for range 7 {
		tr.sink.OnBytes(replies(1))
	}
	if got := string(tr.wire); got != "abxy123" {
		t.Errorf("sent in the order %q", got)
	}
}

func TestPipeline_Backlog_IsNotOvertaken(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(1))
	last := &textCall{text: "!"}
	first := &textCall{text: "a", then: func(request.Reply) { l.Submit(last) }} // there is room at this moment
	l.Submit(first)
	waits := submitPatient(l, request.PriorityNormal, "1")
	tr.sink.OnBytes(replies(1))
	last.wants(t, request.ErrNotSent, request.ErrLaneFull)
	tr.sink.OnBytes(replies(1))
	waits[0].wantsInt(t, 1)
	if got := string(tr.wire); got != "a1" {
		t.Errorf("sent: %q", got)
	}
}

func TestPipeline_QueuedBytes_LimitRoom(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *Config) { c.MaxQueuedBytes = 4 })
	tr.room = 3
	submitTexts(l, "a", "bcdefg") // 4 bytes stay in this process
	waits := submitPatient(l, request.PriorityNormal, "h", "i")
	if waits[0].reply != nil {
		t.Fatalf("refused: %v", waits[0].reply.Err)
	}
	tr.room = 100
	tr.sink.OnWake()
	tr.sink.OnBytes(replies(2))
	tr.sink.OnBytes(replies(2))
	waits[1].wantsInt(t, 1)
	if got := string(tr.wire); got != "abcdefghi" {
		t.Errorf("sent: %q", got)
	}
}

func TestPipeline_UnwantedInBacklog_IsNotSent(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(1))
	submitTexts(l, "a")
	waits := submitPatient(l, request.PriorityNormal, "1", "2")
	waits[0].left.Store(true)
	tr.sink.OnBytes(replies(1))
	waits[0].wants(t, request.ErrNotSent, request.ErrUnwanted)
	tr.sink.OnBytes(replies(1))
	waits[1].wantsInt(t, 1)
	if got := string(tr.wire); got != "a2" {
		t.Errorf("sent: %q", got)
	}
}

func TestPipeline_ConnectionEnds_BacklogIsNotSent(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(1))
	sent := submitTexts(l, "a")
	waits := append(submitPatient(l, request.PriorityNormal, "1", "2"), submitPatient(l, request.PriorityHigh, "x")...)
	cause := errors.New("cut")
	tr.sink.OnClose(cause)
	sent[0].wants(t, request.ErrOutcomeUnknown, cause)
	for _, w := range waits {
		w.wants(t, request.ErrNotSent, cause)
	}
}

// Whatever comes and goes: each request is completed once, nothing is forgotten while
// the server answers, and no more is out than may be.
func TestPipeline_RandomBacklog_ForgetsNobody(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + rng.IntN(5)
		l, tr, _ := scripted(full(limit))
		var all []*patientCall
		answered := 0
		submit := func() {
			c := &patientCall{textCall: textCall{text: "c"}, priority: request.Priority(rng.IntN(3))}
			c.left.Store(rng.IntN(6) == 0)
			if rng.IntN(4) == 0 { // its answer makes somebody else ask
				c.then = func(request.Reply) {
					next := &patientCall{textCall: textCall{text: "c"}, priority: request.PriorityNormal}
					all = append(all, next)
					l.Submit(next)
				}
			}
			all = append(all, c)
			l.Submit(c)
		}
		answer := func() {
			out := len(tr.wire) - answered
			if out > limit {
				t.Fatalf("seed %d: %d commands are out, %d may be", seed, out, limit)
			}
			if out > 0 {
				n := 1 + rng.IntN(out)
				answered += n
				tr.sink.OnBytes(replies(n))
			}
		}
		for range 200 {
			if rng.IntN(2) == 0 {
				submit()
			} else {
				answer()
			}
		}
		if seed%2 == 0 {
			for len(tr.wire) > answered {
				answer()
			}
		} else {
			tr.sink.OnClose(fmt.Errorf("cut"))
		}
		for i, c := range all {
			if c.reply == nil {
				t.Fatalf("seed %d: request %d of %d, priority %d, was forgotten", seed, i, len(all), c.priority)
			}
		}
	}
}
