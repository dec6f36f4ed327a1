package engine

import (
	"log/slog"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
)

// deeds are what a transition leaves to be done without mu.
type deeds struct {
	lost        error // to be logged
	give        []*vote
	cancel      []*acquisition
	why         reason.Stop
	settle      *Future[*QuorumHold]
	hold        *QuorumHold
	err         error
	ask         []request
	mayOverflow bool // the first round, of a future
	look        bool
	join        *vote
	lookAt      []*vote
	last        clock.Instant // when it ends
	arm         time.Duration
	list        bool
}

func (do *deeds) run(q *quorum) {
	if do.lost != nil {
		q.home.log(slog.LevelWarn, "pawl: a RedLock was lost", "err", do.lost.Error())
	}
	for _, v := range do.give {
		v.hold.h.unbind(v) // or its release would wait for v.end, on a goroutine
		v.hold.unlockAsync(false)
	}
	for _, a := range do.cancel {
		a.cancel(do.why)
	}
	if do.settle != nil {
		q.finish()
		q.home.table.Timers.Cancel(&q.timer.timer)
		do.settle.settle(do.hold, do.err)
	}
	if do.join != nil && do.last != 0 {
		do.join.hold.h.endBy(do.last)
	}
	for _, v := range do.lookAt {
		holdingOf(v.hold.h.Root()).LookNow()
	}
	for _, one := range do.ask {
		q.enqueue(one, do.mayOverflow)
	}
	if do.arm != 0 {
		q.home.table.Timers.Schedule(&q.timer.timer, q.home.clock.Now().Add(do.arm))
		if q.over() { // meanwhile: who ended it may have been here first
			q.home.table.Timers.Cancel(&q.timer.timer)
		}
	}
	if do.look {
		q.look(false)
	}
	if do.list && !q.list() {
		q.cancel(reason.Stop{Cause: ErrClosed})
	}
}

// request is an acquisition that ask has made.
type request struct {
	at int
	a  *acquisition
}

func (q *quorum) enqueue(one request, mayOverflow bool) {
	m, a := q.locks[one.at], one.a
	a.Patient = !mayOverflow
	q.mu.Lock()
	s := q.stop
	if s == nil && q.stage == quorumOver {
		s = &reason.Stop{Cause: reason.ErrAbandoned}
	}
	q.mu.Unlock()
	if s != nil {
		a.cancel(*s) // enqueue finds it ended
	}
	a.fut.hearDirectly(func(h *Hold, err error) { q.told(one.at, h, err) })
	m.engine().enqueue(a, m, q.opts)
}
