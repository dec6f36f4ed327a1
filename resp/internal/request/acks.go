package request

// Acks says how many replicas of a primary must acknowledge a write: a number, or one
// of the constants below.
type Acks int16

const (
	// AllReplicas means every replica: those that are attached to the primary, and those
	// that are away, as long as the deployment has not dropped them.
	AllReplicas Acks = -1
	// MajorityOfReplicas means more than half of them.
	MajorityOfReplicas Acks = -2
)

// Ack says how many replicas have acknowledged (Acked) and how many had to (Wanted). If
// that is not known, Err says why, and Acked is 0. If too few have acknowledged, Away has
// the addresses of replicas that are not attached to the primary, as far as these can be
// determined.
type Ack struct {
	Acked, Wanted int
	Away          []string
	Err           error
}

// Missing reports whether too few have acknowledged. It is false for nil: then none
// were asked.
func (a *Ack) Missing() bool { return a != nil && (a.Err != nil || a.Acked < a.Wanted) }

// Count returns Acked, and 0 for nil.
func (a *Ack) Count() int {
	if a == nil {
		return 0
	}
	return a.Acked
}

// Of returns how many that is of so many replicas. It is at least one: with nobody
// there, "all" is not fulfilled.
func (a Acks) Of(replicas int) int {
	switch a {
	case AllReplicas:
		return max(1, replicas)
	case MajorityOfReplicas:
		return replicas/2 + 1
	}
	return int(a)
}
