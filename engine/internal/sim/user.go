package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// user is a program: it asks for a lock, holds it for a while, and gives it back, again
// and again.
type user struct {
	p     *process
	name  string
	busy  bool   // it waits for an answer, or holds
	waits string // for this name, with Lock
}

func newUser(p *process, i int) *user {
	u := &user{p: p, name: fmt.Sprintf("%s.%d", p.name, i+1)}
	u.rest()
	return u
}

// rest lets the user begin anew in a while.
func (u *user) rest() {
	s := u.p.sim
	u.busy = false
	s.after(s.between(0, 3*time.Second), u.p, func() {
		if !s.calm {
			u.ask()
		}
	})
}

// names are few, so that the programs meet.
var names = []string{"a", "b", "c"}

func (u *user) ask() {
	s := u.p.sim
	u.busy = true
	name := names[s.random.IntN(len(names))]
	m := u.p.engine.Mutex(name)
	var options []engine.Option
	fixed := s.chance(4)
	if fixed {
		options = append(options, engine.Lease(s.between(margin+time.Millisecond, 2*s.lease)))
	} else if s.chance(4) {
		options = append(options, engine.MaxHold(s.between(margin+time.Millisecond, 2*s.lease)))
	}
	if s.chance(8) {
		options = append(options, engine.MinHold(s.between(time.Millisecond, 5*time.Second)))
	}
	acked := s.chance(8)
	if acked {
		options = append(options, engine.Acked(1))
	}
	try := s.chance(3)
	if !try && s.chance(3) {
		options = append(options, engine.Wait(s.between(0, 2*s.lease)))
	}
	if !try {
		u.waits = name
	}
	s.tell("%s asks for %s, try %v, %v", u.name, name, try, options)
	var f *engine.Future[*engine.Hold]
	if try {
		f = m.TryLockAsync(context.Background(), options...)
	} else {
		f = m.LockAsync(context.Background(), options...)
	}
	answered, abandoned := false, false
	f.OnComplete(func(h *engine.Hold, err error) {
		answered, u.waits = true, ""
		if abandoned && err == nil { // it was granted before, and is given back
			if h.Err() == nil {
				s.fail("%s: a hold that was abandoned is one still", u.name)
			}
			u.rest()
			return
		}
		u.told(&held{user: u, hold: h, name: name, watchdog: !fixed, acked: acked}, err)
	})
	if s.chance(10) {
		s.after(s.between(0, s.lease), u.p, func() {
			if !answered {
				s.tell("%s abandons", u.name)
				abandoned = true
				f.Abandon()
			}
		})
	}
}

func (u *user) told(h *held, err error) {
	s := u.p.sim
	if err != nil {
		s.tell("%s gets no %s: %v", u.name, h.name, err)
		if !errors.Is(err, engine.ErrNotAcquired) {
			s.fail("%s: the error of an acquisition is %v", u.name, err)
		}
		u.rest()
		return
	}
	h.owner = h.hold.Owner()
	s.tell("%s has %s as %s", u.name, h.name, h.short())
	if h.acked && h.hold.Acked() < 1 {
		s.fail("%s: no replica has acknowledged %s", u.name, h.short())
	}
	s.holds, s.kept = append(s.holds, h), append(s.kept, h)
	s.check()
	s.after(s.holdFor(), u.p, func() { u.unlock(h) })
	if s.chance(4) {
		s.after(s.between(0, s.lease), u.p, func() { h.look() })
	}
}

func (s *Sim) holdFor() time.Duration {
	if s.calm || !s.chance(4) {
		return s.between(0, time.Second)
	}
	return s.between(0, 3*s.lease)
}

func (u *user) unlock(h *held) {
	s := u.p.sim
	s.tell("%s unlocks %s", u.name, h.short())
	lostBefore := h.look() != nil
	h.until = h.hold.ValidUntil()
	f := h.hold.UnlockAsync()
	if at := h.hold.ValidUntil(); at.After((*processClock)(u.p).Wall()) {
		s.fail("%s: ValidUntil of %s is in the future after Unlock", u.name, h.short())
	}
	again := s.chance(6)
	f.OnComplete(func(_ struct{}, err error) {
		s.tell("%s has unlocked %s: %v", u.name, h.short(), err)
		h.unlocked(err, lostBefore)
		if again {
			h.hold.UnlockAsync().OnComplete(func(_ struct{}, err error) {
				if err == nil {
					s.fail("%s: the second Unlock of %s succeeded", u.name, h.short())
				}
			})
		}
		u.rest()
	})
}
