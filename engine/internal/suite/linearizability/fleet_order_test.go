//go:build linux || darwin

package linearizability

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// fencedOp is a step of the model of a mutex with fencing tokens.
type fencedOp struct {
	hold    string
	acquire bool
	token   int64 // 0: it has none
}

// fencedState is who has the mutex, and the highest token that was given out.
type fencedState struct {
	hold  string // "": nobody
	token int64
}

// fencedModel is such a mutex in this state: an acquire is legal if nobody has it and the token rises;
// its end, by Unlock or by loss, only while that hold has it.
func fencedModel(start fencedState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(fencedState), input.(fencedOp)
			if !op.acquire {
				return s.hold == op.hold, fencedState{"", s.token}
			}
			rises := op.token == 0 || op.token > s.token
			return s.hold == "" && rises, fencedState{op.hold, max(s.token, op.token)}
		},
	}
}

// partLength is how many holds are judged at once: what porcupine remembers grows with the square.
const partLength = 100

// wantOrder: the grants and ends of a name, whose holds are in the order in which they were granted, are those
// of one mutex with tokens. It returns in how many parts it has judged them.
//
// The history is cut where a hold was certain, at the instant at which it had been granted. All others that were
// granted later acquired the lock after that, even if they were asked for before:
//
//	A asked, B asked, A granted | cut: A has it | A unlocks, B granted
//
// What a killed process had asked for may have been granted or not. It is left out: that allows most, as a grant
// to a dead process only keeps others out.
func wantOrder(t testing.TB, holds []*operation) (parts int) {
	t.Helper()
	for first := 0; first < len(holds); parts++ {
		end := min(first+partLength, len(holds))
		for end < len(holds) && holds[end-1].end() <= holds[end-1].granted {
			end++ // it was over before it was known
		}
		wantOrderOf(t, holds[first:end], first > 0)
		if end == len(holds) {
			return parts + 1
		}
		first = end - 1
	}
	return parts
}

// wantOrderOf judges a part of a history. The last hold is only granted in it. The first one has
// been granted in the part before, if there is one.
func wantOrderOf(t testing.TB, holds []*operation, continued bool) {
	t.Helper()
	var ops []porcupine.Operation
	var start fencedState
	var begin int64
	if continued {
		start, begin = fencedState{holds[0].id, holds[0].token}, holds[0].granted
	}
	for i, o := range holds {
		if i > 0 || !continued {
			ops = append(ops, porcupine.Operation{
				ClientId: i, Input: fencedOp{o.id, true, o.token}, Call: max(o.asked, begin), Return: o.granted,
			})
		}
		if i == len(holds)-1 {
			break
		}
		end := porcupine.Operation{ClientId: i, Input: fencedOp{o.id, false, 0}, Call: max(o.end(), begin), Return: math.MaxInt64}
		if o.result == "ok" {
			end.Call, end.Return = o.unlocking, o.unlocked
		}
		ops = append(ops, end)
	}
	switch porcupine.CheckOperationsTimeout(fencedModel(start), ops, testkit.Limit) {
	case porcupine.Illegal:
		t.Errorf("this is not the history of a mutex: %d holds from\n%v\nto\n%v", len(holds), holds[0], holds[len(holds)-1])
	case porcupine.Unknown:
		t.Errorf("a part of %d holds could not be judged within %v", len(holds), testkit.Limit)
	}
}
