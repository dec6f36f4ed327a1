package quorum

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func TestCount_Result(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		count Count
		want  Result
	}{
		{Count{Members: 1, Pending: 1}, Pending},
		{Count{Members: 1, Granted: 1}, Won},
		{Count{Members: 1, Held: 1}, Lost},
		{Count{Members: 2, Granted: 1, Pending: 1}, Pending},
		{Count{Members: 2, Granted: 1, Held: 1}, Lost},
		{Count{Members: 3, Granted: 2}, Won},
		{Count{Members: 3, Granted: 2, Refused: 1}, Won},
		{Count{Members: 3, Granted: 1, Held: 1, Pending: 1}, Pending},
		{Count{Members: 3, Granted: 1, Held: 1}, Lost}, // the third is silent
		{Count{Members: 3, Held: 2, Pending: 1}, Lost},
		{Count{Members: 3, Unavailable: 1, TooLate: 1, Pending: 1}, Lost},
		{Count{Members: 3, Unavailable: 2, Pending: 1}, Lost},
		{Count{Members: 3, Refused: 1, Pending: 2}, Pending},
		{Count{Members: 3, Refused: 2, Pending: 1}, Denied},
		{Count{Members: 3, Refused: 1, Held: 1, Granted: 1}, Lost},
		{Count{Members: 4, Granted: 2, Pending: 2}, Pending},
		{Count{Members: 4, Granted: 2, Held: 2}, Lost},
		{Count{Members: 5, Granted: 2, Held: 2, Pending: 1}, Pending},
		{Count{Members: 5, Granted: 3}, Won},
		{Count{Members: 5, Granted: 2, Refused: 3}, Denied},
		// All are needed.
		{Count{Members: 3, Need: 3, Granted: 2, Pending: 1}, Pending},
		{Count{Members: 3, Need: 3, Granted: 2, Held: 1}, Lost},
		{Count{Members: 3, Need: 3, Granted: 1, Held: 1, Pending: 1}, Lost},
		{Count{Members: 3, Need: 3, Refused: 1, Pending: 2}, Denied},
		{Count{Members: 3, Need: 3, Granted: 3}, Won},
		// Of those that have it, as many are to be extended or released.
		{Count{Members: 2, Need: 2, Granted: 1}, Lost},
	} {
		if c.count.Need == 0 {
			c.count.Need = Majority.Need(c.count.Members)
		}
		if got := c.count.Result(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.count, got, c.want)
		}
	}
}

func TestCount_Cause(t *testing.T) {
	t.Parallel()
	late, user := &lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true}, &lockerr.Cancel{Cause: errors.New("enough")}
	said := errors.New("of another type")
	for _, c := range []struct {
		count Count
		try   bool
		stop  *lockerr.Cancel
		want  error
	}{
		{Count{Members: 3, Held: 2, Pending: 1}, true, nil, lockerr.ErrHeld},
		{Count{Members: 3, Held: 2, Granted: 1}, true, nil, lockerr.ErrHeld},
		{Count{Members: 3, Unavailable: 2, Granted: 1}, true, nil, lockerr.ErrUnavailable},
		{Count{Members: 3, Unavailable: 1, Held: 1, Granted: 1}, true, nil, lockerr.ErrUnavailable},
		{Count{Members: 3, Unavailable: 1, Refused: 1}, true, nil, lockerr.ErrUnavailable},
		{Count{Members: 3, Refused: 1, Held: 1, Granted: 1}, true, nil, said},
		{Count{Members: 3, TooLate: 1, Held: 1, Granted: 1}, true, nil, said},
		{Count{Members: 3, Refused: 2}, false, nil, said},
		{Count{Members: 3, TooLate: 2, Held: 1}, false, nil, said},
		// Of a Lock, what was given back was given back because of the owner of another.
		{Count{Members: 3, Held: 1, Refused: 1}, false, user, lockerr.ErrHeld},
		{Count{Members: 3, Held: 1, Refused: 1}, true, user, lockerr.ErrEarly},
		{Count{Members: 5, Held: 1, Unavailable: 1}, false, late, lockerr.ErrHeld},
		{Count{Members: 3, Pending: 3}, false, user, lockerr.ErrEarly},
		{Count{Members: 3, Held: 1, Pending: 2}, false, user, lockerr.ErrEarly},
		{Count{Members: 3, Pending: 3}, false, late, lockerr.ErrUnavailable},
		{Count{Members: 3, Granted: 1, Pending: 2}, false, late, lockerr.ErrUnavailable},
		{Count{Members: 3, Held: 2, Pending: 1}, false, late, lockerr.ErrHeld},
		{Count{Members: 3, Held: 3}, false, &lockerr.Cancel{Away: errors.New("down")}, lockerr.ErrUnavailable},
		{Count{Members: 3, Held: 3}, false, &lockerr.Cancel{Cause: lockerr.ErrClosed}, lockerr.ErrClosed},
	} {
		c.count.Need = Majority.Need(c.count.Members)
		if got := c.count.Cause(c.try, c.stop, said); got != c.want {
			t.Errorf("%+v, TryLock %t, %+v: %v, want %v", c.count, c.try, c.stop, got, c.want)
		}
	}
}

func TestPolicy_Need(t *testing.T) {
	t.Parallel()
	for n, majority := range []int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4} {
		if n > 0 && (Majority.Need(n) != majority || All.Need(n) != n) {
			t.Errorf("of %d: %d are a majority, %d are all", n, Majority.Need(n), All.Need(n))
		}
	}
}

// A majority reaches the value, and none a greater one; or all do.
func TestReached_IsTheGreatestValueThatEnoughReach(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		values := make([]int, 1+r.IntN(7))
		for i := range values {
			values[i] = r.IntN(9)
		}
		said := fmt.Sprintf("seed %d: %v", seed, values)
		reach := func(v int) (n int) {
			for _, one := range values {
				if one >= v {
					n++
				}
			}
			return n
		}
		for _, p := range []Policy{Majority, All} {
			need := p.Need(len(values))
			if got := Reached(slices.Clone(values), need); reach(got) < need || reach(got+1) >= need {
				t.Errorf("%s: %d reach %d", said, need, got)
			}
		}
	}
}
