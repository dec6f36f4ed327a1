package faults

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/dnstest"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// secondHome has a server listen at the port of another, on an address of its own.
func secondHome(t *testing.T, ip, addr string, s *redistest.Server) {
	t.Helper()
	_, port, _ := net.SplitHostPort(addr)
	l, err := net.Listen("tcp", net.JoinHostPort(ip, port))
	if err != nil {
		t.Skipf("this machine has no second loopback address: %v", err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", s.Addr())
			if err != nil {
				in.Close()
				continue
			}
			wg.Go(func() { _, _ = io.Copy(out, in); out.Close() })
			wg.Go(func() { _, _ = io.Copy(in, out); in.Close() })
		}
	})
}

// logged is a log that may be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// count is how many lines have a text.
func (l *logged) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

const leadsElsewhere = "name leads elsewhere"

// A name leads to another server by now, and the old one goes on: the engine follows within a few
// answers, its holds are lost as at any server that is gone, and it says so once.
func TestEngine_NameLeadsElsewhere_FollowsIt(t *testing.T) {
	t.Parallel()
	a, b := testkit.Server(t), testkit.Server(t)
	secondHome(t, "127.0.0.2", a.Addr(), b)
	_, port, _ := net.SplitHostPort(a.Addr())
	const name = "moving.test"
	dnstest.Set(name, "127.0.0.1")
	var log logged
	open := func() *engine.Engine {
		return testkit.Open(t, "redis://"+name+":"+port, testkit.LeaseOf(3*time.Second), func(c *engine.Config) {
			c.LookupInterval = 100 * time.Millisecond
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
	}
	former := open()
	h := testkit.MustLock(t, former.Mutex("x"))
	dnstest.Set(name, "127.0.0.2")
	fresh := open()
	g := testkit.MustLock(t, fresh.Mutex("x"))
	testkit.Eventually(t, "the former engine has lost its hold", func() bool { return h.Err() != nil })
	if !errors.Is(h.Err(), engine.ErrLost) {
		t.Errorf("the hold ended with %v", h.Err())
	}
	if _, err := former.Mutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("the former engine does not see the holder at the new server: %v", err)
	}
	if n := log.count(leadsElsewhere); n != 1 {
		t.Errorf("logged %d times", n)
	}
	testkit.MustUnlock(t, g)
}

// A name whose resolver fails, or that leads to some of several addresses in turn, changes nothing.
func TestEngine_NameHasManyAddresses_KeepsItsConnections(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, manyAddresses)
}

// manyAddresses changes the name at every look. If this process stands still, some looks see the same
// for longer, which is a name that leads elsewhere.
func manyAddresses(t testing.TB) {
	a := testkit.Server(t)
	_, port, _ := net.SplitHostPort(a.Addr())
	const name = "many.test"
	dnstest.Set(name, "127.0.0.1")
	var log logged
	e := testkit.Open(t, "redis://"+name+":"+port, func(c *engine.Config) {
		c.LookupInterval = 20 * time.Millisecond
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	h := testkit.MustLock(t, e.Mutex("x"))
	subsets := [][]string{{"127.0.0.1", "127.0.0.2"}, {"127.0.0.3", "127.0.0.4"}, {}, {"127.0.0.5"}, {"127.0.0.3"}}
	for i := range 40 {
		dnstest.Set(name, subsets[i%len(subsets)]...)
		before := dnstest.Answers(name)
		testkit.Eventually(t, "the name is looked up", func() bool { return dnstest.Answers(name) > before })
	}
	if s := e.Stats(); s.Reconnects != 0 || h.Err() != nil || log.count(leadsElsewhere) != 0 {
		t.Errorf("%d reconnects, the hold: %v", s.Reconnects, h.Err())
	}
	testkit.MustUnlock(t, h)
}
