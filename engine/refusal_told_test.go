package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/resp"
)

// A server whose disk is full, or that has too few replicas, answers all the time and refuses
// every write. It must be said somewhere, for the engineer that looks for why locks are lost.
func TestServerThatRefusesToWriteIsNamed(t *testing.T) {
	t.Parallel()
	s := server(t)
	rounds := make(chan error, 1000)
	e := open(t, s.URL(), func(c *Config) {
		c.CommandTimeout = 2 * time.Second
		c.CloseTimeout = 500 * time.Millisecond
		c.Hooks.Renewed = func(ev RenewedEvent) { rounds <- ev.Err }
	})
	mustLock(t, e.Mutex("watched"))
	long := mustLock(t, e.Mutex("long"), Lease(time.Minute))
	short := mustLock(t, e.Mutex("short"), Lease(4*time.Second))
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	named := func(what string, err error) {
		t.Helper()
		var refused *resp.ServerError
		if !errors.As(err, &refused) || refused.Code != "NOREPLICAS" || !hasText(err, "NOREPLICAS") {
			t.Errorf("%s: %v", what, err)
		}
	}

	gone, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond) // long enough for an answer
	defer cancel()
	err := short.Unlock(gone)
	named("Unlock whose context ends", err)
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Unlock whose context ends: %v", err)
	}
	err = short.Unlock(ctxT(t)) // joins the release, until the lease ends
	named("Unlock", err)
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Unlock: %v", err)
	}
	err = long.Extend(ctxT(t), 2*time.Minute)
	named("Extend", err)
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Extend: %v", err)
	}

	e.table.Renewer.All()
	named("a renewal", <-rounds)
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	eventually(t, "it is extended", func() bool { return long.Extend(ctxT(t), 2*time.Minute) == nil })
	for err := <-rounds; err != nil; err = <-rounds { // it goes on by itself
		named("a renewal", err)
	}
}

// Extend says at once that a right is missing, which waiting does not bring back, and the
// renewals say it, too.
func TestMissingRightToRenewIsNamed(t *testing.T) {
	t.Parallel()
	s := server(t)
	rounds := make(chan error, 1000)
	e := open(t, s.URL(), func(c *Config) { c.Hooks.Renewed = func(ev RenewedEvent) { rounds <- ev.Err } })
	mustLock(t, e.Mutex("watched"))
	h := mustLock(t, e.Mutex("long"), Lease(time.Minute))
	s.Do("ACL", "SETUSER", "default", "-pexpire")
	err := h.Extend(ctxT(t), 2*time.Minute)
	if !hasText(err, "NOPERM") || errors.Is(err, ErrUnavailable) {
		t.Errorf("Extend: %v", err)
	}
	e.table.Renewer.All()
	if err := <-rounds; !hasText(err, "NOPERM") {
		t.Errorf("a renewal: %v", err)
	}
	s.Do("ACL", "SETUSER", "default", "+pexpire")
}

// What an Extend was told says nothing about the next one, whose server may hang.
func TestExtendDoesNotNameTheRefusalOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	s, net, e := behind(t)
	h := mustLock(t, e.Mutex("long"), Lease(time.Minute))
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	gone, cancel := context.WithCancel(context.Background())
	defer cancel()
	given := make(chan error, 1)
	go func() { given <- h.Extend(gone, 2*time.Minute) }()
	idle := func(refusals uint8) bool {
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return oneOf(h).Res.Cmd.What == machine.Nothing && oneOf(h).Res.View().Refusals >= refusals
	}
	eventually(t, "the next try is a while away", func() bool { return idle(5) })
	cancel()
	if err := <-given; !hasText(err, "NOREPLICAS") {
		t.Errorf("Extend given up: %v", err)
	}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	eventually(t, "nothing is out", func() bool { return idle(0) })
	net.Pause(faultproxy.All)
	err := h.Extend(gone, 2*time.Minute)
	net.Resume()
	if !errors.Is(err, context.Canceled) || hasText(err, "NOREPLICAS") {
		t.Errorf("Extend of a server that hangs: %v", err)
	}
}
