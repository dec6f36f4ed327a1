package quorum

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// The clock is authoritative: it is over when fewer than a majority are in time, though no hold
// has told.
func TestHold_TheClockSaysWhetherItIsHeld(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 3)
	for i, h := range l.holds {
		h.until = l.now.Add(time.Duration(i+1) * time.Second)
	}
	end := l.now.Add(2 * time.Second)
	l.must(l.Until() == end, "it ends in %v", l.Until().Sub(l.now))
	l.now = end - 1
	certain, expired := l.Check()
	l.must(certain && len(expired) == 1, "certain %t, %d expired", certain, len(expired))
	l.now = end
	certain, expired = l.Check()
	l.must(!certain && len(expired) == 2, "certain %t, %d expired", certain, len(expired))
	l.Expired([]End{endOf(0, errors.New("first"), lock.NotRenewed), endOf(1, errors.New("second"), lock.NotRenewed)})
	why := l.Ending
	loss := why.(*lossError).Loss
	l.must(loss.Left == 1 && len(loss.Each) == 2 && loss.Each[0].Why == nil, "%+v", loss)
	var do Ready
	votes, ending := l.Release(&do)
	l.must(ending == why && len(votes) == 0 && len(do.Give) == 3 && l.Stage == Over, "%v, %d released, %d given", ending, len(votes), len(do.Give))
	_, ending = l.Release(&do)
	l.must(ending == why, "unlocked again: %v", ending)
}

func TestHold_Released_HasTheVotes(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 3)
	votes, why := l.Release(new(Ready))
	l.must(why == lockerr.ErrReleased && len(votes) == 3 && l.Stage == Over, "released: %v, %d votes", why, len(votes))
	same, again := l.Release(new(Ready))
	l.must(again == why && slices.Equal(votes, same), "released again: %v, %d votes", again, len(same))
	for i := range 3 {
		l.leave(i, 0, l.now) // their ends come then
	}
	l.did(nothing)
}
