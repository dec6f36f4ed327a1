package resp

// Acks says how many replicas of a primary shall acknowledge a write: so many, or
// one of the names below.
type Acks int16

const (
	// AllReplicas are all that are attached to the primary at that moment.
	AllReplicas Acks = -1
	// MajorityOfReplicas are more than half of them.
	MajorityOfReplicas Acks = -2
)

// Ack is what replicas have acknowledged: Acked of the Wanted ones. Err says why that is
// not known; then Acked is 0.
type Ack struct {
	Acked, Wanted int
	Err           error
}

// Missing reports whether too few have acknowledged. Of nil nobody was asked.
func (a *Ack) Missing() bool { return a != nil && (a.Err != nil || a.Acked < a.Wanted) }

// Count returns Acked, 0 of nil.
func (a *Ack) Count() int {
	if a == nil {
		return 0
	}
	return a.Acked
}

// of returns how many that is if so many are attached. It is at least one: with
// nobody there, "all" is not fulfilled.
func (a Acks) of(attached int) int {
	switch a {
	case AllReplicas:
		return max(1, attached)
	case MajorityOfReplicas:
		return max(0, attached)/2 + 1
	}
	return int(a)
}

// worth returns how many are worth waiting for: no more than are attached. If it is not
// known how many are (-1), "all" is not worth a timeout before it is.
func (a Acks) worth(attached int) int {
	if attached < 0 {
		return max(0, int(a))
	}
	return min(a.of(attached), attached)
}
