package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// What has the key instead of the lock does not keep a waiter that gives up in the queue.
func TestFairWaiterLeavesTheQueueOfALockThatWasOverwritten(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.FairMutex("x").Mutex
	h := mustLock(t, m)
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	waiter := m.LockAsync(ctx)
	queued(t, s, 1)
	s.Do("SET", "x", "somebody's")
	cancel()
	if _, err := waiter.Await(ctxT(t)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	queued(t, s, 0)
	s.Do("DEL", "x")
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	nothingOfX(t, s)
}

// Nor one that is told of it.
func TestFairWaiterThatIsToldOfAnotherTypeLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.Lease = time.Second })
	m := e.FairMutex("x").Mutex
	h := mustLock(t, m)
	waiter := m.LockAsync(ctxT(t))
	queued(t, s, 1)
	s.Do("SET", "x", "somebody's")
	if _, err := waiter.Await(ctxT(t)); !errors.Is(err, ErrWrongType) {
		t.Fatal(err)
	}
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	s.Do("DEL", "x")
	nothingOfX(t, s)
}
