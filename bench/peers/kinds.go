package main

import (
	"context"
	"errors"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/engine"
)

// kinds is the scenario that measures each kind of synchronizer beside Redisson's: one caller
// without contention, and at last many readers of one name.
const kinds = "kinds"

// readers is the workload with many readers.
const readers = "readers"

// workload is what a turn of kinds does again and again. A pair is an acquisition and its
// release; of a latch it is one count-down.
type workload struct {
	name string
	java string // the kind, as Cost.java has it
	pair func(e *engine.Engine, name string) func(ctx context.Context) error
	// begin makes what must be there on the server; keys are what is there at the end.
	begin func(ctx context.Context, e *engine.Engine, name string) error
	keys  func(e *engine.Engine, name string) []string
}

var workloads = []workload{
	{name: "mutex", java: "mutex", pair: locking(func(e *engine.Engine, n string) engine.Mutex { return e.Mutex(n) })},
	{name: "nonreentrant", java: "nonreentrant", pair: locking(func(e *engine.Engine, n string) engine.Mutex { return e.Mutex(n) }, engine.NonReentrant())},
	{name: "spin", java: "spin", pair: locking(func(e *engine.Engine, n string) engine.Mutex { return e.SpinMutex(n) })},
	{name: "fair", java: "fair", pair: locking(func(e *engine.Engine, n string) engine.Mutex { return e.FairMutex(n) })},
	{name: "fenced", java: "fenced", pair: locking(func(e *engine.Engine, n string) engine.Mutex { return e.FencedMutex(n) }),
		keys: func(_ *engine.Engine, n string) []string { return []string{"redisson_lock_token:{" + n + "}"} }},
	{name: "writer", java: "writer", pair: locking(func(e *engine.Engine, n string) engine.Mutex { return e.RWMutex(n).Writer() })},
	{name: "reader", java: "reader", pair: reading},
	{name: "multi", java: "multi", pair: locking(func(e *engine.Engine, n string) engine.MultiLock { return e.Many(n+":1", n+":2") })},
	{name: "permit", java: "permit",
		pair: func(e *engine.Engine, n string) func(context.Context) error {
			s := e.PermitSemaphore(n)
			return func(ctx context.Context) error {
				p, err := s.Acquire(ctx, 1)
				if err != nil {
					return err
				}
				return p.Unlock(ctx)
			}
		},
		begin: func(ctx context.Context, e *engine.Engine, n string) error {
			_, err := e.PermitSemaphore(n).TrySetPermits(ctx, 1)
			return err
		},
		keys: func(_ *engine.Engine, n string) []string { return []string{n, "{" + n + "}:timeout"} }},
	{name: "semaphore", java: "semaphore",
		pair: func(e *engine.Engine, n string) func(context.Context) error {
			s := e.Semaphore(n)
			return func(ctx context.Context) error {
				p, err := s.Acquire(ctx, 1)
				if err != nil {
					return err
				}
				return p.Release(ctx)
			}
		},
		begin: func(ctx context.Context, e *engine.Engine, n string) error {
			_, err := e.Semaphore(n).TrySetPermits(ctx, 1)
			return err
		},
		keys: counted},
	{name: "latch", java: "latch",
		pair: func(e *engine.Engine, n string) func(context.Context) error { return e.Latch(n).CountDown },
		begin: func(ctx context.Context, e *engine.Engine, n string) error {
			const more = 1<<31 - 1 // than a turn counts down
			_, err := e.Latch(n).TrySetCount(ctx, more)
			return err
		},
		keys: counted},
	{name: readers, java: "reader", pair: reading},
}

var reading = locking(func(e *engine.Engine, n string) engine.Mutex { return e.RWMutex(n).Reader() })

// counted are the keys of a count: itself, and the engine's mark, as a semaphore and as a latch.
func counted(e *engine.Engine, name string) []string {
	mark := "{" + name + "}:pawl:" + e.ID()
	return []string{name, mark, mark + ":latch"}
}

// lock is what the kinds of locks have in common; H are their holds.
type lock[H interface{ Unlock(context.Context) error }] interface {
	Lock(ctx context.Context, opts ...engine.Option) (H, error)
}

func locking[L lock[H], H interface{ Unlock(context.Context) error }](of func(*engine.Engine, string) L, opts ...engine.Option) func(*engine.Engine, string) func(context.Context) error {
	return func(e *engine.Engine, name string) func(context.Context) error {
		l := of(e, name)
		return func(ctx context.Context) error {
			h, err := l.Lock(ctx, opts...)
			if err != nil {
				return err
			}
			return h.Unlock(ctx)
		}
	}
}

// nameOf is the name that all callers of a workload use.
func nameOf(w workload) string { return "pawl-bench:kinds:" + w.name }

// doer is an engine that does a workload, as a bench.Client.
type doer struct {
	*engine.Engine
	workload
}

func (d doer) Name() string { return "pawl" }

func (d doer) Worker(string) func(context.Context) error { return d.pair(d.Engine, nameOf(d.workload)) }

// kindTurn gives Pawl a turn, on fresh connections.
func kindTurn(ctx context.Context, server *bench.Server, w workload, cfg bench.Config) (result *bench.Result, err error) {
	eng, err := engine.Open(ctx, server.URL())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	if w.begin != nil {
		if err := w.begin(ctx, eng, nameOf(w)); err != nil {
			return nil, err
		}
	}
	cfg.Scenario = bench.Hot
	result, err = bench.RunLoop(ctx, server, doer{eng, w}, cfg)
	if err != nil || w.keys == nil {
		return result, err
	}
	return result, remove(ctx, server.URL(), w.keys(eng, nameOf(w)))
}

func remove(ctx context.Context, url string, keys []string) error {
	client, err := openGoRedis(url)
	if err != nil {
		return err
	}
	return errors.Join(client.Del(ctx, keys...).Err(), client.Close())
}
