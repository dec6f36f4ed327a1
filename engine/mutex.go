package engine

import (
	"context"
	"strings"
)

// Mutex is a reentrant lock, shared with everybody who uses its name on the same
// server, Redisson's RLock included. It is a small value without state of its own;
// making one costs no I/O. The zero Mutex is not usable: its methods return
// ErrInvalid.
type Mutex struct {
	eng   *Engine
	key   key
	route uint64
	name  string
	err   error // the name is not usable
}

// maxName bounds a lock's name.
const maxName = 64 << 10

// Mutex returns the lock of that name. A name that cannot be used (empty, longer
// than 64 KiB after mapping) is reported by the first call that would use it.
func (e *Engine) Mutex(name string) Mutex { return e.mutex(name, kindMutex) }

// SpinMutex returns the lock of that name as one that neither publishes its
// release nor subscribes: who waits asks again and again, after 1 to 128 ms, as
// with Redisson's RSpinLock. It is for names that are taken by very many
// processes, rarely at the same time. It excludes the holders of Mutex on the same
// name, but does not wake its waiters, who then sleep until the lease ends.
func (e *Engine) SpinMutex(name string) SpinMutex { return SpinMutex{e.mutex(name, kindSpin)} }

// SpinMutex is a Mutex that polls; see Engine.SpinMutex.
type SpinMutex struct{ Mutex }

func (e *Engine) mutex(name string, kind kind) Mutex {
	mapped := name
	if e.cfg.NameMapper != nil {
		mapped = e.cfg.NameMapper(name)
	}
	m := Mutex{eng: e, key: key{mapped, kind}, name: name}
	switch {
	case name == "" || mapped == "":
		m.err = invalid("the name of a lock must not be empty")
	case len(mapped) > maxName:
		m.err = invalid("the name of a lock must be at most %d bytes, not %d", maxName, len(mapped))
	case strings.Contains(mapped, "\x00"):
		m.err = invalid("the name of a lock must not contain a zero byte")
	case e.client.Clustered():
		m.err = m.key.placeable()
	}
	m.route = e.client.Route(mapped)
	return m
}

var errZeroMutex = invalid("the zero Mutex: get one from Engine.Mutex")

// Name returns the name as it was given.
func (m Mutex) Name() string { return m.name }

// Lock waits for the lock as long as ctx lives, or as long as Wait allows. The
// context governs the acquisition only: once the lock is granted, ctx has no
// influence on the hold.
//
// If ctx is, or comes from, the Context of a live hold of this name, the lock is
// re-entered: see Hold.Context.
func (m Mutex) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, false)
}

// TryLock makes one attempt and never waits for the lock: ErrNotAcquired, as a
// *NotAcquiredError, if somebody else holds it.
func (m Mutex) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, true)
}

func (m Mutex) acquire(ctx context.Context, opts []Option, once bool) (*Hold, error) {
	if m.eng == nil {
		return nil, fail(ErrNotAcquired, errZeroMutex)
	}
	a, err := m.eng.lock(ctx, m, opts, once, false)
	if err != nil {
		return nil, err
	}
	return a.wait(ctx)
}

// LockAsync is Lock without the waiting: it never blocks. The future completes when
// the lock is granted, or when ctx or Wait ends the waiting. A pending future costs
// a few hundred bytes, no goroutine and no timer of its own. One that is not wanted
// any more must be abandoned.
func (m Mutex) LockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return m.acquireAsync(ctx, opts, false)
}

// TryLockAsync is TryLock without the waiting for the server's answer.
func (m Mutex) TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return m.acquireAsync(ctx, opts, true)
}

func (m Mutex) acquireAsync(ctx context.Context, opts []Option, once bool) *Future[*Hold] {
	if m.eng == nil {
		return stillborn(nil, fail(ErrNotAcquired, errZeroMutex))
	}
	a, err := m.eng.lock(ctx, m, opts, once, true)
	if err != nil {
		return stillborn(m.eng, err)
	}
	return &a.fut
}

// stillborn is a future that failed before anything was started.
func stillborn(e *Engine, err error) *Future[*Hold] {
	if e == nil {
		e = new(Engine) // for its executor
	}
	a := &acquisition{future: true, ended: true, sh: &shard{eng: e}}
	a.fut.source = a
	a.fut.settle(nil, err)
	return &a.fut
}
