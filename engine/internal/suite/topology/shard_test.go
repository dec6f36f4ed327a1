package topology

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// One shard that hangs holds up nobody's renewals but its own.
func TestDeadShardDelaysNoOtherRenewals(t *testing.T) {
	t.Parallel()
	many := 4 * 4_000
	testkit.Steady(t, func(t testing.TB) {
		many = max(many/4, 1000) // what a machine that has no time to spare may manage
		deadShard(t, many, 8*time.Second)
	})
}

// deadShard stops one of three nodes under so many holds. With more of them the race
// detector alone keeps a machine busy: see the test of 100,000 without it.
func deadShard(t testing.TB, many int, lease time.Duration) {
	cluster := redistest.StartCluster(t, false)
	at := testkit.Clustered(cluster)
	stopped := cluster.Nodes()[1]
	var late lateness
	e := at.Open(t, testkit.LeaseOf(lease), func(c *engine.Config) {
		c.Observer = engine.ObserverFuncs{OnRenewEnd: func(end engine.RenewEnd) { late.note(end, stopped.Addr()) }}
	})
	ctx := testkit.Ctx(t) // one for all: each has a timer until the test ends
	var taking []*engine.Future[*engine.Hold]
	for i := range many {
		taking = append(taking, e.Mutex(fmt.Sprint("x", i)).LockAsync(ctx))
	}
	holds, err := engine.AwaitAll(ctx, taking...)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("while they were taken: ", &late)
	for _, h := range holds {
		if err := h.Err(); err != nil {
			t.Fatalf("%s, before anything was stopped: %v", h.Name(), err)
		}
	}
	var healthy, hung []*engine.Hold
	slots := make(map[uint16]bool)
	for _, h := range holds {
		route := testkit.Client(e).Route(h.Name())
		slots[resp.Slot(route)] = true
		if testkit.Client(e).AddrOf(route) == stopped.Addr() {
			hung = append(hung, h)
		} else {
			healthy = append(healthy, h)
		}
	}
	t.Logf("%d holds over %d slots, %d of them on the node that is stopped", many, len(slots), len(hung))
	if len(hung) < many/4 || len(slots) < min(many/2, 16_000) {
		t.Fatal("the holds are not spread over the slots")
	}
	start := time.Now()
	stopped.Stop()
	late.reset()
	for _, h := range hung {
		<-h.Done()
		if err := h.Err(); !errors.Is(err, engine.ErrLost) {
			t.Errorf("%s: %v", h.Name(), err)
		}
	}
	t.Logf("those on the node that is stopped ended within %v", time.Since(start).Round(time.Millisecond))
	n := e.Stats().Renewed
	testkit.Eventually(t, "the others are renewed", func() bool {
		st := e.Stats()
		return st.Renewed >= n+uint64(len(healthy)) || st.Held < len(healthy)
	})
	// When its renewal is due, a lease has two thirds left.
	late.report(t, lease*2/5)
	for _, h := range healthy {
		if err := h.Err(); err != nil {
			t.Fatalf("%s: %v", h.Name(), err)
		}
	}
	stopped.Cont()
	var going []*engine.Future[struct{}]
	for _, h := range healthy {
		going = append(going, h.UnlockAsync())
	}
	if _, err := engine.AwaitAll(testkit.Ctx(t), going...); err != nil {
		t.Error(err)
	}
	at.Clean(t)
}

// lateness is how much later than due renewals went out and were answered, of all
// nodes but one.
type lateness struct {
	mu      sync.Mutex
	scripts int
	failed  int
	why     map[string]int
	worst   time.Duration
}

func (l *lateness) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scripts, l.failed, l.why, l.worst = 0, 0, nil, 0
}

func (l *lateness) note(ev engine.RenewEnd, except string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ev.Server == except {
		return
	}
	l.scripts++
	l.worst = max(l.worst, ev.Lag+ev.RTT)
	if ev.Err != nil {
		l.failed++
		if l.why == nil {
			l.why = make(map[string]int)
		}
		l.why[ev.Err.Error()]++
	}
}

func (l *lateness) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d renewal scripts of healthy nodes, %d failed %v, the latest was answered %v after it was due",
		l.scripts, l.failed, l.why, l.worst.Round(time.Millisecond))
}

// report fails the test if any was later than most.
func (l *lateness) report(t testing.TB, most time.Duration) {
	t.Helper()
	t.Log("since then: ", l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scripts == 0 || l.failed > 0 || l.worst > most {
		t.Error("the healthy nodes were held up")
	}
}
