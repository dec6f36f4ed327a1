package lock

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// One that polls need not sleep as the one before it, which waited for a message. But the one
// before it may have waited for an answer, or for a connection, and been refused nothing yet.
func TestAWaiterThatNobodyHasRefusedLeavesOneThatPolls(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	once, first := l.ask(r, true), l.ask(r, false)
	second := l.askAs(r, polling)
	l.does(func(rd *Ready) { first.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited}, rd) })
	l.reply(r, Outcome{Reply: HeldByOther, TTL: -1})
	if first.err == nil || once.err == nil {
		t.Errorf("they wait still: %+v, %+v", first, once)
	}
	l.is(r, Acquiring)
	l.reply(r, Outcome{})
	if second.hold == nil {
		t.Errorf("%+v", second)
	}
}

// A TryLock waits for nobody: not for a Lock of the same hold either, whose answer is on its way.
func TestATryLockBehindALockOfTheSameHoldIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	h := l.held(r, time.Minute)
	under := func(once bool) *caller {
		c := new(caller)
		c.Init(c)
		c.Parent = &h.Hold
		c.once(once)
		l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
		return c
	}
	first := under(false)
	l.is(r, Reentering)
	if second := under(true); second.settled != 1 || second.err == nil {
		t.Errorf("the TryLock is told %d times: %v", second.settled, second.err)
	}
	l.reply(r, Outcome{})
	if first.hold == nil {
		t.Errorf("the Lock has no hold: %v", first.err)
	}
}
