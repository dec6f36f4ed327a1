package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/clock"
)

// user is a program: it asks for a lock, holds it for a while, and gives it back, again
// and again.
type user struct {
	p     *process
	name  string
	busy  bool   // it waits for an answer, or holds
	inner bool   // it re-enters a hold, once
	waits string // for this name, with Lock
	rests int    // how often it has rested; of those that are not over the latest counts

	asks, unlocks bool          // it waits for the answer
	asked         clock.Instant // when it began to
	ofQuorum      bool          // what it asks for
	wants         *held         // the same; nil when it has its verdict
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
	if u.inner {
		return
	}
	pause := 3 * time.Second
	switch {
	case s.thronged():
		pause = 300 * time.Microsecond
	case s.contended != nil:
		pause /= 10
	}
	u.rests++
	this := u.rests
	s.after(s.between(0, pause), u.p, func() {
		if !s.calm && u.rests == this {
			u.ask()
		}
	})
}

// names are few, so that the programs meet. One is that of SpinMutexes, which do not wake
// waiters of a Mutex, others those of FencedMutexes, FairMutexes and RWMutexes.
var (
	names = []string{"a", "b", "c", spin, fenced, fair, rw}
	plain = names[:3]
	// apart are those whose locks have more keys than one.
	apart = []string{fenced, fair, rw}
)

const (
	spin   = "spin"
	fenced = "fenced"
	fair   = "fair"
	rw     = "rw"
)

func (u *user) ask() {
	s := u.p.sim
	if u.p.left {
		return
	}
	if s.chance(8) {
		u.inquire()
		return
	}
	u.busy = true
	h := &held{user: u}
	switch {
	case s.thronged() && !s.chance(20):
		u.readPlainly(h)
		return
	case s.contended != nil && !s.chance(4):
		u.takePlainly(h)
		return
	}
	h.watchdog, h.acked = !s.chance(4), s.chance(8)
	var options []engine.Option
	switch {
	case !h.watchdog:
		options = append(options, engine.Lease(s.between(margin+time.Millisecond, 2*s.lease)))
	case s.chance(4):
		h.most = s.between(margin+time.Millisecond, 2*s.lease)
		options = append(options, engine.MaxHold(h.most))
	}
	if h.acked {
		options = append(options, engine.Acked(1))
	}
	if s.chance(8) { // its context carries nothing
		h.alone, options = new(alone), append(options, engine.NonReentrant())
	}
	try := s.chance(3)
	if !try && s.chance(3) {
		options = append(options, engine.Wait(s.between(0, 2*s.lease)))
	}
	h.ctx = context.Background()
	if s.chance(8) {
		h.limit = s.between(time.Millisecond, s.lease)
		h.ctx = u.p.limit(h.limit)
	}
	if len(s.servers) > 1 && s.chance(2) {
		u.takeVotes(h, try, options)
		return
	}
	if s.chance(6) {
		h.names = slices.Clone(plain)
		s.random.Shuffle(len(h.names), func(i, j int) { h.names[i], h.names[j] = h.names[j], h.names[i] })
		h.names = h.names[:2+s.random.IntN(len(plain)-1)]
		s.tell("%s asks for %s, try %v, %v", u.name, h.names, try, options)
		take(h, u.p.engine().Many(h.names...), try, options)
		return
	}
	h.names = []string{s.draws()}
	if h.names[0] == rw && s.server.replica != nil { // see the documentation of the package
		h.names = names[:1]
	}
	h.reads = h.names[0] == rw && !s.chance(3)
	if !h.reads && s.chance(8) {
		options = append(options, engine.MinHold(s.between(time.Millisecond, longestMinHold)))
	}
	s.tell("%s asks for %s, reads %v, try %v, %v", u.name, h.names, h.reads, try, options)
	if !try {
		u.waits = h.names[0]
	}
	takeOne(h, try, options)
}

