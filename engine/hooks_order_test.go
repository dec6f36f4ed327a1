package engine

import (
	"slices"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// chronicle notes the events of holds.
type chronicle struct {
	mu     sync.Mutex
	events []string
}

func (c *chronicle) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, what)
}

func (c *chronicle) hooks(cfg *Config) {
	cfg.Hooks = Hooks{
		Acquired: func(ev AcquiredEvent) {
			if ev.Err == nil {
				c.note("acquired")
			}
		},
		Released: func(HoldEvent) { c.note("released") },
		Lost:     func(ev HoldEvent) { c.note("lost: " + ev.Reason.String()) },
	}
}

// want waits for as many events, and compares them.
func (c *chronicle) want(t *testing.T, events ...string) {
	t.Helper()
	seen := func() []string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.events)
	}
	eventually(t, "the events", func() bool { return len(seen()) >= len(events) })
	if got := seen(); !slices.Equal(got, events) {
		t.Errorf("events: %v, want %v", got, events)
	}
}

// What is granted ends: else a gauge of holds never gets back to zero. Re-entries end with
// what they re-enter, whether or not they are unlocked.
func TestHooksAndStatsHearOfTheEndOfEveryReentry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end      func(*testing.T, *faultproxy.Proxy, *Hold, *Hold)
		events   []string
		released uint64
		lost     LostReason
	}{
		"the outermost is unlocked": {
			end:    func(t *testing.T, _ *faultproxy.Proxy, h, _ *Hold) { mustUnlock(t, h) },
			events: []string{"released", "released", "released"}, released: 3,
		},
		"the outermost is unlocked while the innermost is": {
			end: func(t *testing.T, p *faultproxy.Proxy, h, innermost *Hold) {
				p.Pause(faultproxy.All)
				innermost.UnlockAsync()
				f := h.UnlockAsync()
				p.Resume()
				if _, err := f.Await(ctxT(t)); err != nil {
					t.Error(err)
				}
			},
			events: []string{"released", "released", "released"}, released: 3,
		},
		"lost": {
			end:    func(_ *testing.T, _ *faultproxy.Proxy, h, _ *Hold) { _ = oneOf(h).home().Close() },
			events: []string{"lost: the engine was closed", "lost: the engine was closed", "lost: the engine was closed"}, lost: EngineClosed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := new(chronicle)
			_, p, e := behind(t, told.hooks)
			h := mustLock(t, e.Mutex("x"))
			child := mustReenter(t, e.Mutex("x"), h)
			c.end(t, p, h, mustReenter(t, e.Mutex("x"), child))
			told.want(t, append([]string{"acquired", "acquired", "acquired"}, c.events...)...)
			st := e.Stats()
			if st.Held != 0 || st.Acquired != 3 || st.Released != c.released || st.Lost[c.lost] != 3-c.released {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A hold may be lost before anybody is told of its grant, here by Close.
func TestHooksHearOfAGrantBeforeItsLoss(t *testing.T) {
	t.Parallel()
	told := new(chronicle)
	e := open(t, server(t).URL(), told.hooks)
	m := e.Mutex("x")
	a := e.newAcquisition(m, options{}, true)
	now := e.clock.Now()
	var fx machine.Effects
	a.Shard.Lock()
	r, _ := a.Shard.Get(m.key, m.route, &a.Request.Request)
	r.Admit(&a.Request.Request, &fx)
	r.Replied(&machine.Outcome{Sent: now, Now: now}, &fx)
	a.Shard.Unlock()
	e.table.Each((*machine.Resource).EndHold)
	fx.Send = nil // it has been answered
	e.table.Run(&fx)
	told.want(t, "acquired", "lost: the engine was closed")
}
