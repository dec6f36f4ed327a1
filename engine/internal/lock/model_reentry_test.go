package lock

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// sharers is readers of one grant, with re-entries and contexts, in an order that a seed decides.
type sharers struct {
	*readersLab
	seed    uint64
	r       *rand.Rand
	grant   *Entry
	askers  []*caller
	unlocks map[*tenant]*leaver
	ending  []*Hold // the first of each list of holds whose contexts are to end
}

func newSharers(t *testing.T, seed uint64) *sharers {
	s := &sharers{readersLab: newReadersLab(t), seed: seed, r: rand.New(rand.NewPCG(seed, 0)), unlocks: make(map[*tenant]*leaver)}
	a := s.granted()
	s.grant, s.askers = a.hold.Entry, []*caller{a}
	return s
}

// applies makes a transition whose contexts end later.
func (s *sharers) applies(transition func(rd *Ready)) {
	var rd Ready
	transition(&rd)
	if rd.Ended != nil {
		s.ending = append(s.ending, rd.Ended)
	}
	s.settle()
	tell(&rd)
}

// some is a hold, live or not; mostly one of the latest.
func (s *sharers) some() *tenant {
	few := s.askers[max(0, len(s.askers)-1-s.r.IntN(8)):]
	if c := few[s.r.IntN(len(few))]; c.hold != nil {
		return c.hold
	}
	return s.askers[0].hold
}

func (s *sharers) step() {
	switch h := s.some(); s.r.IntN(8) {
	case 0:
		if s.common().open() != nil {
			s.askers = append(s.askers, s.joined(s.askers[0], once))
		}
	case 1, 2:
		if h.InnermostLive() == nil {
			return
		}
		c := new(caller)
		c.Init(c)
		c.Kind, c.Parent = reading, &h.Hold
		c.once(s.r.IntN(2) == 0)
		if s.r.IntN(3) == 0 {
			c.Lease = time.Second
		}
		s.askers = append(s.askers, c)
		s.applies(func(rd *Ready) { s.grant.Admit(&c.Request, rd) })
	case 3:
		if h.IsLive() {
			h.Bind(new(notified))
		}
	case 4, 5:
		s.leave(h)
	case 6:
		s.contextsEnd()
	case 7:
		s.now = s.now.Add(400 * time.Millisecond)
		for _, c := range s.askers {
			if h := c.hold; h != nil && h.alarm != 0 && h.alarm <= s.now {
				s.applies(func(rd *Ready) { h.Fired(s.now, rd) })
			}
		}
		if s.r.IntN(20) == 0 {
			s.applies(func(rd *Ready) { h.Grant.Gone(RemovedOnServer, rd) })
		}
	}
}

func (s *sharers) leave(h *tenant) {
	if s.unlocks[h] != nil {
		return
	}
	u := new(leaver)
	u.Handle = u
	s.unlocks[h] = u
	s.applies(func(rd *Ready) { h.Unlock(&u.Unlock, rd) })
}

func (s *sharers) contextsEnd() {
	if n := len(s.ending); n > 0 {
		i := s.r.IntN(n)
		h := s.ending[i]
		s.ending = append(s.ending[:i], s.ending[i+1:]...)
		s.applies(func(rd *Ready) { h.Entry.ContextsEnded(h, rd) })
	}
}

// alive reports whether contexts of h, or of its re-entries, are to end yet.
func (s *sharers) alive(h *tenant) bool {
	for _, one := range s.ending {
		for ; one != nil; one = one.NextEnded() {
			for of := one; of != nil; of = of.Parent {
				if of == &h.Hold {
					return true
				}
			}
		}
	}
	return false
}

