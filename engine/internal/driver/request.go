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

// canceller is what may be given up: an operation that has no result yet.
type canceller interface {
	// Cancel gives it up unless it has ended or was given up before; it reports whether it
	// did.
	Cancel(lockerr.Cancel) bool
}

// deadline gives up what has no result in time.
type deadline struct {
	timer wheel.Timer
	of    canceller
	cause error // see lockerr.Cancel
}

func (d *deadline) init(of canceller, cause error) {
	d.of, d.cause = of, cause
	d.timer.Init(d)
}

// Fire implements wheel.Task.
func (d *deadline) Fire(*wheel.Timer, clock.Instant) {
	d.of.Cancel(lockerr.Cancel{Cause: d.cause, TimedOut: true})
}

// limit gives up a request. It is an object of its own because it may do so after the request went
// back to its pool.
type limit struct {
	sh  *Shard
	req *Request // nil when the request has ended; guarded by the shard's lock
}

// Cancel implements canceller.
func (l *limit) Cancel(s lockerr.Cancel) (did bool) {
	l.sh.do(func(rd *lock.Ready) {
		if did = l.req != nil; did {
			l.req.Cancel(s, rd)
		}
	})
	return did
}

// requestDeadline is that of a request whose option Wait is over, or that found no connection in time.
type requestDeadline struct {
	limit
	deadline
}

func (a *Request) endAt(at clock.Instant, cause error) {
	d := &requestDeadline{limit: limit{a.Shard, a}}
	d.init(&d.limit, cause)
	a.More().Deadline = d
	a.Shard.Table.Timers.Schedule(&d.timer, at)
}

// requestOutage is that of a request whose server is away for too long.
type requestOutage struct {
	limit
	Outage
}

// Outage ends the request when its server has been away for d, or returns why that is so already.
// The caller holds the lock.
func (a *Request) Outage(route uint64, d time.Duration) error {
	t, x := a.Shard.Table, &requestOutage{limit: limit{a.Shard, a}}
	x.Outage = Outage{of: &x.limit, sites: []site{{t.Client, route}}, need: 1, most: d}
	a.More().Outage = x
	return t.Outages.add(&x.Outage)
}

// endLimits ends those of a request that has its verdict. The caller holds the lock.
func endLimits(x *lock.Extra) {
	if x == nil {
		return
	}
	if d, ok := x.Deadline.(*requestDeadline); ok {
		d.req, x.Deadline = nil, nil
		d.sh.Table.Timers.Cancel(&d.timer)
	}
	if d, ok := x.Outage.(*requestOutage); ok {
		d.req, x.Outage = nil, nil
		d.sh.Table.Outages.remove(&d.Outage)
	}
}
