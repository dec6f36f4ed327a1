package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// Replicas says how many replicas of the primary must have a lock before it counts as
// held: a number, or AllReplicas or MajorityOfReplicas. Zero is none: replication is
// asynchronous then, and a failover may forget the lock while it is held. See Acked.
type Replicas int

const (
	// AllReplicas are all that are attached to the primary at that moment, and at
	// least one. Whichever of them is promoted has the lock.
	AllReplicas = Replicas(resp.AllReplicas)
	// MajorityOfReplicas are more than half of them. It is enough if a failover only
	// promotes the replica that has most, and sees more than half of them.
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

// Acked makes the grant count only once that many replicas have acknowledged it, and
// likewise every renewal, re-entry and Extend of the hold: Hold.ValidUntil moves on
// with their acknowledgements only. If too few acknowledge within Config.AckTimeout,
// the lock is given back and the error is an *AckError. It overrides Config.Replicas;
// Acked(0) asks for none. A re-entry without it does as the hold that it re-enters.
//
// The cost is a round trip to the slowest of these replicas, shared with whatever
// else is waiting for one. Such operations have connections of their own, so that
// others never wait behind them; the first use of them connects.
//
// It closes the hole of asynchronous replication, not all: an old primary that cannot
// reach its replicas grants and renews no such lock, but replicas that were not
// attached when the lock was taken know nothing of it. For that, say how many there
// must be: Acked(2) with two replicas fails while one is away, AllReplicas does not.
func Acked(r Replicas) Option {
	return optionFunc(func(o *options) { o.acked, o.ackedGiven = r, true })
}

// AckError says that too few replicas acknowledged: the lock was granted and given
// back, or a lease was not extended. It Is ErrNotAcked.
type AckError struct {
	// Name is the lock's name as the caller gave it.
	Name string
	// Acked replicas acknowledged within Config.AckTimeout, of the Wanted ones. It is not
	// waited for more than are attached.
	Acked, Wanted int
	// Cause is why the number is not known (Acked is 0 then): the connection was lost,
	// or the server refuses WAIT or ROLE. Else nil.
	Cause error

	waited time.Duration
}

func (e *AckError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "engine: lock %q: %d of %d replicas acknowledged (AckTimeout %v)", shorten(e.Name), e.Acked, e.Wanted, e.waited)
	if e.Cause != nil {
		fmt.Fprintf(&s, ": %v", e.Cause)
	} else {
		s.WriteString("; see that they are attached and keep up, or ask for fewer")
	}
	return s.String()
}

// Is makes the error match ErrNotAcked.
func (e *AckError) Is(target error) bool { return target == ErrNotAcked }

// Unwrap returns the Cause.
func (e *AckError) Unwrap() error { return e.Cause }

// covers reports whether whoever renews with a does so with b, too, however many
// replicas there are.
func covers(a, b resp.Acks) bool {
	switch {
	case b == 0 || a == b:
		return true
	case a == resp.AllReplicas:
		return b == resp.MajorityOfReplicas || b == 1
	case a == resp.MajorityOfReplicas:
		return b == 1
	}
	return b > 0 && b <= a
}

// settleReplicas is called when it is clear which hold a re-enters, if any: how many
// replicas does it want, if the caller did not say? An error if its hold would be
// renewed, with its parent's lease, for fewer.
func (a *acquisition) settleReplicas() error {
	switch {
	case a.parent == nil && !a.ackedGiven:
		a.want = resp.Acks(a.sh.eng.cfg.Replicas)
	case a.parent == nil:
	case !a.ackedGiven:
		a.want = a.parent.root().member.Want()
	case a.lease == 0 && !covers(a.parent.root().member.Want(), a.want):
		return invalid("Acked (%d) asks for more replicas than the hold that is re-entered: its lease is renewed for both; ask for them there, or give this one a Lease", a.want)
	}
	return nil
}

// ackError is what the user is told of missing acknowledgements.
func (e *Engine) ackError(name string, ack *resp.Ack) error {
	return &AckError{Name: name, Acked: ack.Acked, Wanted: ack.Wanted, Cause: ack.Err, waited: e.cfg.AckTimeout}
}
