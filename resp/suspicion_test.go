package resp

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// The steps of a suspicion, each at a time after the beginning.
func TestSuspicion_Refusals_LeadToMeasures(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	type step struct {
		at     time.Duration
		doubt  topology.Doubt // NoDoubt: a new connection has answered
		served bool
		sent   time.Duration
		want   measure
	}
	self := func(at, sent time.Duration, want measure) step { return step{at, topology.AtOnce, false, sent, want} }
	passing := func(at time.Duration, want measure) step { return step{at, topology.IfItLasts, false, at, want} }
	certain := func(at time.Duration) step { return step{at, topology.Certain, false, at, replaceAll} }
	answer := func(at time.Duration, served bool) step { return step{at: at, served: served} }
	for name, steps := range map[string][]step{
		"sent to itself, and a new connection is served": {
			self(0, 0, askAnother), self(1*ms, 0, keep), answer(5*ms, true), self(6*ms, 4*ms, keep), self(20*ms, 19*ms, replaceAll), self(21*ms, 20*ms, keep)},
		"sent to itself everywhere": {
			self(0, 0, askAnother), answer(5*ms, false), self(20*ms, 20*ms, keep), self(999*ms, 999*ms, keep), self(1000*ms, 1000*ms, askAnother)},
		"a failover that is short": {
			passing(0, keep), passing(600*ms, keep), passing(999*ms, keep)},
		"a failover that lasts": {
			passing(0, keep), passing(1100*ms, askAnother), passing(1500*ms, keep), answer(1600*ms, false), passing(2200*ms, keep), passing(2700*ms, askAnother)},
		"a failover that ended while a new connection asked": {
			passing(0, keep), passing(1000*ms, askAnother), answer(1200*ms, true), self(1201*ms, 1199*ms, keep)},
		"refusals that have nothing to do with each other": {
			passing(0, keep), passing(6000*ms, keep), passing(12000*ms, keep)},
		"served long ago": {
			self(0, 0, askAnother), answer(1*ms, true), passing(6000*ms, keep)},
		"a question that takes long is the only one": {
			self(0, 0, askAnother), self(4000*ms, 4000*ms, keep), self(9000*ms, 9000*ms, keep), answer(9001*ms, false), self(9002*ms, 9002*ms, askAnother)},
		"the connection itself is refused": {
			certain(0), self(1*ms, 1*ms, askAnother), certain(2*ms), answer(3*ms, true), certain(4*ms)},
	} {
		var s suspicion
		began := clock.NewFake().Now()
		for i, step := range steps {
			now := began.Add(step.at)
			if step.doubt == topology.NoDoubt {
				s.answered(step.served, now)
			} else if got := s.heard(step.doubt, began.Add(step.sent), now); got != step.want {
				t.Errorf("%s: step %d, after %v: %d, want %d", name, i, step.at, got, step.want)
			}
		}
	}
}
