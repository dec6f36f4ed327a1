package engine

import (
	"errors"
	"testing"
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
