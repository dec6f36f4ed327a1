package engine

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/redact"
	"github.com/pawl-lock/pawl/resp"
)

// Option changes one acquisition. Without options, the watchdog renews the lease, and the call
// waits as long as its context lives. If an option is given twice, the last one counts.
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
	backoff      backoff
	backoffGiven bool
	outage       time.Duration
	outageGiven  bool
	origin       *lock.Origin
}

// option is an Option with its argument. Options are values that print as they are written: Lease(10s).
type option[T any] struct {
	name string
	arg  T
	set  func(*options, T)
}

func (o option[T]) apply(all *options)           { o.set(all, o.arg) }
func (o option[T]) String() string               { return fmt.Sprintf("%s(%v)", o.name, o.arg) }
func (o option[T]) Format(f fmt.State, c rune)   { redact.Format(f, c, o.String()) }
func (o option[T]) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Lease gives the hold a fixed lease instead of the watchdog. The hold is lost when d
// has passed since the command that took the lock was sent, less the safety margin
// (Config.Margin). d must be at least 1 ms, more than the margin, and at most 100
// years.
func Lease(d time.Duration) Option {
	return option[time.Duration]{"Lease", d, func(o *options, d time.Duration) { o.lease, o.leaseGiven = d, true }}
}

// Wait bounds the waiting: after d the call fails with ErrNotAcquired, joined with
// ErrHeld or ErrUnavailable. Together with Lease it is Redisson's tryLock(wait, lease).
// It is not for TryLock, which never waits. More than 100 years means no bound:
// Wait(math.MaxInt64) waits as long as the context lives.
func Wait(d time.Duration) Option {
	return option[time.Duration]{"Wait", d, func(o *options, d time.Duration) { o.wait, o.waitGiven = d, true }}
}

// MaxHold bounds how long the watchdog renews: when d has passed since the command that
// took the lock was sent, the hold is lost with reason MaxHoldReached. d must be longer than
// the margin (Config.Margin). MaxHold cannot be combined with Lease. More than 100 years means no
// bound.
func MaxHold(d time.Duration) Option {
	return option[time.Duration]{"MaxHold", d, func(o *options, d time.Duration) { o.maxHold, o.maxGiven = d, true }}
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
	return option[time.Duration]{"MinHold", d, func(o *options, d time.Duration) { o.minHold, o.minGiven = d, true }}
}

// Outage bounds the waiting for a server that is away: after d in a row without a connection to the
// server of the name the call fails with ErrUnavailable. With Outage(0) the call fails at once if the
// server is known to be away, and as soon as it is lost, even while this process holds the lock. A
// connection that comes back, however shortly, ends the outage.
//
// With several locks d applies to the server of each, with a RedLock to as many as leave no majority.
// It works for everything that is acquired, including a Semaphore; more than 100 years means no bound.
// Without it Lock waits as long as its context lives, and TryLock up to Config.CommandTimeout.
func Outage(d time.Duration) Option {
	return option[time.Duration]{"Outage", d, func(o *options, d time.Duration) { o.outage, o.outageGiven = d, true }}
}

// Backoff says how a waiter of a SpinMutex polls: first after about first, then after twice as
// long each time, up to about most, each time with a random part. Without it, it is
// Backoff(1ms, 128ms), like Redisson's exponential back-off; the same duration twice polls
// at a constant rate. Both must be from 1 ms to 1 s, and it is for a SpinMutex only.
func Backoff(first, most time.Duration) Option {
	return option[backoff]{"Backoff", backoff{first, most}, func(o *options, b backoff) { o.backoff, o.backoffGiven = b, true }}
}

type backoff lock.Backoff

func (b backoff) String() string { return fmt.Sprintf("%v, %v", b.First, b.Most) }

// NonReentrant makes the acquisition fail at once with ErrReentry if the context
// already holds the lock.
func NonReentrant() Option {
	return option[none]{"NonReentrant", none{}, func(o *options, _ none) { o.nonReentrant = true }}
}