// take asks for a lock. It waits for the verdict, or abandons the future before.
func take(h *held, l engine.Lock, try bool, options []engine.Option) {
	u, s := h.user, h.user.p.sim
	answered, abandoned := false, false
	h.asked, u.asks, u.asked, u.ofQuorum = s.now, true, s.now, h.quorum
	h.once, u.wants = try, h
	h.pollsAnew()
	s.noteWriter()
	if h.queues() {
		s.turns.asking = h
		defer func() { s.turns.asking = nil }()
	}
	verdict := func(got *engine.Hold, err error) {
		answered, u.waits, u.asks, u.wants = true, "", false, nil
		delete(s.reading.open, h)
		h.pollsAnew()
		switch {
		case err != nil:
			u.refused(h, err)
		case abandoned: // it was granted before, and is given back
			s.endTurn(h, false)
			if got.Err() == nil {
				s.fail("%s: a hold that was abandoned is one still", u.name)
			}
			u.rest()
		default:
			h.hold = got
			u.granted(h)
		}
	}
	if h.limit != 0 && !h.quorum { // that one hears its servers out
		s.after(h.limit+settled, u.p, func() {
			if !answered && u.p.awake() {
				s.fail("%s waits still, and its context has ended", u.name)
			}
		})
	}
	if s.chance(3) {
		s.start(u.p, func() {
			if try {
				verdict(l.TryLock(h.ctx, options...))
			} else {
				verdict(l.Lock(h.ctx, options...))
			}
		})
		return
	}
	var f *engine.Future[*engine.Hold]
	if try {
		f = l.TryLockAsync(h.ctx, options...)
	} else {
		f = l.LockAsync(h.ctx, options...)
	}
	f.OnComplete(verdict)
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

func (u *user) refused(h *held, err error) {
	s := u.p.sim
	s.tell("%s gets no %s: %v", u.name, h.names, err)
	s.endTurn(h, false)
	h.checkRefusal(err)
	s.checkGaveUp(u.name, err)
	h.checkAlone(err)
	if !errors.Is(err, engine.ErrNotAcquired) {
		s.fail("%s: the error of an acquisition is %v", u.name, err)
	}
	if errors.Is(err, errStopped) && h.ctx.Err() == nil {
		s.fail("%s: the context has not ended: %v", u.name, err)
	}
	if errors.Is(err, engine.ErrClosed) && u.p.refuses == 0 {
		s.fail("%s: the engine is not being closed: %v", u.name, err)
	}
	u.rest()
}

func (u *user) granted(h *held) {
	s := u.p.sim
	h.granted = s.now
	h.findOwners()
	s.tell("%s has %s as %s", u.name, h.names, h.short())
	if u.p.refuses != 0 && h.asked > u.p.refuses {
		s.fail("%s: %s was granted, and asked for when the engine was being closed", u.name, h.short())
	}
	if h.acked && h.believed() && h.hold.Acked() < 1 {
		s.fail("%s: no replica has acknowledged %s", u.name, h.short())
	}
	if h.most != 0 && h.hold.ValidUntil().Sub(u.p.wall()) > h.most {
		s.fail("%s: %s is valid for longer than MaxHold", u.name, h.short())
	}
	// Callbacks come within a millisecond, unless the process was paused. (A Downgrade waits until the
	// writer has left; Close may end the reader meanwhile.)
	if over := u.p.wall().Sub(h.hold.ValidUntil()); over > time.Millisecond && h.hold.Err() != nil && len(h.names) == 1 && !h.quorum && !h.robbed() &&
		s.now.Sub(u.p.wakes) > time.Millisecond && (h.beside == nil || u.p.refuses == 0) {
		s.fail("%s: %s was over for %v when it was granted", u.name, h.short(), over)
	}
	h.checkAlone(nil)
	h.checkToken()
	s.endTurn(h, true)
	h.last = s.now
	s.holds, s.kept = append(s.holds, h), append(s.kept, h)
	s.check()
	s.after(s.holdFor(), u.p, func() { u.unlock(h) })
	if s.inspected && len(h.names) == 1 && slices.Contains(plain, h.names[0]) && h.under == nil && h.within == nil && !h.quorum && s.chance(2) {
		h.askUnder()
	}
	if s.contended != nil && !s.chance(8) {
		return
	}
	if s.chance(4) {
		s.after(s.between(0, s.lease), u.p, func() { h.look() })
	}
	for s.chance(2) {
		s.after(s.between(0, time.Second), u.p, h.makeContext)
	}
	for s.chance(3) && (h.leased() || s.chance(8)) {
		s.after(s.between(0, s.lease), u.p, h.extend)
	}
}

func (u *user) unlock(h *held) {
	s := u.p.sim
	if h.names[0] == rw && !h.reads && h.within == nil && s.chance(3) {
		u.downgrade(h)
		return
	}
	u.giveBack(h)
}

func (u *user) giveBack(h *held) {
	s := u.p.sim
	s.tell("%s unlocks %s", u.name, h.short())
	lostBefore := h.look() != nil
	h.until, h.failovers = h.hold.ValidUntil(), s.failovers
	u.unlocks = true
	again, began := s.chance(6), s.now
	verdict := func(_ struct{}, err error) {
		u.unlocks = false
		if took := s.now.Sub(began); took > commandTimeout && s.healthy() && began.Sub(s.quiet) > recovers && u.p.wakes < began && !(slices.Contains(h.names, fair) && s.fairMoved(took)) {
			s.fail("%s: Unlock of %s took %v, though nothing has gone wrong", u.name, h.short(), took)
		}
		s.tell("%s has unlocked %s: %v", u.name, h.short(), err)
		h.unlocked(err, lostBefore)
		if again && !errors.Is(err, errStopped) { // else it may go on
			h.hold.UnlockAsync().OnComplete(func(_ struct{}, err error) {
				if err == nil {
					s.fail("%s: the second Unlock of %s succeeded", u.name, h.short())
				}
			})
		}
		u.rest()
	}
	if s.chance(3) {
		s.start(u.p, func() { verdict(struct{}{}, h.unlockWithin()) })
	} else {
		h.hold.UnlockAsync().OnComplete(verdict)
	}
	if at := h.hold.ValidUntil(); at.After(u.p.wall()) {
		s.fail("%s: ValidUntil of %s is in the future after Unlock", u.name, h.short())
	}
}

// unlockWithin is an Unlock that blocks. Its context may end, and may be one of the hold, which
// ends with it and does not bound the waiting.
func (h *held) unlockWithin() error {
	s, ctx := h.user.p.sim, context.Background()
	switch {
	case len(h.contexts) > 0 && s.chance(2):
		ctx = h.contexts[0]
	case s.chance(2):
		ctx = h.user.p.limit(s.between(0, time.Second))
	}
	err := h.hold.Unlock(ctx)
	if errors.Is(err, engine.ErrReleased) || errors.Is(err, errStopped) && ctx.Err() == nil {
		s.fail("%s: the context of the Unlock of %s has not ended otherwise: %v", h.user.name, h.short(), err)
	}
	return err
}

// draws draws a name.
func (s *Sim) draws() string {
	from := names
	if s.favours != nil && !s.chance(3) {
		from = s.favours
	}
	return from[s.random.IntN(len(from))]
}
