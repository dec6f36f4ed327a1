package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

// with are those with all the words.
func (l *lines) with(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

func (l *lines) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

// An outage is one line that says how much is at stake, and another one with its length when it is
// over. Renewals that fail in it are one line, with names; so it is in the next outage.
func TestLog_Outage_IsALineAtEachEnd(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or locks are lost, which are lines, too
		var log lines
		_, p, e := testkit.Behind(t, func(c *engine.Config) {
			c.Lease, c.Margin, c.Logger = 4*time.Second, time.Second, log.logger(slog.LevelInfo)
		})
		var holds []*engine.Hold
		for i := range 7 {
			holds = append(holds, testkit.MustLock(t, e.Mutex(fmt.Sprint("held", i))))
		}
		for n := 1; n <= 2; n++ {
			p.Down()
			testkit.Eventually(t, "renewals fail", func() bool { return len(log.with("a renewal failed")) == n })
			testkit.Pause(nil, 300*time.Millisecond) // many of them
			p.Up()
			testkit.Eventually(t, "the end is told", func() bool { return len(log.with("level=INFO", "is back", "after=", p.Addr())) == n })
			testkit.Eventually(t, "all are renewed", func() bool { return e.Ready() == nil })
			if got := log.with("level=WARN", "no connection to a server", "holds=7", "first_ends_in=", "err=", p.Addr()); len(got) != n {
				t.Errorf("%d outages: %q", n, got)
			}
			if got := log.with("a renewal failed", "locks=", "held"); len(got) != n || strings.Count(got[0], "held") > 5 {
				t.Errorf("%d outages: %q", n, got)
			}
			if got := log.with("level="); len(got) != 3*n {
				t.Errorf("%d outages are %d lines: %q", n, len(got), got)
			}
		}
		for _, h := range holds {
			testkit.MustUnlock(t, h)
		}
	})
}

// A server that died and whose names others serve by now is not back.
func TestLog_OutageThatAFailoverEnds_DoesNotSayThatTheServerIsBack(t *testing.T) {
	t.Parallel()
	var log lines
	r := redistest.StartReplicated(t, 1)
	dead, other := r.Servers()[0], r.Servers()[1]
	e := testkit.Open(t, r.URL(), func(c *engine.Config) { c.Logger = log.logger(slog.LevelInfo) })
	dead.Kill()
	testkit.Eventually(t, "its outage is told", func() bool { return len(log.with("no connection to a server", dead.Addr())) == 1 })
	other.Do("REPLICAOF", "NO", "ONE")
	testkit.Eventually(t, "the end is told", func() bool { return len(log.with("level=INFO", "after=", dead.Addr())) == 1 })
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	if got := log.with("is back", dead.Addr()); len(got) != 0 || len(log.with("not needed any more", dead.Addr())) != 1 {
		t.Errorf("of a server that is dead: %q", got)
	}
}

// A server that is up and refuses what is written is no outage: renewals that fail are one line.
func TestLog_RenewalsRefused_AreOneLine(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or the loss is a line before anybody looks
		var log lines
		n := grants(t)
		rule := n.On(testkit.Calls(script.Renew), fakenode.Error("OOM command not allowed when used memory > 'maxmemory'."))
		e := testkit.Open(t, "redis://"+n.Addr(), func(c *engine.Config) { c.Lease, c.Logger = 3*time.Second, log.logger(slog.LevelInfo) })
		h := testkit.MustLock(t, e.Mutex("x"))
		testkit.Eventually(t, "many are refused", func() bool { return rule.Hits() > 10 })
		if got := log.with("level="); len(got) != 1 || !strings.Contains(got[0], "OOM") {
			t.Errorf("%q", got)
		}
		// The loss says so, too.
		testkit.Receive(t, h.Done())
		wantCause(t, h.Err(), "OOM")
		testkit.Eventually(t, "the loss is logged", func() bool { return len(log.with("a lock was lost", "OOM")) == 1 })
	})
}

// wantCause fails the test unless the hold was not renewed, and its error says why.
func wantCause(t testing.TB, err error, text string) {
	t.Helper()
	var refused *resp.ServerError
	if testkit.WantLost(t, text, err, engine.NotRenewed); !testkit.HasText(err, text) || !testkit.HasText(err, engine.NotRenewed.String()) {
		t.Errorf("the loss does not say why: %v", err)
	} else if !errors.As(err, &refused) {
		t.Errorf("%v: its cause is not found", err)
	}
}

// A hold that is lost because no connection could be made says why.
func TestLostError_NoConnection_SaysWhy(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or a lease is over before anything was refused
		n := grants(t)
		e := testkit.Open(t, "redis://"+n.Addr(), func(c *engine.Config) {
			c.Lease = time.Second
			c.Credentials = func(context.Context) (string, string, error) { return "", "old", nil }
		})
		h := testkit.MustLock(t, e.Mutex("x"))
		r := testkit.MustLock(t, e.Mutex("y"))
		n.On(fakenode.Is("AUTH"), fakenode.Error("WRONGPASS invalid username-password pair or user is disabled."))
		n.ResetAll()
		for _, h := range []*engine.Hold{h, r} {
			testkit.Receive(t, h.Done())
			wantCause(t, h.Err(), "WRONGPASS")
		}
		// A fixed lease that runs out is nobody's fault.
		other := testkit.Open(t, "redis://"+grants(t).Addr())
		fixed := testkit.MustLock(t, other.Mutex("z"), engine.Lease(100*time.Millisecond))
		testkit.Receive(t, fixed.Done())
		var lost *engine.LostError
		if !errors.As(fixed.Err(), &lost) || lost.Err != nil {
			t.Errorf("a fixed lease: %v", fixed.Err())
		}
	})
}
