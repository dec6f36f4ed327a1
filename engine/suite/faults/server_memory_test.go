package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
)

// A server that has no memory left takes no more locks; those that it has are given back
// at once, also where that writes: a re-entry's count, the rest of a MinHold.
func TestUnlock_ServerOutOfMemory_Releases(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
	m := e.Mutex("x")
	h := kit.MustLock(t, m)
	child := kit.MustReenter(t, m, h)
	cron := kit.MustLock(t, e.Mutex("cron"), engine.MinHold(time.Minute))
	s.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := e.Mutex("y").TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("TryLock: %v", err)
	}
	kit.MustUnlock(t, child)
	kit.MustUnlock(t, h)
	kit.MustUnlock(t, cron)
	if left := kit.PTTL(t, s, "cron"); left < 50*time.Second || left > time.Minute {
		t.Errorf("unlocked within its MinHold, the key has %v left", left)
	}
	s.Do("CONFIG", "SET", "maxmemory", "0")
	if _, err := other.Mutex("cron").TryLock(kit.Ctx(t)); !errors.As(err, new(*engine.NotAcquiredError)) {
		t.Errorf("TryLock within the MinHold: %v", err)
	}
	if left := kit.Fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
}
