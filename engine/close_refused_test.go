package engine

import (
	"errors"
	"testing"
	"time"
)

// Close says nil only if every lock was released. A server that refuses that for good, here
// because a right was withdrawn, is asked once.
func TestCloseSaysWhenTheServerRefusesToRelease(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	mustLock(t, e.Mutex("x"))
	s.Do("ACL", "SETUSER", "default", "-hdel")
	err := e.Close()
	s.Do("ACL", "SETUSER", "default", "+hdel")
	if len(fields(t, s, "x")) == 0 {
		t.Fatal("it was released")
	}
	if !errors.Is(err, ErrOutcomeUnknown) || !hasText(err, "NOPERM") || hasText(err, "CloseTimeout") {
		t.Errorf("Close: %v", err)
	}
}

// Nor is a release that was under way asked for until CloseTimeout: Unlock comes before Close.
func TestCloseSaysWhenTheServerRefusesAReleaseUnderWay(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	s.Do("ACL", "SETUSER", "default", "-hdel")
	released := h.UnlockAsync()
	eventually(t, "it is refused", func() bool { return releaseRefused(h) })
	err := e.Close()
	if !errors.Is(err, ErrOutcomeUnknown) || !hasText(err, "NOPERM") || hasText(err, "CloseTimeout") {
		t.Errorf("Close: %v", err)
	}
	if _, err := released.Await(ctxT(t)); err == nil || !hasText(err, "NOPERM") {
		t.Errorf("Unlock: %v", err)
	}
}

// A server that refuses every write for now is named when the time of Close is over.
func TestCloseNamesAServerThatRefusesToWrite(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.CloseTimeout = 2 * time.Second })
	mustLock(t, e.Mutex("x"))
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	err := e.Close()
	if !errors.Is(err, ErrOutcomeUnknown) || !hasText(err, "NOREPLICAS") || !hasText(err, "CloseTimeout") {
		t.Errorf("Close: %v", err)
	}
}

// releaseRefused reports whether the server has refused to release the hold.
func releaseRefused(h *Hold) bool {
	oneOf(h).Shard().Lock()
	defer oneOf(h).Shard().Unlock()
	return oneOf(h).IsOver() || oneOf(h).Refusal() != nil
}

// A Shutdown waits for the holders, and a release of one goes on meanwhile as it always does:
// what the server refuses it may allow again.
func TestShutdownDoesNotGiveUpAReleaseThatIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h, other := mustLock(t, e.Mutex("x")), mustLock(t, e.Mutex("y"))
	shut := make(chan error, 1)
	go func() { shut <- e.Shutdown(ctxT(t)) }()
	eventually(t, "it has begun", Closing(e))
	s.Do("ACL", "SETUSER", "default", "-hdel")
	released := h.UnlockAsync()
	eventually(t, "it is refused", func() bool { return releaseRefused(h) })
	s.Do("ACL", "SETUSER", "default", "+hdel")
	if _, err := released.Await(ctxT(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	mustUnlock(t, other)
	if err := receive(t, shut); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	clean(t, s)
}

// A right that is missing for a moment makes no lock stay for good: neither one that is taken
// just then, nor one whose MinHold has something left when it is unlocked.
func TestMissingRightMakesNoLockStayForGood(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("cron"), MinHold(time.Minute))
	s.Do("ACL", "SETUSER", "default", "-pexpire")
	if _, err := e.Mutex("x").TryLock(ctxT(t)); !hasText(err, "NOPERM") {
		t.Errorf("TryLock: %v", err)
	}
	released := h.UnlockAsync()
	eventually(t, "it is refused", func() bool { return releaseRefused(h) })
	s.Do("ACL", "SETUSER", "default", "+pexpire")
	if _, err := released.Await(ctxT(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if left := s.Do("PTTL", "cron").(int64); left <= 0 || left > 60_000 {
		t.Errorf("the lock stays for %d ms", left)
	}
	if left := fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
