package engine

import (
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/resp"
)

// The machine has numbers of its own for what users and servers name.
func TestTheMachineMeansTheSameByItsNumbers(t *testing.T) {
	t.Parallel()
	for why, want := range map[machine.Loss]LostReason{
		machine.LeaseEnded: LeaseEnded, machine.NotRenewed: NotRenewed, machine.MaxHoldReached: MaxHoldReached,
		machine.GoneOnServer: GoneOnServer, machine.TakenOnServer: TakenOnServer, machine.EngineClosed: EngineClosed,
	} {
		if LostReason(why) != want {
			t.Errorf("%v is %v to users", want, LostReason(why))
		}
	}
	if machine.Losses != len(reasons) {
		t.Errorf("the machine counts %d reasons, there are %d", machine.Losses, len(reasons))
	}
	for acks, want := range map[machine.Acks]resp.Acks{
		machine.AllReplicas: resp.AllReplicas, machine.MajorityOfReplicas: resp.MajorityOfReplicas, maxReplicas: maxReplicas,
	} {
		if resp.Acks(acks) != want {
			t.Errorf("%d replicas are %d to the servers", acks, want)
		}
	}
}
