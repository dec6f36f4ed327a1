package shutdown

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Close says nil only if every lock was released. A server that refuses that for good, here
// because a right was withdrawn, is asked once.
func TestClose_ReleaseRefused_SaysSo(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	testkit.MustLock(t, e.Mutex("x"))
	s.Do("ACL", "SETUSER", "default", "-hdel")
	err := e.Close()
	s.Do("ACL", "SETUSER", "default", "+hdel")
	if len(testkit.Fields(t, s, "x")) == 0 {
		t.Fatal("it was released")
	}
	if !errors.Is(err, engine.ErrOutcomeUnknown) || !testkit.HasText(err, "NOPERM") || testkit.HasText(err, "CloseTimeout") {
		t.Errorf("Close: %v", err)
	}
}

// A server that refuses every write for now is named when the time of Close is over.
func TestClose_ServerRefusesToWrite_NamesIt(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.CloseTimeout = 2 * time.Second })
	testkit.MustLock(t, e.Mutex("x"))
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	err := e.Close()
	if !errors.Is(err, engine.ErrOutcomeUnknown) || !testkit.HasText(err, "NOREPLICAS") || !testkit.HasText(err, "CloseTimeout") {
		t.Errorf("Close: %v", err)
	}
}
