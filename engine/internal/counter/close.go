package counter

import (
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// StopWaiting fails who waits, and what has not been sent; what gives permits back goes on.
func (t *Counter) StopWaiting(rd *Ready) { t.Advance(rd) }

// failNew fails what is not admitted any more when the engine is being closed. While a Shutdown lets
// work finish, a latch is still counted down: else it would stay closed for all who await it.
func (t *Counter) failNew(rd *Ready) {
	for op := range t.waiters.All() {
		op.end(0, lockerr.ErrClosed, rd)
	}
	for op := range t.tries.All() {
		op.end(0, lockerr.ErrClosed, rd)
	}
	for op := range t.calls.All() {
		if op.Kind != Release && !op.taken && (op.Kind != CountDown || t.Shard.Locks.Phase == lock.Closed) {
			op.end(0, lockerr.ErrClosed, rd)
		}
	}
}

// End takes all permits from those who have them, and gives them back.
func (t *Counter) End(rd *Ready) {
	for p := range t.held.All() {
		p.revoke()
	}
	t.Advance(rd)
}

// Drop ends all that is left: nothing will be sent any more.
func (t *Counter) Drop(rd *Ready) {
	for p := range t.held.All() {
		p.end(lockerr.ErrClosed)
		t.Shard.Locks.Count.Lost[lock.EngineClosed]++
	}
	t.drop(rd)
	t.Advance(rd)
}

// drop ends what is queued, and the command: the client is closed.
func (t *Counter) drop(rd *Ready) {
	unknown := lockerr.Wrap(lockerr.ErrOutcomeUnknown, lockerr.ErrClosed)
	if !t.Cmd.doubt {
		t.reset()
	}
	t.failTaken(unknown, rd)
	t.clear()
	for op := range t.calls.All() {
		if op.Kind == Release {
			op.end(0, unknown, rd)
		}
	}
	t.failNew(rd)
	t.unstall(rd)
	t.blocked, t.pauseEnds = serial.NotBlocked, 0
}