// none is the argument of an option that has none.
type none struct{}

func (none) String() string { return "" }

// resolve applies the options of an acquisition of m, and checks them together.
func (e *Engine) resolve(opts []Option, try bool, m Mutex) (options, error) {
	k := m.key.Kind
	if len(opts) == 0 && k != kind.Permit {
		return options{}, nil // and nothing escapes
	}
	var o options
	for _, opt := range opts {
		if opt == nil {
			return o, lockerr.Invalid("a nil Option")
		}
		opt.apply(&o)
	}
	switch {
	case o.leaseGiven && o.lease < time.Millisecond:
		return o, lockerr.Invalid("Lease (%v) must be at least 1ms", o.lease)
	case o.leaseGiven && o.lease > lock.MaxDuration:
		return o, lockerr.Invalid("Lease (%v) must be at most 100 years", o.lease)
	case o.leaseGiven && o.lease <= e.margin(o.lease):
		return o, lockerr.Invalid("Lease (%v) must be longer than the safety margin (%v): such a hold would be over before it is granted", o.lease, e.margin(o.lease))
	case o.leaseGiven && o.maxGiven:
		return o, lockerr.Invalid("Lease and MaxHold exclude each other: a fixed lease is its own maximum")
	case o.waitGiven && try:
		return o, lockerr.Invalid("Wait does not go with TryLock or TryAcquire, which never wait: use Lock or Acquire")
	case o.waitGiven && o.wait <= 0:
		return o, lockerr.Invalid("Wait (%v) must be positive: use TryLock, TryAcquire or Count not to wait", o.wait)
	case o.outageGiven && o.outage < 0:
		return o, lockerr.Invalid("Outage (%v) must not be negative: Outage(0) fails at once", o.outage)
	case o.maxGiven && o.maxHold <= e.margin(e.cfg.Lease):
		return o, lockerr.Invalid("MaxHold (%v) must be longer than the safety margin (%v)", o.maxHold, e.margin(e.cfg.Lease))
	case o.minGiven && o.minHold <= 0:
		return o, lockerr.Invalid("MinHold (%v) must be positive", o.minHold)
	case o.minGiven && o.minHold > lock.MaxDuration:
		return o, lockerr.Invalid("MinHold (%v) must be at most 100 years", o.minHold)
	case o.minGiven && o.leaseGiven && o.minHold > o.lease:
		return o, lockerr.Invalid("MinHold (%v) must not exceed Lease (%v)", o.minHold, o.lease)
	case o.minGiven && k == kind.Read:
		return o, lockerr.Invalid("MinHold does not go with a reader: it keeps others out, and a read lock lets other readers in")
	case k == kind.Permit && (m.permits < 1 || m.permits > script.MaxPermits):
		return o, lockerr.Invalid("a number of permits (%d) must be between 1 and %d", m.permits, script.MaxPermits)
	case o.minGiven && k == kind.Permit:
		return o, lockerr.Invalid("MinHold does not go with a PermitSemaphore: it keeps a lock taken, and other permits are there to be had")
	case o.nonReentrant && k == kind.Permit:
		return o, lockerr.Invalid("NonReentrant does not go with a PermitSemaphore, which is never re-entered: each Acquire takes permits of its own")
	case o.ackedGiven && !o.acked.valid():
		return o, lockerr.Invalid("Acked (%d) must be a number of replicas up to %d, AllReplicas or MajorityOfReplicas", int(o.acked), maxReplicas)
	case o.backoffGiven && !k.Polls():
		return o, lockerr.Invalid("Backoff(%v) is for a SpinMutex: no other lock polls", o.backoff)
	case o.backoffGiven && (o.backoff.First < time.Millisecond || o.backoff.Most < o.backoff.First || o.backoff.Most > time.Second):
		return o, lockerr.Invalid("Backoff(%v) must go up, and be within 1ms and 1s", o.backoff)
	case o.minGiven && !o.leaseGiven && o.maxGiven && o.minHold > o.maxHold:
		return o, lockerr.Invalid("MinHold (%v) must not exceed MaxHold (%v)", o.minHold, o.maxHold)
	}
	if o.wait > lock.MaxDuration {
		o.waitGiven = false
	}
	if o.outage > lock.MaxDuration {
		o.outageGiven = false
	}
	if o.maxHold > lock.MaxDuration {
		o.maxHold = 0
	}
	return o, nil
}

