package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// The first waits for a replica while its lock is taken away and another request gets it. When the
// replica answers, the first is granted what it does not have any more. It is told so at once, not at its
// first renewal.
func TestAGrantThatComesLateIsLookedAt(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ first, second func(e *Engine) Mutex }{
		"fair": {
			func(e *Engine) Mutex { return e.FairMutex("x").Mutex },
			func(e *Engine) Mutex { return e.FairMutex("x").Mutex },
		},
		"a reader, and a writer got it": {
			func(e *Engine) Mutex { return e.RWMutex("x").Reader() },
			func(e *Engine) Mutex { return e.RWMutex("x").Writer() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.StartReplicated(t, 1, redistest.Line("repl-timeout 300"))
			primary := r.Servers()[0]
			link := r.Through(r.Servers()[1], primary)
			e := open(t, primary.URL(), func(c *Config) { c.Lease, c.AckTimeout, c.CommandTimeout = time.Hour, limit, limit })
			other := open(t, primary.URL())
			mustUnlock(t, mustLock(t, e.Mutex("y"), Acked(1)))
			link.Hold()
			first := x.first(e).LockAsync(ctxT(t), Acked(1))
			eventually(t, "it waits for the replica", func() bool { return primary.Do("EXISTS", "x") == int64(1) })
			if done, err := x.first(other).ForceUnlock(ctxT(t)); !done || err != nil {
				t.Fatal(done, err)
			}
			second := mustLock(t, x.second(e))
			link.Release()
			h, err := first.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			if second.Err() == nil {
				t.Error("two that exclude each other are valid in one process")
			}
			renewed := e.Stats().Renewed
			receive(t, h.Done())
			if n := e.Stats().Renewed - renewed; n > 0 {
				t.Errorf("it was told after %d renewals", n)
			}
		})
	}
}

// A reader is asked for beside a writer, which hands its tenure over to the next one before that is
// noticed. The reader is not beside that one.
func TestAReaderBesideAFormerWriterEndsItsSuccessor(t *testing.T) {
	t.Parallel()
	s, p, a := behind(t, func(c *Config) { c.HandOver = time.Hour })
	b := open(t, s.URL())
	rw := a.RWMutex("x")
	var reader *Future[*Hold]
	var writer *Hold
	// It takes a moment to end the contexts of the former writer. Mostly it hands over before the
	// reader's command is due. If not, it is released instead, and this is tried again.
	eventually(t, "the former writer hands over while the reader is asked for", func() bool {
		former := mustLock(t, rw.Writer())
		next := rw.Writer().LockAsync(ctxT(t))
		beside, cancel := context.WithCancel(context.WithoutCancel(former.Context(ctxT(t))))
		t.Cleanup(cancel)
		wanted := new(atomic.Bool)
		wanted.Store(true)
		before := a.Stats().HandedOver
		reader = rw.Reader().LockAsync(gatedContext{beside, wanted, func() { mustUnlock(t, former) }})
		var err error
		if writer, err = next.Await(ctxT(t)); err != nil {
			t.Fatal(err)
		}
		if wanted.Load() {
			t.Fatal("the reader was asked for without a look at its context")
		}
		if a.Stats().HandedOver > before {
			return true
		}
		mustUnlock(t, writer)
		if h, err := reader.Await(ctxT(t)); err == nil {
			mustUnlock(t, h)
		}
		return false
	})
	// Only the reader listens: the channel of the writers has lingered.
	eventually(t, "it listens alone", func() bool { return a.Stats().Waiting == 1 && a.Stats().Channels == 1 })
	// The first look at the writer says nothing. If the reader tries by itself, its grant comes before
	// the next one.
	p.ReplaceReply(renewals, []byte("-BUSY Redis is busy\r\n"), 1)
	told := make(chan error, 1)
	reader.OnComplete(func(*Hold, error) { told <- writer.Err() })
	if done, err := b.RWMutex("x").Writer().ForceUnlock(ctxT(t)); !done || err != nil {
		t.Fatal(done, err)
	}
	if receive(t, told) == nil {
		t.Error("a reader has the lock, and a writer of its process is valid")
	}
	h, err := reader.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	clean(t, s, a)
}
