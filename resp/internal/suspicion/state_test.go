package suspicion

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// The steps of a suspicion, each at a time after the beginning.
func TestState_Refusals_LeadToMeasures(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	type step struct {
		at     time.Duration
		doubt  topology.Doubt // NoDoubt: a new connection has answered
		served bool
		sent   time.Duration
		want   Measure
		words  string
	}
	self := func(at, sent time.Duration, want Measure) step {
		return step{at, topology.AtOnce, false, sent, want, "MOVED 1 self"}
	}
	passing := func(at time.Duration, want Measure) step {
		return step{at, topology.IfItLasts, false, at, want, "CLUSTERDOWN"}
	}
	moved := func(at time.Duration, words string, want Measure) step {
		return step{at, topology.IfItLasts, false, at, want, words}
	}
	certain := func(at time.Duration) step { return step{at, topology.Certain, false, at, Replace, "NOAUTH"} }
	answer := func(at time.Duration, served bool) step { return step{at: at, served: served} }
	for name, steps := range map[string][]step{
		"sent to itself, and a new connection is served": {
			self(0, 0, Ask), self(1*ms, 0, Keep), answer(5*ms, true), self(6*ms, 4*ms, Keep), self(20*ms, 19*ms, Replace), self(21*ms, 20*ms, Keep)},
		"sent to itself everywhere": {
			self(0, 0, Ask), answer(5*ms, false), self(20*ms, 20*ms, Keep), self(999*ms, 999*ms, Keep), self(1000*ms, 1000*ms, Ask)},
		"a failover that is short": {
			passing(0, Keep), passing(600*ms, Keep), passing(999*ms, Keep)},
		"a failover that lasts": {
			passing(0, Keep), passing(1100*ms, Ask), passing(1500*ms, Keep), answer(1600*ms, false), passing(2200*ms, Keep), passing(2700*ms, Ask)},
		"a failover that ended while a new connection asked": {
			passing(0, Keep), passing(1000*ms, Ask), answer(1200*ms, true), self(1201*ms, 1199*ms, Keep)},
		"refusals that have nothing to do with each other": {
			passing(0, Keep), passing(6000*ms, Keep), passing(12000*ms, Keep)},
		"slots that leave, one of which comes back": {
			moved(0, "MOVED 1 b:1", Keep), moved(1000*ms, "MOVED 2 b:1", Ask), answer(1005*ms, true),
			moved(1100*ms, "MOVED 3 b:1", Keep), moved(1200*ms, "MOVED 4 b:1", Keep), moved(1300*ms, "MOVED 2 b:1", Replace)},
		"served long ago": {
			self(0, 0, Ask), answer(1*ms, true), passing(6000*ms, Keep)},
		"a question that takes long is the only one": {
			self(0, 0, Ask), self(4000*ms, 4000*ms, Keep), self(9000*ms, 9000*ms, Keep), answer(9001*ms, false), self(9002*ms, 9002*ms, Ask)},
		"the connection itself is refused": {
			certain(0), self(1*ms, 1*ms, Ask), certain(2 * ms), answer(3*ms, true), certain(4 * ms)},
	} {
		var s State
		began := clock.NewFake().Now()
		for i, step := range steps {
			now := began.Add(step.at)
			if step.doubt == topology.NoDoubt {
				s.Answered(step.served, now)
			} else if got := s.Refused(step.doubt, step.words, began.Add(step.sent), now); got != step.want {
				t.Errorf("%s: step %d, after %v: %d, want %d", name, i, step.at, got, step.want)
			}
		}
	}
}
