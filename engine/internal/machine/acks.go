package machine

import "github.com/pawl-lock/pawl/engine/internal/reason"

// Acks is how many replicas must have a grant: a number, or one of those below.
type Acks int16

// See engine.AllReplicas and engine.MajorityOfReplicas.
const (
	AllReplicas        Acks = -1
	MajorityOfReplicas Acks = -2
)

// Ack is what replicas have acknowledged.
type Ack interface {
	// Missing reports whether too few have.
	Missing() bool
	// Count returns how many have.
	Count() int
}

// covers reports whether a renewal that a acknowledges is good enough for b, however many
// replicas there are.
func covers(a, b Acks) bool {
	switch {
	case b == 0 || a == b:
		return true
	case a == AllReplicas:
		return b == MajorityOfReplicas || b == 1
	case a == MajorityOfReplicas:
		return b == 1
	}
	return b > 0 && b <= a
}

// settleReplicas is called when it is clear which hold a re-enters, if any: how many
// replicas does it want, if the caller did not say? An error if its hold would be
// renewed, with its parent's lease, for fewer.
func (a *Request) settleReplicas() error {
	switch {
	case a.Parent == nil && !a.AckedGiven:
		a.Want = a.res.Port.Config().Replicas
	case a.Parent == nil:
	case !a.AckedGiven:
		a.Want = a.Parent.Root().Want
	case a.Lease == 0 && !covers(a.Parent.Root().Want, a.Want):
		return reason.Invalid("Acked (%d) asks for more replicas than the hold that is re-entered: its lease is renewed for both; ask for them there, or give this one a Lease", a.Want)
	}
	return nil
}
