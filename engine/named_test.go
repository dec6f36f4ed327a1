package engine

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// An error in a log, far from the code, says which lock it is about, and why the server did
// not answer.
func TestErrorsSayWhichLockAndWhy(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("the request is gone"))
	ctx := ctxT(t)

	h := mustLock(t, m, Lease(time.Minute))
	watched := mustLock(t, tr.e.Mutex("watched"))
	says(t, "Extend of a watched hold", watched.Extend(ctx, time.Minute), ErrInvalid, `invalid argument: Extend on a hold .*`)
	_, err := tr.e.Mutex("orders:42").ForceUnlock(ctx, IfHolder(""))
	says(t, "IfHolder", err, ErrInvalid, `invalid argument: IfHolder must .*`)
	tr.net.Pause(faultproxy.All)
	says(t, "Extend given up", h.Extend(gone, time.Minute), ErrOutcomeUnknown, `outcome unknown: the request is gone`)
	says(t, "State with an ended context", errOf(m.State(gone)), ErrUnavailable, `the server was not asked: the request is gone`)
	says(t, "State given up", errOf(m.State(tr.soon())), ErrUnavailable, `no answer from the server: context deadline exceeded`)
	says(t, "ForceUnlock given up", errOf(m.ForceUnlock(tr.soon(), IfHolder("x"))), ErrOutcomeUnknown, `outcome unknown: context deadline exceeded`)
	tr.net.Resume()
	mustUnlock(t, h)
	says(t, "Unlock again", h.Unlock(ctx), ErrNotHeld, `not held: it was unlocked already`)
	says(t, "Extend after Unlock", h.Extend(ctx, time.Minute), ErrNotHeld, `not held: it was unlocked already`)
	if err := tr.s.Redis().Set("text", "x"); err != nil {
		t.Fatal(err)
	}
	says(t, "State of a string", errOf(tr.e.Mutex("text").State(ctx)), ErrWrongType, `key is of another type: WRONGTYPE .*`)

	h = mustLock(t, m, Lease(time.Minute))
	impatient := open(t, "redis://"+tr.net.Addr()+"?command_timeout=100ms")
	defer tr.net.Up() // or Close would wait
	tr.refuse(m)
	eventually(t, "it cannot be reached", func() bool { return hasText(impatient.table.Client.LaneError(m.route), "refused") })
	const refused = `dial 127\.0\.0\.1:\d+: connect: connection refused`
	says(t, "Unlock given up", h.Unlock(gone), ErrOutcomeUnknown, `outcome unknown: the request is gone: `+refused)
	says(t, "State without a server", errOf(m.State(tr.soon())), ErrUnavailable, `server is unavailable: context deadline exceeded: `+refused)
	if err := tr.e.Ping(ctx); !errors.Is(err, ErrUnavailable) || !hasText(err, "connection refused") { // at once: the latest dial was refused
		t.Errorf("Ping: %v", err)
	}
	says(t, "State after CommandTimeout", errOf(impatient.Mutex("orders:42").State(ctx)), ErrUnavailable, `server is unavailable: `+refused)
}

// says checks an error about a lock: what it is, and its text after the lock's name.
func says(t testing.TB, what string, err, is error, text string) {
	t.Helper()
	if !errors.Is(err, is) || !regexp.MustCompile(`^engine: lock "[a-z:0-9]+": `+text+`$`).MatchString(err.Error()) {
		t.Errorf("%s: %v\nwant ...: %s", what, err, text)
	}
}
