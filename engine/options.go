package engine

import (
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/redact"
)

// Option changes one acquisition. Without options, the watchdog renews the lease, and
// the call waits as long as its context lives. If one is given twice, the later counts.
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

// setting is an Option made of a duration. Options are values that print as they are
// written: Lease(10s).
type setting struct {
	name string
	d    time.Duration
	set  func(*options, time.Duration)
}

func (s setting) apply(o *options)             { s.set(o, s.d) }
func (s setting) String() string               { return s.name + "(" + s.d.String() + ")" }
func (s setting) Format(f fmt.State, c rune)   { redact.Format(f, c, s.String()) }
func (s setting) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Lease gives the hold a fixed lease instead of the watchdog. The hold is lost when d
// has passed since the command that took the lock was sent, less the safety margin
// (Config.Margin). d must be at least 1 ms, more than the margin, and at most 100
// years.
func Lease(d time.Duration) Option {
	return setting{"Lease", d, func(o *options, d time.Duration) { o.lease, o.leaseGiven = d, true }}
}

// Wait bounds the waiting: after d the call fails with ErrNotAcquired, joined with
// ErrHeld or ErrUnavailable. Together with Lease it is Redisson's tryLock(wait, lease).
// It is not for TryLock, which never waits. More than 100 years means no bound:
// Wait(math.MaxInt64) waits as long as the context lives.
func Wait(d time.Duration) Option {
	return setting{"Wait", d, func(o *options, d time.Duration) { o.wait, o.waitGiven = d, true }}
}

// MaxHold bounds how long the watchdog renews: when d has passed since the command that
// took the lock was sent, the hold is lost with reason MaxHoldReached. d must be longer than
// the margin (Config.Margin). MaxHold cannot be combined with Lease. More than 100 years means no
// bound.
func MaxHold(d time.Duration) Option {
	return setting{"MaxHold", d, func(o *options, d time.Duration) { o.maxHold, o.maxGiven = d, true }}
}

// MinHold keeps the lock taken until d after the grant, even if you unlock it sooner, or
// lose it because the engine is closed or the hold's time is over; in the meantime nobody
// holds it. It is for jobs that every replica of a service
// starts at about the same time: if their clocks differ by less than d, only one of
// them runs the job.
//
// d must be at most 100 years, and at most the Lease or MaxHold if you give one. Under
// the watchdog d may be longer than Config.Lease, but if the process dies, the lock
// stays taken for at most Config.Lease. On a re-entry MinHold counts from the grant of
// the re-entry, and the lock stays taken when the outer hold is unlocked.
func MinHold(d time.Duration) Option {
	return setting{"MinHold", d, func(o *options, d time.Duration) { o.minHold, o.minGiven = d, true }}
}

// NonReentrant makes the acquisition fail at once with ErrReentry if the context
// already holds the lock.
func NonReentrant() Option { return nonReentrant{} }

type nonReentrant struct{}

func (nonReentrant) apply(o *options)               { o.nonReentrant = true }
func (n nonReentrant) String() string               { return "NonReentrant()" }
func (n nonReentrant) Format(f fmt.State, c rune)   { redact.Format(f, c, n.String()) }
func (n nonReentrant) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// resolve applies the options and checks them together.
func (e *Engine) resolve(opts []Option, try bool) (options, error) {
	if len(opts) == 0 {
		return options{}, nil // and nothing escapes
	}
	var o options
	for _, opt := range opts {
		if opt == nil {
			return o, reason.Invalid("a nil Option")
		}
		opt.apply(&o)
	}
	switch {
	case o.leaseGiven && o.lease < time.Millisecond:
		return o, reason.Invalid("Lease (%v) must be at least 1ms", o.lease)
	case o.leaseGiven && o.lease > machine.MaxDuration:
		return o, reason.Invalid("Lease (%v) must be at most 100 years", o.lease)
	case o.leaseGiven && o.lease <= e.margin(o.lease):
		return o, reason.Invalid("Lease (%v) must be longer than the safety margin (%v): such a hold would be over before it is granted", o.lease, e.margin(o.lease))
	case o.leaseGiven && o.maxGiven:
		return o, reason.Invalid("Lease and MaxHold exclude each other: a fixed lease is its own maximum")
	case o.waitGiven && try:
		return o, reason.Invalid("Wait does not go with TryLock, which never waits: use Lock")
	case o.waitGiven && o.wait <= 0:
		return o, reason.Invalid("Wait (%v) must be positive: use TryLock not to wait", o.wait)
	case o.maxGiven && o.maxHold <= e.margin(e.cfg.Lease):
		return o, reason.Invalid("MaxHold (%v) must be longer than the safety margin (%v)", o.maxHold, e.margin(e.cfg.Lease))
	case o.minGiven && o.minHold <= 0:
		return o, reason.Invalid("MinHold (%v) must be positive", o.minHold)
	case o.minGiven && o.minHold > machine.MaxDuration:
		return o, reason.Invalid("MinHold (%v) must be at most 100 years", o.minHold)
	case o.minGiven && o.leaseGiven && o.minHold > o.lease:
		return o, reason.Invalid("MinHold (%v) must not exceed Lease (%v)", o.minHold, o.lease)
	case o.ackedGiven && !o.acked.valid():
		return o, reason.Invalid("Acked (%d) must be a number of replicas up to %d, AllReplicas or MajorityOfReplicas", int(o.acked), maxReplicas)
	case o.minGiven && !o.leaseGiven && o.maxGiven && o.minHold > o.maxHold:
		return o, reason.Invalid("MinHold (%v) must not exceed MaxHold (%v)", o.minHold, o.maxHold)
	}
	if o.wait > machine.MaxDuration {
		o.waitGiven = false
	}
	if o.maxHold > machine.MaxDuration {
		o.maxHold = 0
	}
	return o, nil
}

// margin is the safety margin of a lease.
func (e *Engine) margin(lease time.Duration) time.Duration { return e.table.Machine.Margin(lease) }

// machine is what the machine needs of a Config.
func (c *Config) machine() machine.Config {
	return machine.Config{
		Lease: c.Lease, CommandTimeout: c.CommandTimeout, AckTimeout: c.AckTimeout,
		Replicas: machine.Acks(c.Replicas), FixedMargin: c.Margin,
	}
}
