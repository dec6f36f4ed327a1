package interop

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// permitGrounds are where a PermitSemaphore meets the RPermitExpirableSemaphore of Redisson.
var permitGrounds = []ground{{name: "standalone", sites: 1}, {name: "cluster", sites: 1, cluster: true}}

// Both sides count the same permits, give back those of each other, and wake each other.
func TestPermitsAcross(t *testing.T) {
	t.Parallel()
	for _, g := range permitGrounds {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, g, calm)
			sem, place := s.engines[0].PermitSemaphore("sem"), s.clients[0]+"/sem"
			ask := func(verb string, words ...any) answer {
				return s.jvm.ask(s.clients[0], verb, append([]any{place}, words...)...)
			}
			counts := func(want string) {
				t.Helper()
				if got := ask("permits-count").want(t); got != want {
					t.Errorf("Java counts %s, want %s", got, want)
				}
			}
			if set, err := sem.TrySetPermits(testkit.Ctx(t), 3); !set || err != nil {
				t.Fatalf("%v, %v", set, err)
			}
			h, err := sem.Acquire(testkit.Ctx(t), 2, engine.Lease(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			counts("1 2 3")
			id := h.PermitIDs()[0]
			if left := parse(t, ask("permits-left", id).want(t)); left < 50_000 || left > 60_000 {
				t.Errorf("Java says that %d ms are left", left)
			}
			if ok := ask("permits-extend", id, 120_000).want(t); ok != "true" {
				t.Errorf("Java extends: %s", ok)
			}

			// Java has the last one; the waiter here is woken when it comes back.
			theirs := ask("permits-take", 1, 0, 60_000).want(t)
			if len(theirs) != 32 {
				t.Fatalf("Java has %q", theirs)
			}
			if n, err := sem.Acquired(testkit.Ctx(t)); n != 3 || err != nil {
				t.Errorf("%d are held, %v", n, err)
			}
			var waits *engine.Future[*engine.Hold]
			s.asleep(t, s.engines[0], "sem", func() { waits = sem.AcquireAsync(testkit.Ctx(t), 1) })
			start := time.Now()
			if ok := ask("permits-give", theirs).want(t); ok != "true" {
				t.Errorf("Java gives back: %s", ok)
			}
			mine, err := waits.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			soon(t, "Go's wake-up", start)

			// The waiter there is woken when it comes back from here.
			java := ask("permits-take", 1, 30_000, 60_000)
			s.jvm.asleep(t, java)
			start = time.Now()
			if err := mine.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
			theirs = java.want(t)
			soon(t, "Java's wake-up", start)
			if len(theirs) != 32 {
				t.Fatalf("Java has %q", theirs)
			}
			// Each may give back those of the other, once.
			for i, want := range []bool{true, false} {
				if ok, err := sem.ForceRelease(testkit.Ctx(t), theirs); ok != want || err != nil {
					t.Errorf("ForceRelease %d: %v, %v", i, ok, err)
				}
			}
			if ok := ask("permits-give", id).want(t); ok != "true" {
				t.Errorf("Java gives back: %s", ok)
			}
			if err := h.Unlock(testkit.Ctx(t)); err == nil {
				t.Error("Unlock of what Java has given back in part")
			}
			counts("3 0 3")
			ask("permits-add", 2).want(t)
			counts("5 0 5")
			if err := sem.SetPermits(testkit.Ctx(t), 1); err != nil {
				t.Error(err)
			}
			counts("1 0 1")
		})
	}
}
