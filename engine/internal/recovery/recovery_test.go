package recovery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
)

// The lane was up, or came up before anybody could see what stalled: it is looked at.
func TestANameThatStallsIsLookedAt(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.add("a1")
	l.advance(recheckAfter - 1)
	if got := l.took(); got != "" {
		t.Errorf("%s went on at once", got)
	}
	l.advance(1)
	if got := l.took(); got != "a1" {
		t.Errorf("%q went on", got)
	}
	l.v.Answered(l.pace, lock.Replied.Answered())
	l.wantRest()
}

// A lane goes on when it comes up: not before, and not another.
func TestALaneThatComesUpGoesOn(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.lanes['a'].up, l.lanes['b'].up = false, false
	l.add("a1", "a2!", "a3", "b1")
	l.advance(time.Minute)
	if got := l.took(); got != "" {
		t.Errorf("%s went on over a dead lane", got)
	}
	l.lanes['a'].up = true
	l.v.Up(l.lanes['a'])
	if got := l.took(); got != "a2! a1 a3" { // the urgent one first; the lab shuffles by reversing
		t.Errorf("%q went on", got)
	}
	if v := l.v.View(); len(v.Lanes) != 2 {
		t.Errorf("%+v", v)
	}
}

// A kick that finds nothing ends it: all went on before.
func TestALaneThatHasNothingToDoIsForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.add("a1")
	l.v.Up(l.lanes['a'])
	if got := l.took(); got != "a1" {
		t.Errorf("%q went on", got)
	}
	l.v.Answered(l.pace, lock.Replied.Answered())
	if len(l.v.mu.lanes) != 1 {
		t.Error("it is forgotten, and its kick is armed")
	}
	l.advance(recheckAfter)
	l.wantRest()
}

// Tries are sent as answers to others come, and no more than so many are out.
func TestAnswersMakeRoom(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	const n = maxTries + 10
	for i := range n {
		l.add(fmt.Sprint("a", i))
	}
	l.advance(recheckAfter)
	if got := len(strings.Fields(l.took())); got != maxTries {
		t.Fatalf("%d went on", got)
	}
	l.v.Answered(l.pace, lock.Replied.Answered())
	if got := len(strings.Fields(l.took())); got != 1 {
		t.Errorf("%d went on after an answer", got)
	}
	// One that was not sent does not have others sent at once: nobody knows the lane works.
	l.v.Answered(l.pace, lock.NotSent.Answered())
	if got := l.took(); got != "" {
		t.Errorf("%s went on over a lane that does not work", got)
	}
	l.advance(recheckAfter)
	if got := len(strings.Fields(l.took())); got != 1 {
		t.Errorf("%d went on after a moment", got)
	}
	for range n - 2 {
		l.v.Answered(l.pace, lock.RetryLater.Answered())
	}
	l.wantRest()
}

// The lane is down, whatever it says: going on at once would spin.
func TestANameThatStallsAgainWaitsForAMoment(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.went["a2"] = stalledAgain
	l.add("a1", "a2")
	l.advance(recheckAfter)
	if got := l.took(); got != "a2" {
		t.Errorf("%q went on", got)
	}
	l.v.Answered(l.pace, lock.NotSent.Answered()) // as its command is
	delete(l.went, "a2")
	l.advance(recheckAfter)
	if got := l.took(); got != "a2 a1" {
		t.Errorf("%q went on", got)
	}
}

// A name that has nothing to send holds up nobody.
func TestANameWithNothingToSendIsPassedOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.went["a1"], l.went["a2"] = nothingToSend, nothingToSend
	l.add("a0", "a1", "a2")
	l.advance(recheckAfter)
	if got := l.took(); got != "a2 a1 a0" {
		t.Errorf("%q went on", got)
	}
	l.advance(time.Second) // nothing was sent for two of them, so the lane is looked at
	l.v.Answered(l.pace, lock.Replied.Answered())
	l.wantRest()
}

// While the engine closes, names hear of it though their lane is down; past releases stay,
// for a Shutdown may wait for long, and the lane may come up.
func TestClosingGoesOnWithoutALane(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.lanes['a'].up = false
	l.closing = true
	l.add("a1", "a2!")
	l.v.Resend([]Release{{Name: "a3"}}, 0)
	l.advance(time.Second)
	if got, past := l.took(), l.sent(); got != "a2! a1" || past != "" {
		t.Errorf("%q and %q went on", got, past)
	}
	l.lanes['a'].up = true
	l.v.Up(l.lanes['a'])
	if past := l.sent(); past != "a3" {
		t.Errorf("%q was sent", past)
	}
}

// The lane of a name changes with the routes.
func TestStalledNamesFollowTheRoutes(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.lanes['a'].up = false
	l.add("a1", "a2!", "b1")
	l.v.Resend([]Release{{Name: "a3"}}, 0)
	l.advance(time.Second)
	if got := l.took(); got != "b1" {
		t.Errorf("%q went on", got)
	}
	l.v.Answered(l.pace, lock.Replied.Answered())
	l.lanes['a'] = l.lanes['b']
	l.v.Rerouted()
	l.advance(recheckAfter)
	if got, past := l.took(), l.sent(); got != "a2! a1" || past != "a3" {
		t.Errorf("%q and %q went on", got, past)
	}
	if v := l.v.View(); len(v.Lanes) != 1 || v.Lanes[0].Lane != l.lanes['b'] || v.Lanes[0].Out != 3 {
		t.Errorf("%+v", v.Lanes)
	}
}

// Names that nobody wants any more do not pile up in an outage, nor come back.
func TestDroppedNamesAreForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	l.lanes['a'].up, l.lanes['b'].up = false, false
	kept := l.add("a-kept")[0]
	most := 0
	for i := range 10 * sweepAt {
		for _, r := range l.add(fmt.Sprint("a", i)) {
			l.v.Drop(r)
		}
		for _, lane := range l.v.View().Lanes {
			most = max(most, len(lane.Tries))
		}
	}
	if most > sweepAt+1 {
		t.Errorf("%d names were listed", most)
	}
	l.advance(time.Second)
	gone := l.add("b1!")[0]
	l.advance(time.Second)
	l.v.Drop(gone)
	l.v.Add(gone) // it had stalled before it was dropped, and was on its way here
	l.v.Drop(kept)
	for range sweepAt {
		l.v.Drop(&labName{})
	}
	l.wantRest()
}
