//go:build unix

package inspect

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// mostMillis is how long a look may take, however many processes hang.
const mostMillis = 300

// deployments are those that the tests run on.
func deployments(t *testing.T, test func(t *testing.T, url string, do func(words ...string) any)) {
	if len(testkit.PeerArgs()) > 0 {
		peer(t)
		return
	}
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		s := testkit.Server(t)
		test(t, s.URL(), s.Do)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, false)
		test(t, c.URL(), func(words ...string) any { return c.Do(words[1], words...) })
	})
}

// peer is a process that holds a lock, or in which n goroutines wait for it. Its PeerArgs are the URL, the
// name, n (0: it holds the lock) and the service.
func peer(t *testing.T) {
	args := testkit.PeerArgs()
	n, _ := strconv.Atoi(args[2])
	cfg, err := engine.ParseURL(args[0])
	if err != nil {
		t.Fatal(err)
	}
	cfg.Service, cfg.CallSites, cfg.Labels = args[3], true, map[string]string{"zone": "a"}
	e, err := engine.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := e.Mutex(args[1])
	if n == 0 {
		testkit.MustLock(t, m)
	}
	for range n {
		m.LockAsync(context.Background())
	}
	fmt.Println("ready", e.ID())
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// started is a peer that has what it wants, or waits for it.
type started struct {
	*testkit.Peer
	id string
}

func start(t *testing.T, url, name string, waiters int, service string) started {
	t.Helper()
	p := testkit.StartPeer(t, url, name, waiters, service)
	_, id, ok := strings.Cut(p.Line(), " ")
	if !ok {
		t.Fatal("the peer did not start")
	}
	return started{p, id}
}

func within(t *testing.T, took time.Duration) {
	t.Helper()
	t.Logf("the look took %v", took)
	if took > mostMillis*time.Millisecond {
		t.Errorf("a look took %v, want at most %d ms", took, mostMillis)
	}
}

func TestInspect_Healthy_NamesHolderAndFiftyWaiters(t *testing.T) {
	t.Parallel()
	deployments(t, func(t *testing.T, url string, _ func(...string) any) {
		holder := start(t, url, "orders", 0, "billing")
		waiters := make(map[string]int)
		for i := range 5 {
			waiters[start(t, url, "orders", 10, fmt.Sprint("shop", i)).id] = 10
		}
		e := testkit.Open(t, url, inspected)
		info, took := inspectUntil(t, e, "orders", "all answer", func(i *engine.LockInfo) bool { return answers(i) && i.Waiting == 50 })
		within(t, took)
		host, _ := os.Hostname()
		h := info.Holders[0]
		if is := h.Engine; is.ID != holder.id || is.PID != holder.Pid || is.Host != host || is.Service != "billing" || is.Labels["zone"] != "a" {
			t.Errorf("the holder is %+v", is)
		}
		if u := h.Uses[0]; u.Kind != "mutex" || time.Since(u.Since) < time.Second || time.Since(u.Since) > time.Minute || u.Depth != 1 || !strings.Contains(u.Site, "testkit.MustLock hold.go:") {
			t.Errorf("the hold is %+v", u)
		}
		if info.Kind != "mutex" || !info.Locked || info.TTL <= 0 || info.Silent != 0 || info.NotAsked != nil || len(info.Unconfirmed) != 0 || len(info.Waiters) != 50 {
			t.Errorf("%+v", info)
		}
		for _, w := range info.Waiters {
			if waiters[w.Engine.ID]--; waiters[w.Engine.ID] < 0 || !strings.HasPrefix(w.Engine.Service, "shop") || !strings.Contains(w.Site, "inspect.peer processes_test.go:") {
				t.Errorf("waiter %+v", w)
			}
		}
	})
}

func TestInspect_HungHolder_IsConnectedAndDoesNotAnswer(t *testing.T) {
	t.Parallel()
	deployments(t, func(t *testing.T, url string, _ func(...string) any) {
		holder := start(t, url, "orders", 0, "billing")
		waiter := start(t, url, "orders", 2, "shop")
		e := testkit.Open(t, url, inspected)
		inspectUntil(t, e, "orders", "both answer", func(i *engine.LockInfo) bool { return answers(i) && i.Waiting == 2 })
		if err := holder.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		info, took := inspectUntil(t, e, "orders", "it answers no more, the other does", func(i *engine.LockInfo) bool {
			return len(i.Holders) == 1 && !answers(i) && i.Waiting == 2
		})
		within(t, took)
		if is := info.Holders[0].Engine; is.ID != holder.id || is.Answered || is.Hidden != nil || !strings.Contains(is.Addr, ":") {
			t.Errorf("the holder is %+v", is)
		}
		if info.Silent != 1 || info.Waiting != 2 || info.Waiters[0].Engine.ID != waiter.id {
			t.Errorf("silent: %d; waiters: %+v", info.Silent, info.Waiters)
		}
	})
}

func TestInspect_DeadHolder_IsNotConnected(t *testing.T) {
	t.Parallel()
	deployments(t, func(t *testing.T, url string, _ func(...string) any) {
		holder := start(t, url, "orders", 0, "billing")
		e := testkit.Open(t, url, inspected)
		inspectUntil(t, e, "orders", "it answers", answers)
		if err := holder.Kill(); err != nil {
			t.Fatal(err)
		}
		info, took := inspectUntil(t, e, "orders", "it is gone", func(i *engine.LockInfo) bool {
			return len(i.Holders) == 1 && !i.Holders[0].Engine.Answered && i.Holders[0].Engine.Addr == ""
		})
		within(t, took)
		if is := info.Holders[0].Engine; is.ID != holder.id || is.Host != "" || is.Addr != "" || info.Silent != 0 {
			t.Errorf("the holder is %+v, silent %d", is, info.Silent)
		}
	})
}

func TestInspect_Redisson_IsNotConnectedUnderItsID(t *testing.T) {
	t.Parallel()
	deployments(t, func(t *testing.T, url string, do func(...string) any) {
		const client = "0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11"
		do("HSET", "orders", client+":39", "2")
		do("PEXPIRE", "orders", "60000")
		e := testkit.Open(t, url, inspected)
		info, took := inspectUntil(t, e, "orders", "it is seen", func(i *engine.LockInfo) bool { return i.Locked })
		within(t, took)
		h := info.Holders[0]
		if h.ID != client+":39" || h.Count != 2 || h.Engine.ID != client || h.Engine.Answered || h.Engine.Addr != "" || h.Engine.Hidden != nil || len(h.Uses) != 0 {
			t.Errorf("the holder is %+v, %+v", h, h.Engine)
		}
	})
}