func (s *sharers) check() {
	s.t.Helper()
	held, roots := 0, 0
	for _, c := range s.askers {
		h := c.hold
		if h == nil {
			continue
		}
		if h.IsLive() {
			held++
			if h.Parent == nil {
				roots++
			}
			if h.Ending() != nil || h.ended != 0 {
				s.t.Fatalf("seed %d: live, and has ended: %+v", s.seed, h)
			}
		}
		if ended := h.Ending() != nil; h.notified != (ended && !s.alive(h)) {
			s.t.Fatalf("seed %d: Done is closed: %v, ended %v, contexts alive %v", s.seed, h.notified, ended, s.alive(h))
		}
		u := s.unlocks[h]
		if last := s.grant.hold == &h.Hold; u != nil && !last && u.delivered == 0 && !s.alive(h) {
			s.t.Fatalf("seed %d: its Unlock waits for nothing: %+v", s.seed, h)
		}
		if u != nil && u.delivered == 1 && u.Err == nil && s.alive(h) && h.Parent == nil {
			s.t.Fatalf("seed %d: its Unlock has returned, and a context is alive: %+v", s.seed, h)
		}
		if h.IsLive() && h.pending() && h.child == nil {
			s.t.Fatalf("seed %d: a request waits to re-enter, and nothing is in its way: %+v", s.seed, h)
		}
		if c := h.child; h.IsLive() && c != nil && c.state != live && !s.alive(c.Handle.(*tenant)) {
			s.t.Fatalf("seed %d: a re-entry has ended, with its contexts, and is in the way: %+v", s.seed, h)
		}
		if p := h.Parent; p != nil && p.child != &h.Hold && p.state == live && s.alive(h) {
			s.t.Fatalf("seed %d: a context of a re-entry is alive, and the next one may come: %+v", s.seed, h)
		}
		if u != nil && errors.Is(u.Err, lockerr.ErrOutcomeUnknown) {
			s.t.Fatalf("seed %d: Unlock: %v", s.seed, u.Err)
		}
		if h.IsLive() && h.pending() && h.reentered() && !h.lockWaits() {
			s.t.Fatalf("seed %d: a TryLock waits behind a re-entry", s.seed)
		}
	}
	if held != s.Count.Held {
		s.t.Fatalf("seed %d: %d are held, %d are counted", s.seed, held, s.Count.Held)
	}
	switch s.grant.Cmd.Action {
	case NoCommand:
	case Releasing:
		if roots != 0 || len(s.ending) != 0 {
			s.t.Fatalf("seed %d: released, with %d readers and %d contexts", s.seed, roots, len(s.ending))
		}
	default:
		s.t.Fatalf("seed %d: command %d of a joint owner", s.seed, s.grant.Cmd.Action)
	}
}

// Whatever order readers, their re-entries and the ends of contexts come in: each is told when its own contexts
// have ended, and the last of all is released.
func TestModel_ReadersAndReentries_EndOneByOne(t *testing.T) {
	t.Parallel()
	for range 1000 {
		s := newSharers(t, rand.Uint64())
		for range 60 {
			s.step()
			s.check()
		}
		for i := 0; i < len(s.askers); i++ { // a re-entry that waits is granted, or fails, meanwhile
			if h := s.askers[i].hold; h != nil {
				s.leave(h)
				s.check()
			}
		}
		for len(s.ending) > 0 {
			s.contextsEnd()
			s.check()
		}
		for s.grant.Cmd.Action != NoCommand {
			s.reply(s.grant, Outcome{})
		}
		for _, c := range s.askers {
			if c.hold != nil {
				s.leave(c.hold)
			}
		}
		for len(s.ending) > 0 {
			s.contextsEnd()
		}
		for _, c := range s.askers {
			if c.settled != 1 || c.hold != nil && (s.unlocks[c.hold].delivered != 1 || !c.hold.finished()) {
				t.Fatalf("seed %d: %+v, %+v", s.seed, c, s.unlocks[c.hold])
			}
		}
		if !s.grant.Detached || s.Count.Held != 0 || s.Count.Pending != 0 {
			t.Fatalf("seed %d: it is left: %+v, %+v", s.seed, s.grant.View(), s.Count)
		}
	}
}