// bounds are what Wait and Outage say of something that needs so many of its servers.
func (o *options) bounds(need int) driver.Bounds {
	b := driver.Bounds{Late: lockerr.ErrWaited, HasOutage: o.outageGiven, Outage: o.outage, Need: need}
	if o.waitGiven {
		b.Wait = o.wait
	}
	return b
}

// margin is the safety margin of a lease.
func (e *Engine) margin(lease time.Duration) time.Duration { return e.table.Lock.Margin(lease) }

// maxHandOvers bounds how often a lock is handed over before it is released.
const maxHandOvers = 10_000

// lockConfig is what the core needs of a Config.
func (c *Config) lockConfig() lock.Config {
	handOvers := uint16(maxHandOvers)
	if c.HandOverTime < time.Millisecond { // the core counts milliseconds: a turn would last until the next one
		handOvers = 0
	}
	return lock.Config{
		Lease: c.Lease, CommandTimeout: c.CommandTimeout, AckTimeout: c.AckTimeout,
		Replicas: lock.Acks(c.Replicas), FixedMargin: c.Margin,
		Room:      c.FairWaitTimeout,
		HandOvers: handOvers, HandOverFor: min(c.HandOverTime, time.Hour),
	}
}

// Replicas says how many replicas of the primary must have a lock before it counts as
// held: a number, AllReplicas or MajorityOfReplicas. Zero means none: then replication
// is asynchronous, and a failover may forget a lock that is held. See Acked.
type Replicas int

const (
	// AllReplicas means every replica, and at least one. A replica that is away counts until the
	// deployment itself has dropped it (docs/durability.md says how). So whichever replica is
	// promoted has the lock. While a replica is away, no lock is granted or renewed.
	AllReplicas = Replicas(resp.AllReplicas)
	// MajorityOfReplicas means more than half of them. That is enough if the primary dies and, of
	// more than half of the replicas, the one with the most data is promoted. It is not enough for
	// a failover on command, which promotes one replica while the primary keeps serving: with three
	// replicas, the other two are still a majority.
	MajorityOfReplicas = Replicas(resp.MajorityOfReplicas)
)

// maxReplicas bounds a number; it is far beyond what a primary can feed.
const maxReplicas = 1000

// maxAckTimeout bounds Config.AckTimeout: for as long a durable connection may stand
// still.
const maxAckTimeout = time.Hour

func (r Replicas) valid() bool { return r >= MajorityOfReplicas && r <= maxReplicas }

// replicasOf reads the setting of a URL.
func replicasOf(text string) (Replicas, bool) {
	switch text {
	case "all":
		return AllReplicas, true
	case "majority":
		return MajorityOfReplicas, true
	}
	n, err := strconv.Atoi(text)
	return Replicas(n), err == nil && n >= 0 && Replicas(n).valid()
}

// Acked makes a grant count only once that many replicas have acknowledged it. The same holds for
// every renewal, re-entry and Extend: only acknowledged ones move Hold.ValidUntil. If too few
// replicas acknowledge within Config.AckTimeout, the lock is given back and the error is an
// *AckError. Acked overrides Config.Replicas; Acked(0) asks for none. A re-entry without it
// inherits that of the outer hold.
//
// The cost is a round trip to the slowest of these replicas, shared by all operations
// that wait at the same time. These operations have connections of their own, made at
// first use (at once with Config.Replicas), so other operations never wait behind them.
//
// Acked closes the hole that asynchronous replication leaves: an old primary that
// cannot reach its replicas grants and renews no such lock. A number smaller than that
// of all replicas leaves part of the hole open, because a replica that did not
// acknowledge may be promoted; in return, locks are granted while a replica is away.
func Acked(r Replicas) Option {
	return option[Replicas]{"Acked", r, func(o *options, r Replicas) { o.acked, o.ackedGiven = r, true }}
}

