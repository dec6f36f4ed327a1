package resp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
)

// patientCall is a textCall that waits for room.
type patientCall struct {
	textCall
	rank Rank
	left atomic.Bool // nobody waits for it
}

func (p *patientCall) Rank() Rank   { return p.rank }
func (p *patientCall) Wanted() bool { return !p.left.Load() }

func submitPatient(l *lane, rank Rank, texts ...string) []*patientCall {
	all := make([]*patientCall, len(texts))
	for i, text := range texts {
		all[i] = &patientCall{textCall: textCall{text: text}, rank: rank}
		l.submit(all[i])
	}
	return all
}

func replies(n int) []byte { return []byte(strings.Repeat(":1\r\n", n)) }

func full(maxInFlight int) func(*laneConfig) {
	return func(c *laneConfig) { c.maxInFlight = maxInFlight }
}

func TestWhatWaitsForRoomIsSentInOrderSoonerBeforeLater(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(2))
	submitTexts(l, "a", "b")
	submitPatient(l, Later, "1", "2", "3")
	submitPatient(l, Sooner, "x", "y")
	if got := string(tr.wire); got != "ab" {
		t.Fatalf("%q went out on a connection that takes 2", got)
	}
	for range 7 {
		tr.sink.onBytes(replies(1))
	}
	if got := string(tr.wire); got != "abxy123" {
		t.Errorf("sent in the order %q", got)
	}
}

func TestNobodyOvertakesWhatWaitsForRoom(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(1))
	last := &textCall{text: "!"}
	first := &textCall{text: "a", then: func(Reply) { l.submit(last) }} // there is room at this moment
	l.submit(first)
	waits := submitPatient(l, Later, "1")
	tr.sink.onBytes(replies(1))
	last.wants(t, ErrNotSent, ErrLaneFull)
	tr.sink.onBytes(replies(1))
	waits[0].wantsInt(t, 1)
	if got := string(tr.wire); got != "a1" {
		t.Errorf("sent: %q", got)
	}
}

func TestRoomIsCountedInBytesToo(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *laneConfig) { c.maxQueuedBytes = 4 })
	tr.room = 3
	submitTexts(l, "a", "bcdefg") // 4 bytes stay in this process
	waits := submitPatient(l, Later, "h", "i")
	if waits[0].reply != nil {
		t.Fatalf("refused: %v", waits[0].reply.Err)
	}
	tr.room = 100
	tr.sink.onWake()
	tr.sink.onBytes(replies(2))
	tr.sink.onBytes(replies(2))
	waits[1].wantsInt(t, 1)
	if got := string(tr.wire); got != "abcdefghi" {
		t.Errorf("sent: %q", got)
	}
}

func TestWhatNobodyWaitsForIsNotSent(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(1))
	submitTexts(l, "a")
	waits := submitPatient(l, Later, "1", "2")
	waits[0].left.Store(true)
	tr.sink.onBytes(replies(1))
	waits[0].wants(t, ErrNotSent, ErrUnwanted)
	tr.sink.onBytes(replies(1))
	waits[1].wantsInt(t, 1)
	if got := string(tr.wire); got != "a2" {
		t.Errorf("sent: %q", got)
	}
}

func TestWhatWaitsForRoomIsNotSentWhenTheConnectionEnds(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(full(1))
	sent := submitTexts(l, "a")
	waits := append(submitPatient(l, Later, "1", "2"), submitPatient(l, Sooner, "x")...)
	cause := errors.New("cut")
	tr.sink.onClose(cause)
	sent[0].wants(t, ErrOutcomeUnknown, cause)
	for _, w := range waits {
		w.wants(t, ErrNotSent, cause)
	}
}

// Whatever comes and goes: each request is completed once, nothing is forgotten while
// the server answers, and no more is out than may be.
func TestBacklogForgetsNobody(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + rng.IntN(5)
		l, tr, _ := scripted(full(limit))
		var all []*patientCall
		answered := 0
		submit := func() {
			c := &patientCall{textCall: textCall{text: "c"}, rank: Rank(rng.IntN(3))}
			c.left.Store(rng.IntN(6) == 0)
			if rng.IntN(4) == 0 { // its answer makes somebody else ask
				c.then = func(Reply) {
					next := &patientCall{textCall: textCall{text: "c"}, rank: Later}
					all = append(all, next)
					l.submit(next)
				}
			}
			all = append(all, c)
			l.submit(c)
		}
		answer := func() {
			out := len(tr.wire) - answered
			if out > limit {
				t.Fatalf("seed %d: %d commands are out, %d may be", seed, out, limit)
			}
			if out > 0 {
				n := 1 + rng.IntN(out)
				answered += n
				tr.sink.onBytes(replies(n))
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
			tr.sink.onClose(fmt.Errorf("cut"))
		}
		for i, c := range all {
			if c.reply == nil {
				t.Fatalf("seed %d: request %d of %d, rank %d, was forgotten", seed, i, len(all), c.rank)
			}
		}
	}
}
