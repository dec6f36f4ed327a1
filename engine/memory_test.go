package engine

import (
	"errors"
	"testing"
	"time"
)

// A server that has no memory left takes no more locks; those that it has are given back
// at once, also where that writes: a re-entry's count, the rest of a MinHold.
func TestServerWithoutMemoryHoldsUpNoUnlock(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	m := e.Mutex("x")
	h := mustLock(t, m)
	child := mustReenter(t, m, h)
	cron := mustLock(t, e.Mutex("cron"), MinHold(time.Minute))
	s.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := e.Mutex("y").TryLock(ctxT(t)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("TryLock: %v", err)
	}
	mustUnlock(t, child)
	mustUnlock(t, h)
	mustUnlock(t, cron)
	if left := pttl(t, s, "cron"); left < 50*time.Second || left > time.Minute {
		t.Errorf("unlocked within its MinHold, the key has %v left", left)
	}
	s.Do("CONFIG", "SET", "maxmemory", "0")
	if _, err := other.Mutex("cron").TryLock(ctxT(t)); !errors.As(err, new(*NotAcquiredError)) {
		t.Errorf("TryLock within the MinHold: %v", err)
	}
	if left := fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
}