// AckError says that too few replicas acknowledged: the lock was granted and given
// back, or a lease was not extended. It Is ErrNotAcked.
type AckError struct {
	// Name is the lock's name as the caller gave it.
	Name string
	// Acked is how many replicas acknowledged within Config.AckTimeout, Wanted is how
	// many had to. Pawl does not wait for more than are attached.
	Acked, Wanted int
	// Away are the addresses of replicas that the deployment counts but that are not
	// attached to the primary, as the servers know each other. It is nil if there are
	// none, or if that cannot be determined.
	Away []string
	// Cause is why the number is not known (then Acked is 0): the connection was lost,
	// a right is missing, or the deployment has not said yet how many replicas there
	// are. Otherwise it is nil.
	Cause error

	waited time.Duration
	what   string // "": a lock
}

func (e *AckError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "engine: %s %q: %d of %d replicas acknowledged (AckTimeout %v)", cmp.Or(e.what, "lock"), lockerr.Shorten(e.Name), e.Acked, e.Wanted, e.waited)
	switch {
	case e.Cause != nil:
		fmt.Fprintf(&s, ": %v", e.Cause)
	case len(e.Away) > 0:
		fmt.Fprintf(&s, "; away: %s; bring them back, have the deployment forget them, or ask for a number of replicas", strings.Join(e.Away, ", "))
	default:
		s.WriteString("; see that they are attached and keep up, or ask for fewer")
	}
	return s.String()
}

// said is the text without the lock's name, for an error that has it.
func (e *AckError) said() string {
	_, text, _ := strings.Cut(e.Error(), fmt.Sprintf("%q: ", lockerr.Shorten(e.Name)))
	return text
}

// Is makes the error match ErrNotAcked.
func (e *AckError) Is(target error) bool { return target == ErrNotAcked }

// Unwrap returns the Cause.
func (e *AckError) Unwrap() error { return e.Cause }

// ofName sets the name of an AckError, which is made before that is known; it changes no other error.
func ofName(name string, err error) error {
	if ack, ok := err.(*AckError); ok && ack.Name == "" {
		ack.Name = name
	}
	return err
}

// String returns "all", "majority" or the number.
func (r Replicas) String() string {
	switch r {
	case AllReplicas:
		return "all"
	case MajorityOfReplicas:
		return "majority"
	}
	return fmt.Sprint(int(r))
}

// ForceOption narrows ForceUnlock.
type ForceOption interface{ applyForce(*forceOptions) }

type forceOptions struct {
	holder  string
	invalid error
}

// IfHolder makes ForceUnlock act only if that owner, as State shows it, holds the lock. So you
// cannot take the lock from an owner that got it after you looked. Holds of one process that hand
// the lock over to each other are one owner (see Config.HandOverTime): the current holder among
// them loses it. The plain readers of a process are one owner, too: all of them lose it. An empty
// id is ErrInvalid.
func IfHolder(id string) ForceOption { return ifHolder(id) }

type ifHolder string

func (h ifHolder) applyForce(o *forceOptions) {
	if o.holder = string(h); h == "" { // the script takes that for any holder
		o.invalid = lockerr.Invalid("IfHolder must name an owner, as State shows it; without IfHolder, ForceUnlock takes the lock from any owner")
	}
}

func (h ifHolder) String() string               { return fmt.Sprintf("IfHolder(%q)", string(h)) }
func (h ifHolder) Format(f fmt.State, c rune)   { redact.Format(f, c, h.String()) }
func (h ifHolder) MarshalText() ([]byte, error) { return []byte(h.String()), nil }
