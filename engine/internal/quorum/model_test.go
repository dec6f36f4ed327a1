package quorum

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

var (
	worldSeed = flag.Uint64("quorum.seed", 0, "run this world only")
	worlds    = flag.Int("quorum.worlds", 60, "how many worlds to run")
)

// Many clients want one lock, over servers that hang and go away. Never do two hold it; a
// majority of servers goes on; and in the end nothing is left.
func TestModel_Clients_TakeTurns(t *testing.T) {
	t.Parallel()
	if *worldSeed != 0 {
		newWorld(t, *worldSeed).lives()
		return
	}
	sections := 0
	for range *worlds {
		w := newWorld(t, rand.Uint64())
		w.lives()
		sections += w.sections()
	}
	t.Logf("%d sections in %d worlds", sections, *worlds)
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 0)), now: clock.Instant(time.Hour)}
	w.lease = []time.Duration{2 * time.Second, 30 * time.Second}[w.r.IntN(2)]
	for i := range []int{1, 2, 3, 3, 3, 4, 5, 5, 7}[w.r.IntN(9)] {
		far := w.between(0, 2*time.Millisecond)
		if w.r.IntN(5) == 0 {
			far = w.between(0, 150*time.Millisecond)
		}
		w.servers = append(w.servers, &server{world: w, id: i, far: far})
	}
	for i := range 1 + w.r.IntN(8) {
		c := &client{world: w, id: i, process: w.r.IntN(3)}
		w.clients = append(w.clients, c)
		c.later()
	}
	w.in(w.between(0, 2*time.Second), w.fault)
	return w
}

// lives is the life of a world: with faults; without; and its end.
func (w *world) lives() {
	w.t.Helper()
	never := func() bool { return false }
	w.run(20*time.Second, never)
	w.quiet = true
	for _, s := range w.servers {
		s.down, s.hangs = false, min(s.hangs, w.now)
	}
	before := make([]int, len(w.clients))
	for i, c := range w.clients {
		before[i] = c.sections
	}
	w.run(20*time.Minute, func() bool {
		for i, c := range w.clients {
			if c.sections == before[i] {
				return false
			}
		}
		return true
	})
	for i, c := range w.clients {
		if c.sections == before[i] {
			w.fail("client %d does not get the lock: %d before, stage %d", i, before[i], c.m.Stage)
		}
	}
	w.stopping = true
	w.run(20*time.Minute, never)
	for _, c := range w.clients {
		if c.m != nil {
			w.fail("client %d has not ended: stage %d", c.id, c.m.Stage)
		}
	}
	for _, s := range w.servers {
		if s.owner != nil || len(s.sleepers) != 0 {
			w.fail("server %d is held: %t, and %d wait", s.id, s.owner != nil, len(s.sleepers))
		}
	}
}

// fault has a server hang or go away for a while: mostly a minority of them.
func (w *world) fault() {
	if w.quiet {
		return
	}
	s := w.servers[w.r.IntN(len(w.servers))]
	bad := 0
	for _, one := range w.servers {
		if one.down || one.hangs > w.now {
			bad++
		}
	}
	if d := w.between(0, 3*time.Second); bad < len(w.servers)/2 || w.r.IntN(5) == 0 {
		w.says("server %d is away for %v", s.id, d)
		if w.r.IntN(2) == 0 {
			s.hangs = w.now.Add(d)
		} else {
			s.down = true
			w.in(d, func() { s.down = false })
		}
	}
	w.in(w.between(0, time.Second), w.fault)
}

func (w *world) sections() (n int) {
	for _, c := range w.clients {
		n += c.sections
	}
	return n
}
