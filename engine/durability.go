package engine

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/redact"
	"github.com/pawl-lock/pawl/resp"
)

// Replicas says how many replicas of the primary must have a lock before it counts as
// held: a number, AllReplicas or MajorityOfReplicas. Zero means none: then replication
// is asynchronous, and a failover may forget a lock that is held. See Acked.
type Replicas int

const (
	// AllReplicas means every replica, and at least one. A replica that is away counts
	// until the deployment itself has dropped it (docs/durability.md says how). So no
	// matter which replica is promoted, it has the lock. While a replica is away, no
	// lock is granted or renewed.
	AllReplicas = Replicas(resp.AllReplicas)
	// MajorityOfReplicas means more than half of them. That is enough if the primary
	// dies and, of more than half of the replicas, the one with the most data is
	// promoted. It is not enough for a failover on command, which promotes one replica
	// while the primary goes on: of three replicas the two others are still a majority.
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

// Acked makes a grant count only once that many replicas have acknowledged it. The same
// holds for every renewal, re-entry and Extend: only acknowledged ones move
// Hold.ValidUntil. If too few replicas acknowledge within Config.AckTimeout, the lock
// is given back and the error is an *AckError. Acked overrides Config.Replicas;
// Acked(0) asks for none. A re-entry without it asks for what the outer hold asks for.
//
// The cost is a round trip to the slowest of these replicas, shared by all operations
// that wait at the same time. These operations have connections of their own, made at
// first use (at once with Config.Replicas), so other operations never wait behind them.
//
// Acked closes the hole that asynchronous replication leaves: an old primary that
// cannot reach its replicas grants and renews no such lock. A number smaller than that
// of all replicas leaves part of the hole open, because a replica that did not
// acknowledge may be promoted; in return, locks are granted while a replica is away.
func Acked(r Replicas) Option { return acked(r) }

type acked Replicas

func (r acked) apply(o *options)             { o.acked, o.ackedGiven = Replicas(r), true }
func (r acked) String() string               { return "Acked(" + Replicas(r).String() + ")" }
func (r acked) Format(f fmt.State, c rune)   { redact.Format(f, c, r.String()) }
func (r acked) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

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
	fmt.Fprintf(&s, "engine: %s %q: %d of %d replicas acknowledged (AckTimeout %v)", cmp.Or(e.what, "lock"), reason.Shorten(e.Name), e.Acked, e.Wanted, e.waited)
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
	_, text, _ := strings.Cut(e.Error(), fmt.Sprintf("%q: ", reason.Shorten(e.Name)))
	return text
}

// Is makes the error match ErrNotAcked.
func (e *AckError) Is(target error) bool { return target == ErrNotAcked }

// Unwrap returns the Cause.
func (e *AckError) Unwrap() error { return e.Cause }

// ackError is what the user is told of missing acknowledgements.
func (e *Engine) ackError(what, name string, ack *resp.Ack) error {
	return &AckError{Name: name, Acked: ack.Acked, Wanted: ack.Wanted, Away: ack.Away, Cause: ack.Err, waited: e.cfg.AckTimeout, what: what}
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
