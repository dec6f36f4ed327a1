package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// expectedCount is a program that uses the semaphore and the latch.
type expectedCount struct {
	p     *process
	name  string
	busy  bool
	waits string // for this name
	have  *engine.Permits
	wants int           // permits
	since clock.Instant // when it asked
	asked uint64        // which one it was to ask: two may do so at the same time
	heard clock.Instant // the latch opened while it listened; 0: it did not
}

func (s *Sim) newCounter(p *process) {
	u := &expectedCount{p: p, name: p.name + ".counter"}
	s.counts.users = append(s.counts.users, u)
	s.of(p.sites[0])
	u.rest()
}

func (u *expectedCount) rest() {
	s := u.p.sim
	u.busy, u.waits, u.heard = false, "", 0
	s.after(s.between(0, 2*time.Second), u.p, func() {
		if !s.calm && !u.p.left {
			u.busy = true
			u.act()
		}
	})
}

func (u *expectedCount) act() {
	s := u.p.sim
	sem, l := u.p.engine().Semaphore(tallied), u.p.engine().Latch(latch)
	ctx, limited := context.Background(), s.chance(5)
	if limited {
		ctx = u.p.limit(s.between(time.Millisecond, 5*time.Second))
	}
	s.counts.asked++
	u.since, u.asked = s.now, s.counts.asked
	switch s.random.IntN(14) {
	case 0:
		s.tell("%s counts down", u.name)
		s.start(u.p, func() {
			err := l.CountDown(ctx)
			u.did("c0 1", err)
			u.completed("CountDown", err)
		})
	case 1:
		n := 1 + s.random.IntN(3)
		s.tell("%s closes the latch with %d", u.name, n)
		s.start(u.p, func() {
			done, err := l.TrySetCount(ctx, n)
			u.did(fmt.Sprintf("l%d %d", n, bit(done)), err)
			u.completed("TrySetCount", err)
		})
	case 2, 3:
		u.waits = latch
		s.tell("%s awaits the latch", u.name)
		if s.chance(2) {
			s.start(u.p, func() { u.completed("Await", l.Await(ctx)) })
		} else {
			l.AwaitAsync(ctx).OnComplete(func(_ struct{}, err error) { u.completed("Await", err) })
		}
	case 4:
		s.start(u.p, func() {
			n, err := sem.Available(ctx)
			u.saw(tallied, n, err)
			u.completed("Available", err)
		})
	case 5:
		s.start(u.p, func() {
			n, err := l.Count(ctx)
			u.saw(latch, n, err)
			u.completed("Count", err)
		})
	case 6:
		s.start(u.p, func() { u.supply(sem) })
	default:
		u.acquire(ctx, sem)
	}
}

func (u *expectedCount) acquire(ctx context.Context, sem engine.Semaphore) {
	s, n := u.p.sim, 1+u.p.sim.random.IntN(most)
	u.wants = n
	abandoned, answered := false, false
	verdict := func(p *engine.Permits, err error) {
		answered = true
		if err != nil || abandoned {
			u.completed("Acquire", err)
			return
		}
		u.waits, u.have = "", p
		s.tell("%s has %d permits", u.name, n)
		s.after(s.between(0, 3*time.Second), u.p, u.release)
	}
	s.tell("%s acquires %d", u.name, n)
	switch s.random.IntN(4) {
	case 0:
		s.start(u.p, func() { verdict(sem.TryAcquire(ctx, n)) })
		return
	case 1:
		u.waits = tallied
		s.start(u.p, func() { verdict(sem.Acquire(ctx, n, engine.Wait(s.between(time.Millisecond, 20*time.Second)))) })
		return
	}
	u.waits = tallied
	f := sem.AcquireAsync(ctx, n)
	f.OnComplete(verdict)
	if s.chance(5) {
		s.after(s.between(0, 3*time.Second), u.p, func() {
			if !answered {
				s.tell("%s abandons", u.name)
				abandoned = true
				f.Abandon()
			}
		})
	}
}

func (u *expectedCount) release() {
	s, p := u.p.sim, u.have
	s.tell("%s releases %d", u.name, p.Count())
	u.have = nil
	if s.chance(2) {
		p.ReleaseAsync().OnComplete(func(_ struct{}, err error) { u.completed("Release", err) })
		return
	}
	ctx := context.Background()
	if s.chance(3) {
		ctx = u.p.limit(s.between(0, time.Second))
	}
	s.start(u.p, func() { u.completed("Release", p.Release(ctx)) })
}

// supply changes how many permits there are, or tries to. What was drained comes back, most often.
func (u *expectedCount) supply(sem engine.Semaphore) {
	s, c, n := u.p.sim, u.p.begin(u.name), 1+u.p.sim.random.IntN(3)
	switch s.random.IntN(4) {
	case 0:
		s.tell("%s drains", u.name)
		n, err := sem.Drain(c.ctx)
		u.ended(c, fmt.Sprintf("d0 %d", n), err)
		if err == nil && n > 0 {
			s.after(s.between(0, 3*time.Second), u.p, func() { s.start(u.p, func() { u.add(sem, u.p.begin(u.name), n) }) })
		}
		u.completed("Drain", err)
	case 1:
		s.tell("%s sets %d permits", u.name, n)
		done, err := sem.TrySetPermits(c.ctx, n)
		u.ended(c, fmt.Sprintf("s%d %d", n, bit(done)), err)
		u.completed("SetPermits", err)
	default:
		if s.counts.all > supply || s.counts.all == supply && s.chance(2) {
			n = -n
		}
		u.completed("AddPermits", u.add(sem, c, n))
	}
}

