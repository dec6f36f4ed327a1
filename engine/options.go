package engine

import (
	"time"
)

// Option changes one acquisition. The zero set of options means: the watchdog
// renews the lease, and the call waits as long as its context lives.
type Option interface{ apply(*options) }

type options struct {
	lease        time.Duration // 0: watchdog
	wait         time.Duration
	maxHold      time.Duration
	minHold      time.Duration
	leaseGiven   bool
	waitGiven    bool
	maxGiven     bool
	minGiven     bool
	nonReentrant bool
	acked        Replicas
	ackedGiven   bool
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// Lease gives the hold a fixed lease instead of the watchdog: d after the command
// that took it was sent, less the safety margin, the hold is lost. At least
// 1 ms, and more than the margin (Config.Margin).
func Lease(d time.Duration) Option {
	return optionFunc(func(o *options) { o.lease, o.leaseGiven = d, true })
}

// Wait bounds the waiting: ErrNotAcquired after d. With Lease it is Redisson's
// tryLock(wait, lease). Not for TryLock, which never waits.
func Wait(d time.Duration) Option {
	return optionFunc(func(o *options) { o.wait, o.waitGiven = d, true })
}

// MaxHold bounds how long the watchdog renews: d after the grant the hold is lost,
// with reason MaxHoldReached. Not together with Lease.
func MaxHold(d time.Duration) Option {
	return optionFunc(func(o *options) { o.maxHold, o.maxGiven = d, true })
}

// MinHold keeps the lock taken, by nobody, until d after the grant, if it is
// unlocked sooner. It is for jobs that every replica of a service starts at about
// the same time: with clocks that differ by less than d, one runs it. At most the
// lease, if one is given. Under the watchdog it may be longer; but if the process
// dies, nobody keeps the lock for longer than Config.Lease.
func MinHold(d time.Duration) Option {
	return optionFunc(func(o *options) { o.minHold, o.minGiven = d, true })
}

// NonReentrant makes the acquisition fail with ErrReentry, at once, if the context
// holds the lock already.
func NonReentrant() Option {
	return optionFunc(func(o *options) { o.nonReentrant = true })
}

// resolve applies the options and checks them together.
func (e *Engine) resolve(opts []Option, try bool) (options, error) {
	if len(opts) == 0 {
		return options{}, nil // and nothing escapes
	}
	var o options
	for _, opt := range opts {
		if opt == nil {
			return o, invalid("a nil Option")
		}
		opt.apply(&o)
	}
	switch {
	case o.leaseGiven && o.lease < time.Millisecond:
		return o, invalid("Lease (%v) must be at least 1ms", o.lease)
	case o.leaseGiven && o.lease > maxDuration:
		return o, invalid("Lease (%v) must be at most %v", o.lease, maxDuration)
	case o.leaseGiven && o.lease <= e.margin(o.lease):
		return o, invalid("Lease (%v) must be longer than the safety margin (%v): such a hold would be over before it is granted", o.lease, e.margin(o.lease))
	case o.leaseGiven && o.maxGiven:
		return o, invalid("Lease and MaxHold exclude each other: a fixed lease is its own maximum")
	case o.waitGiven && try:
		return o, invalid("Wait does not go with TryLock, which never waits: use Lock")
	case o.waitGiven && o.wait <= 0:
		return o, invalid("Wait (%v) must be positive: use TryLock not to wait", o.wait)
	case o.maxGiven && o.maxHold <= e.margin(e.cfg.Lease):
		return o, invalid("MaxHold (%v) must be longer than the safety margin (%v)", o.maxHold, e.margin(e.cfg.Lease))
	case o.minGiven && o.minHold <= 0:
		return o, invalid("MinHold (%v) must be positive", o.minHold)
	case o.minGiven && o.leaseGiven && o.minHold > o.lease:
		return o, invalid("MinHold (%v) must not exceed Lease (%v)", o.minHold, o.lease)
	case o.ackedGiven && !o.acked.valid():
		return o, invalid("Acked (%d) must be a number of replicas up to %d, AllReplicas or MajorityOfReplicas", int(o.acked), maxReplicas)
	case o.minGiven && !o.leaseGiven && o.maxGiven && o.minHold > o.maxHold:
		return o, invalid("MinHold (%v) must not exceed MaxHold (%v)", o.minHold, o.maxHold)
	}
	return o, nil
}

// maxDuration bounds leases, so that instants cannot overflow.
const maxDuration = 100 * 365 * 24 * time.Hour

// margin is the safety margin of a lease.
func (e *Engine) margin(lease time.Duration) time.Duration {
	if e.cfg.Margin > 0 {
		return e.cfg.Margin
	}
	return min(max(lease/10, 5*time.Millisecond), 3*time.Second)
}
