package driver

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// Request is one request of the core's, with the shard of its name, whose lock guards it.
type Request struct {
	lock.Request
	Shard *Shard
}

// Wait cancels the request, which has no deadline yet, after d. The caller holds
// the lock.
func (a *Request) Wait(d time.Duration) { a.endAt(a.Shard.Now().Add(d), lockerr.ErrWaited) }

// driven implements Caller.
//
//lint:ignore U1000 the requests of package engine, which embed it, have it for Caller
func (a *Request) driven() *Request { return a }

// GiveUpAt cancels the request at an instant, if it has no other deadline.
func (a *Request) GiveUpAt(at clock.Instant) { a.endAt(at, nil) }

// limit ends a request. It is an object of its own because it may do so after the request went
// back to its pool.
type limit struct {
	sh  *Shard
	req *Request // nil when the request has ended; guarded by the shard's lock
}

func (l *limit) cancel(s lockerr.Cancel) {
	l.sh.do(func(rd *lock.Ready) {
		if l.req != nil {
			l.req.Cancel(s, rd)
		}
	})
}

// deadline ends a request whose option Wait is over, or that found no connection in time.
type deadline struct {
	limit
	timer wheel.Timer
	cause error // see lockerr.Cancel
}

func (a *Request) endAt(at clock.Instant, cause error) {
	d := &deadline{limit: limit{a.Shard, a}, cause: cause}
	d.timer.Init(d)
	a.More().Deadline = d
	a.Shard.Table.Timers.Schedule(&d.timer, at)
}

// endDeadlines ends those of a request that has its verdict. The caller holds the lock.
func endDeadlines(x *lock.Extra) {
	if x == nil {
		return
	}
	if d, ok := x.Deadline.(*deadline); ok {
		d.req, x.Deadline = nil, nil
		d.sh.Table.Timers.Cancel(&d.timer)
	}
	if d, ok := x.Outage.(*away); ok {
		d.req, x.Outage = nil, nil
		d.sh.Table.Outages.Remove(&d.Outage)
	}
}

// Fire implements wheel.Task.
func (d *deadline) Fire(*wheel.Timer, clock.Instant) {
	d.cancel(lockerr.Cancel{Cause: d.cause, TimedOut: true})
}
