package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A server that has no memory left takes no more locks; those that it has are given back
// at once, also where that writes: a re-entry's count, the rest of a MinHold.
func TestUnlock_ServerOutOfMemory_Releases(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	child := testkit.MustReenter(t, m, h)
	cron := testkit.MustLock(t, e.Mutex("cron"), engine.MinHold(time.Minute))
	s.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := e.Mutex("y").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("TryLock: %v", err)
	}
	testkit.MustUnlock(t, child)
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, cron)
	if left := testkit.PTTL(t, s, "cron"); left < 50*time.Second || left > time.Minute {
		t.Errorf("unlocked within its MinHold, the key has %v left", left)
	}
	s.Do("CONFIG", "SET", "maxmemory", "0")
	if _, err := other.Mutex("cron").TryLock(testkit.Ctx(t)); !errors.As(err, new(*engine.NotAcquiredError)) {
		t.Errorf("TryLock within the MinHold: %v", err)
	}
	if left := testkit.Fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
}
