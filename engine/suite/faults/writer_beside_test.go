package faults

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
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
			s, p, e := kit.Behind(t, kit.LeaseOf(time.Second))
			other := kit.Open(t, s.URL())
			w := kit.MustLock(t, e.RWMutex("x").Writer())
			r, err := e.RWMutex("x").Reader().Lock(w.Context(kit.Ctx(t)), engine.Lease(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			p.Down()
			if unlocked {
				w.UnlockAsync()
			}
			kit.Receive(t, w.Done())
			kit.Pause(nil, 6*time.Second) // its lease, one more, and 2 s: an owner on its own would be forgotten
			p.Up()
			kit.MustUnlock(t, r)
			next, err := other.RWMutex("x").Writer().Lock(kit.Within(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			kit.MustUnlock(t, next)
			kit.Clean(t, s, e, other)
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
			s, p, e := kit.Behind(t, kit.LeaseOf(time.Second))
			other := kit.Open(t, s.URL())
			w := kit.MustLock(t, e.RWMutex("x").Writer())
			r, err := e.RWMutex("x").Reader().Lock(w.Context(kit.Ctx(t)), engine.Lease(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if left {
				kit.MustUnlock(t, r)
			}
			p.Down()
			done := make(chan error, 1)
			go func() { done <- e.Shutdown(kit.Ctx(t)) }()
			kit.Receive(t, w.Done())
			kit.Pause(nil, 6*time.Second)
			p.Up()
			if !left {
				kit.MustUnlock(t, r)
			}
			if err := kit.Receive(t, done); err != nil {
				t.Error(err)
			}
			next, err := other.RWMutex("x").Writer().Lock(kit.Within(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			kit.MustUnlock(t, next)
			kit.Clean(t, s, e, other)
		})
	}
}
