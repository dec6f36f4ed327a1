package faults

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A writer is lost, as no renewal was answered. A reader beside it has a longer lease, which keeps the
// hash, and so the writer in it. When the server is there again the writer is released, however long
// that took: nobody else would ever take it away.
func TestAWriterThatWasLostBesideAReaderIsReleasedHoweverLate(t *testing.T) {
	t.Parallel()
	for _, unlocked := range []bool{false, true} {
		name := map[bool]string{false: "lost", true: "unlocked meanwhile"}[unlocked]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t, testkit.LeaseOf(time.Second))
			other := testkit.Open(t, s.URL())
			w := testkit.MustLock(t, e.RWMutex("x").Writer())
			r, err := e.RWMutex("x").Reader().Lock(w.Context(testkit.Ctx(t)), engine.Lease(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			p.Down()
			if unlocked {
				w.UnlockAsync()
			}
			testkit.Receive(t, w.Done())
			testkit.Pause(nil, 6*time.Second) // its lease, one more, and 2 s: an owner on its own would be forgotten
			p.Up()
			testkit.MustUnlock(t, r)
			next, err := other.RWMutex("x").Writer().Lock(testkit.Within(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, next)
			testkit.Clean(t, s, e, other)
		})
	}
}

// A Shutdown that goes on meanwhile does not forget the writer either: as long as the hash may have
// what readers beside it were given, it is to be released.
func TestAShutdownReleasesAWriterThatWasLostBesideAReader(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{false, true} {
		name := map[bool]string{false: "the reader works on", true: "the reader has left"}[left]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t, testkit.LeaseOf(time.Second))
			other := testkit.Open(t, s.URL())
			w := testkit.MustLock(t, e.RWMutex("x").Writer())
			r, err := e.RWMutex("x").Reader().Lock(w.Context(testkit.Ctx(t)), engine.Lease(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if left {
				testkit.MustUnlock(t, r)
			}
			p.Down()
			done := make(chan error, 1)
			go func() { done <- e.Shutdown(testkit.Ctx(t)) }()
			testkit.Receive(t, w.Done())
			testkit.Pause(nil, 6*time.Second)
			p.Up()
			if !left {
				testkit.MustUnlock(t, r)
			}
			if err := testkit.Receive(t, done); err != nil {
				t.Error(err)
			}
			next, err := other.RWMutex("x").Writer().Lock(testkit.Within(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, next)
			testkit.Clean(t, s, e, other)
		})
	}
}
