package engine

import (
	"context"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// Mutex is a re-entrant lock. Everybody who uses its name on the same server shares it,
// Redisson's RLock included. A Mutex is a small value without state of its own, and
// making one costs no I/O. The zero Mutex is not usable: its methods return ErrInvalid.
type Mutex struct {
	home  **Engine // see show.go
	key   drive.Key
	route uint64
	name  string
	err   error // the name is not usable
}

// maxName bounds a lock's name.
const maxName = 64 << 10

// Mutex returns the lock of that name. If the name cannot be used, the first call that
// needs it returns ErrInvalid. A name must not be empty. As mapped by Config.NameMapper
// it must not be empty, longer than 64 KiB or contain a zero byte. In a cluster its
// braces must not put its channel into another slot than its key, as those of a{b do.
func (e *Engine) Mutex(name string) Mutex { return e.mutex(name, kind.Mutex) }

// SpinMutex returns the lock of that name in a form that neither publishes its releases
// nor subscribes. A waiter polls instead, like one of Redisson's RSpinLock: after about
// 1 ms, then less and less often, up to about every 128 ms; see Backoff.
// Use it for names that very many processes take, but rarely at the same time. It and a
// Mutex of the same name are one lock: they exclude and re-enter each other. But it does not
// wake a Mutex that waits in another process: that sleeps until the lease ends.
func (e *Engine) SpinMutex(name string) SpinMutex { return SpinMutex{e.mutex(name, kind.Spin)} }

// SpinMutex is a Mutex that polls; see Engine.SpinMutex.
type SpinMutex struct{ Mutex }

func (e *Engine) mutex(name string, k kind.Kind) Mutex {
	mapped := name
	if e.cfg.NameMapper != nil {
		mapped = e.cfg.NameMapper(name)
	}
	m := Mutex{home: &e.self, key: drive.Key{Name: mapped, Kind: k}, name: name}
	switch {
	case name == "" || mapped == "":
		m.err = reason.Invalid("the name of a lock must not be empty")
	case len(mapped) > maxName:
		m.err = reason.Invalid("the name of a lock must be at most %d bytes, not %d", maxName, len(mapped))
	case strings.Contains(mapped, "\x00"):
		m.err = reason.Invalid("the name of a lock must not contain a zero byte")
	case e.table.Client.Clustered():
		m.err = m.key.Placeable()
	}
	m.route = e.table.Client.Route(mapped)
	return m
}

// engine returns the engine of a Mutex that is not zero.
func (m Mutex) engine() *Engine { return *m.home }

var errZeroMutex = reason.Invalid("the zero Mutex: get one from Engine.Mutex")

// Name returns the name as you gave it.
func (m Mutex) Name() string { return m.name }

// Lock waits for the lock as long as ctx lives, or as long as Wait allows. ctx governs
// the acquisition only: once the lock is granted, ctx has no influence on the hold.
//
// If ctx is the Context of a live hold of this name, or was made from it, Lock
// re-enters: see Hold.Context.
func (m Mutex) Lock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, false)
}

// TryLock asks the server once whether the lock is free, and never waits for it. If somebody
// else holds it, the error is a *NotAcquiredError that Is ErrHeld.
//
// It is for one answer, and waits for that up to Config.CommandTimeout: without a connection, while
// the server refuses everything for now (a failover, a slot that moves, LOADING), and if an answer is
// lost. After that it is ErrUnavailable, with the latest reason.
func (m Mutex) TryLock(ctx context.Context, opts ...Option) (*Hold, error) {
	return m.acquire(ctx, opts, true)
}

func (m Mutex) acquire(ctx context.Context, opts []Option, once bool) (*Hold, error) {
	if m.home == nil {
		return nil, notAcquired("", errZeroMutex)
	}
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done() // before anything is asked for: it may be the user's, and panic
	}
	a, err := m.engine().lock(ctx, m, opts, once, false)
	if err != nil {
		return nil, err
	}
	return a.wait(ctx, done)
}

// LockAsync is Lock without the waiting: it never blocks. The future completes when the
// lock is granted, or when ctx or Wait ends the waiting. A pending future costs a few
// hundred bytes, no goroutine and no timer of its own. Abandon a future that you no
// longer want.
func (m Mutex) LockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return m.acquireAsync(ctx, opts, false)
}

// TryLockAsync is TryLock without waiting for the server's answer.
func (m Mutex) TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold] {
	return m.acquireAsync(ctx, opts, true)
}

func (m Mutex) acquireAsync(ctx context.Context, opts []Option, once bool) *Future[*Hold] {
	if m.home == nil {
		return stillborn(nil, notAcquired("", errZeroMutex))
	}
	a, err := m.engine().lock(ctx, m, opts, once, true)
	if err != nil {
		return stillborn(m.engine(), err)
	}
	return &a.fut
}

// stillborn is a future that failed before anything was started.
func stillborn(e *Engine, err error) *Future[*Hold] {
	if e == nil {
		e = new(Engine) // for its executor
		e.table.Engine = (*front)(e)
	}
	a := new(acquisition)
	a.Shard = &drive.Shard{Table: &e.table}
	a.fut.source = a
	a.Async = true
	a.Drop()
	a.fut.settle(nil, err)
	return &a.fut
}
