package topology

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// addedACL are the words that the page adds for a kind.
func addedACL(t *testing.T, kind string) []string {
	t.Helper()
	_, text, found := strings.Cut(operations(t), "\n- "+kind+": `")
	text, _, ended := strings.Cut(text, "`")
	if !found || !ended {
		t.Fatalf("docs/operations.md has no rule for %s", kind)
	}
	return strings.Fields(text)
}

// What the page adds for semaphores and latches is enough, and all of it is used.
func TestTheDocumentedACLRulesOfCountsAreEnough(t *testing.T) {
	t.Parallel()
	enoughACL(t, map[string]use{"a `PermitSemaphore`": usePermits, "a `Semaphore` or a `Latch`": useCounts})
}

// use does, by two engines, all that needs rights that the page adds.
type use func(t *testing.T, srv *redistest.Server, e, other *engine.Engine)

// enoughACL fails the test if what the page adds for these kinds is not enough, or is more than
// what they use.
func enoughACL(t *testing.T, uses map[string]use) {
	for kind, use := range uses {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			more := addedACL(t, kind)
			if words := append(documentedACL(t), more...); s.Do(words...) != "OK" {
				t.Fatal(words)
			}
			s.Do("CONFIG", "RESETSTAT")
			url := "redis://pawl:secret@" + s.Addr() + "?lease=3s"
			use(t, s, testkit.Open(t, url), testkit.Open(t, url))
			denied, _ := s.Do("ACL", "LOG").([]any)
			for _, entry := range denied {
				if !strings.Contains(fmt.Sprint(entry), " object client") {
					t.Errorf("the server refused: %v", entry)
				}
			}
			used := s.CommandStats()
			for _, word := range more {
				if command, granted := strings.CutPrefix(word, "+"); granted && used[command] == 0 {
					t.Errorf("the rule grants %s, which nothing used", command)
				}
			}
		})
	}
}

func usePermits(t *testing.T, srv *redistest.Server, e, other *engine.Engine) {
	ctx := testkit.Ctx(t)
	s, far := e.PermitSemaphore("orders:1"), other.PermitSemaphore("orders:1")
	if ok, err := s.TrySetPermits(ctx, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := s.SetPermits(ctx, 2); err != nil {
		t.Fatal(err)
	}
	h, err := s.Acquire(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	waits := far.AcquireAsync(ctx, 3)
	testkit.Eventually(t, "it listens", func() bool { return other.Stats().Channels == 1 })
	testkit.Eventually(t, "it is renewed", func() bool { return e.Stats().Renewed > 0 })
	if err := s.AddPermits(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Capacity(ctx); n != 3 || err != nil {
		t.Error(n, err)
	}
	testkit.MustUnlock(t, h)
	h, err = waits.Await(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := s.ForceRelease(ctx, h.PermitIDs()[0]); !ok || err != nil {
		t.Error(ok, err)
	}
	srv.Do("ZADD", "{orders:1}:timeout", "1", "one that expired")
	if n, err := s.Available(ctx); n < 1 || err != nil {
		t.Error(n, err)
	}
}

func useCounts(t *testing.T, _ *redistest.Server, e, other *engine.Engine) {
	ctx := testkit.Ctx(t)
	s, l := e.Semaphore("orders:1"), e.Latch("orders:2")
	if ok, err := s.TrySetPermits(ctx, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := l.TrySetCount(ctx, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	waits, awaits := other.Semaphore("orders:1").AcquireAsync(context.Background(), 1), other.Latch("orders:2").AwaitAsync(context.Background())
	testkit.Eventually(t, "they listen", func() bool { return testkit.Client(other).Stats().ChannelsConfirmed == 2 })
	for _, err := range []error{p.Release(ctx), l.CountDown(ctx), s.AddPermits(ctx, 2)} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := awaits.Await(ctx); err != nil {
		t.Error(err)
	}
	if _, err := waits.Await(ctx); err != nil {
		t.Error(err)
	}
	// Only now: a Drain takes what a waiter has been told of and has not yet asked for.
	for _, err := range []error{testkit.ErrOf(s.Available(ctx)), testkit.ErrOf(s.Drain(ctx))} {
		if err != nil {
			t.Error(err)
		}
	}
}
