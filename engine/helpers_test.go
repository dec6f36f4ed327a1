package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/world"
	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// limit is how long a test waits for something that must happen: of the time that this
// process can use, as everything here that bounds how long something may take.
const limit = 20 * time.Second

// open connects an engine to a server and closes it with the test.
func open(t testing.TB, url string, change ...func(*Config)) *Engine {
	t.Helper()
	cfg, err := ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	e, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// steady is pace.Steady, for tests whose leases and timeouts must suffice: a process that
// does not run for longer than this loses locks, and rightly so.
func steady(t *testing.T, scenario func(t testing.TB)) {
	t.Helper()
	pace.Steady(t, 50*time.Millisecond, scenario)
}

// server starts a redis-server of the test's own.
func server(t testing.TB, opts ...redistest.Option) *redistest.Server {
	t.Helper()
	return redistest.Start(t, opts...)
}

// within returns a context that ends the test's patience.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := pace.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func ctxT(t testing.TB) context.Context { return within(t, limit) }

// stay is what one does who is inside: it takes as long as a few commands of the server. So whoever
// should be kept out has the time to come in, and is seen.
func stay(s *redistest.Server) {
	for range 3 {
		_, _ = s.Process.Do("PING") // a test that cuts connections may cut this one
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	pause := time.Millisecond
	for start := pace.Now(); !ok(); {
		if start.Elapsed() > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(pause) // a poll, not a hope: the limit above decides
		pause = min(pause*5/4, 20*time.Millisecond)
	}
}

// fields returns the lock's hash on the server.
func fields(t testing.TB, s *redistest.Server, name string) map[string]string {
	t.Helper()
	list, _ := s.Do("HGETALL", name).([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i].(string)] = list[i+1].(string)
	}
	return m
}

// mustLock locks or fails the test.
func mustLock(t testing.TB, m Mutex, opts ...Option) *Hold {
	t.Helper()
	h, err := m.Lock(ctxT(t), opts...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", m.Name(), err)
	}
	return h
}

func mustUnlock(t testing.TB, h *Hold) {
	t.Helper()
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Fatalf("Unlock(%q): %v", h.Name(), err)
	}
}

// clean fails the test if the server has anything left of Pawl.
func clean(t testing.TB, s *redistest.Server, engines ...*Engine) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("channels: %v", s.Do("PUBSUB", "CHANNELS"))
			for _, e := range engines {
				report(t, e)
			}
		}
	}()
	// At once, but for what was abandoned while its command was out: that comes back
	// with the answer. A lock that is lost to everybody has its lease of 30 s.
	for start := pace.Now(); s.Do("DBSIZE") != int64(0); {
		if start.Elapsed() > 5*time.Second {
			t.Errorf("keys are left: %v", s.Do("KEYS", "*"))
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	eventually(t, "no channel is subscribed", func() bool {
		list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == 0
	})
}

func hasText(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// report logs what an engine is doing, for a test that failed.
func report(t testing.TB, e *Engine) {
	t.Helper()
	t.Logf("stats: %+v", e.Stats())
	for _, l := range e.table.Recovery.View().Lanes {
		t.Logf("a lane, up %v: %d urgent, %d tries stalled, %d out", l.Lane.Up(), len(l.Urgent), len(l.Tries), l.Out)
	}
	states := map[string]int{}
	for i := range e.table.Shards() {
		sh := &e.table.Shards()[i]
		sh.Lock()
		for _, r := range sh.All() {
			v := r.View()
			states[fmt.Sprintf("cmd %d held %d wait %v hold %v waiters %v", v.What, v.Held, v.Waits, v.Hold, v.Waiters > 0)]++
		}
		sh.Unlock()
	}
	t.Logf("resources: %v", states)
}

// connected is the client of an engine that lives in the real world.
func connected(e *Engine) *resp.Client { return e.table.Client.(world.Connected).Client }

// inspect is what an engine remembers.
func inspect(e *Engine) world.Inside { return e.inside() }

// renewAll makes an engine renew everything that it holds.
func renewAll(e *Engine) { e.table.Renewer.All() }

// oneOf is what is behind the Hold of one lock.
func oneOf(h *Hold) *lockHold { return h.h.(*lockHold) }