func (u *expectedCount) add(sem engine.Semaphore, c *call, n int) error {
	c.s.tell("%s adds %d permits", u.name, n)
	err := sem.AddPermits(c.ctx, n)
	u.ended(c, fmt.Sprintf("p%d 1", n), err)
	return err
}

// did checks that the server has done what a program is told.
func (u *expectedCount) did(action string, err error) {
	if s := u.p.sim; !s.of(u.p.sites[0]).tell(action, err) {
		s.fail("%s is told of %q more often than the server has done it", u.name, action)
	}
}

// ended ends a call that changes how many permits there are.
func (u *expectedCount) ended(c *call, action string, err error) {
	u.did(action, err)
	c.barred = c.s.barredSince(tallied) < commandTimeout+settled
	c.end(err, commandTimeout)
}

// saw checks that the server has said what a program is told.
func (u *expectedCount) saw(name string, n int, err error) {
	if s := u.p.sim; err == nil && s.counts.looks[fmt.Sprintf("%s %d", name, n)] < u.since {
		s.fail("%s: the server has not said that there are %d of %s", u.name, n, name)
	}
}

// bit is what the server answers for that.
func bit(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// completed checks what an operation has said, and rests.
func (u *expectedCount) completed(what string, err error) {
	s := u.p.sim
	s.tell("%s: %s: %v", u.name, what, err)
	s.checkGaveUp(u.name, err)
	var refused *resp.ServerError
	switch {
	case what == "Await" && err == nil && s.counts.was < u.since:
		s.fail("%s: the latch was not open", u.name)
	case err == nil, errors.As(err, &refused), errors.Is(err, errStopped):
	case errors.Is(err, engine.ErrWrongType) && slices.Contains([]string{"CountDown", "TrySetCount", "Await", "Count"}, what):
	case errors.Is(err, engine.ErrUnavailable) && what != "Release":
	case errors.Is(err, engine.ErrClosed), errors.Is(err, engine.ErrLost):
		if u.p.refuses == 0 {
			s.fail("%s: %s says %v, and the engine is not being closed", u.name, what, err)
		}
	case errors.Is(err, engine.ErrNotAcquired) && what == "Acquire" && !errors.Is(err, engine.ErrOutcomeUnknown):
	case errors.Is(err, engine.ErrOutcomeUnknown) && what != "Available" && what != "Count":
		if !s.of(u.p.sites[0]).long(s.now) && (what == "Acquire" || what == "CountDown") {
			s.fail("%s: %s says %v, and nothing was in doubt for long", u.name, what, err)
		}
	default:
		s.fail("%s: %s says %v", u.name, what, err)
	}
	u.rest()
}

// openLatch opens the latch, and says so. Unless all is over, it may close it again at once.
func (s *Sim) openLatch() {
	if h := s.server.Get(latch); h != nil && h.Value != "" {
		s.tell("the latch is opened")
		at, channel, verb := s.keeps(s.server, latch), "redisson_countdownlatch__channel__{"+latch+"}", s.verb()
		delete(s.server.Keys, latch)
		s.published(at, channel, verb)
		if !s.calm && s.chance(2) {
			s.tell("the latch is closed again")
			s.server.Keys[latch] = &model.Hash{Text: true, Value: "2"}
			s.say(at, channel, verb, "1")
		}
	}
}

// opened notes that the latch opens, perhaps for no time at all. Who has listened for long is told.
func (s *Sim) opened() {
	if s.counts == nil {
		return
	}
	s.counts.was = s.now
	for _, u := range s.counts.users {
		listens := s.healthy() && s.cluster == nil && !u.p.dead && u.p.awake() && s.now.Sub(u.since) > wakeUp
		if u.waits == latch && u.heard == 0 && listens {
			u.heard = s.now
		}
	}
}

// checkOpened: who listened when the latch opened is told, though it may be closed again.
func (s *Sim) checkOpened() {
	for _, u := range s.counts.users {
		switch {
		case u.heard == 0:
		case u.p.dead || !u.p.awake() || !s.healthy():
			u.heard = 0
		case s.now.Sub(u.heard) > wakeUp:
			s.fail("%s has not heard that the latch opened %v ago", u.name, s.now.Sub(u.heard))
		}
	}
}

// ledger is what the server has executed of the operations of an engine that change how much there is,
// and what the programs of the engine were told. Each operation that a program was told of has been
// executed once. One of which it was told that nobody knows has been executed once at most, and any
// other not at all.
type ledger struct {
	unreported map[string]int // operations, with their answers, that were executed, and of which nobody was told
	perhaps    map[string]int // operations that nobody knows of: their answers are not known

	said map[string]clock.Instant // answers to what may be repeated: when that was answered last
}

func newLedger() ledger {
	return ledger{unreported: make(map[string]int), perhaps: make(map[string]int), said: make(map[string]clock.Instant)}
}

// tell notes what a program is told of an operation. It reports whether the server has done that.
func (l *ledger) tell(action string, err error) bool {
	switch {
	case err == nil:
		l.unreported[action]--
	case errors.Is(err, engine.ErrOutcomeUnknown):
		l.perhaps[operation(action)]++
	}
	return err != nil || l.unreported[action] >= 0
}

// operation is a deed without its answer.
func operation(action string) string {
	op, _, _ := strings.Cut(action, " ")
	return op
}

// excess is how many operations were executed of which no program can know.
func (l *ledger) excess() (n int) {
	all := make(map[string]int)
	for action, unreported := range l.unreported {
		all[operation(action)] += unreported
	}
	for op, unreported := range all {
		n += max(0, unreported-l.perhaps[op])
	}
	return n
}
