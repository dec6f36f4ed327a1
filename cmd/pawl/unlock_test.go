package main

import (
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine"
)

// Between the look and the removal a waiter may get the lock, and also because of the removal. It is
// not the one that was meant.
func TestForcedUnlockOfReadersSparesTheWriterThatComesNext(t *testing.T) {
	t.Parallel()
	s, _ := server(t)
	eng := openEngine(t, s.URL())
	for name, x := range map[string]struct {
		had, next func(engine.RWMutex) engine.Mutex
	}{
		"readers, then a writer": {engine.RWMutex.Reader, engine.RWMutex.Writer},
		"a writer, then readers": {engine.RWMutex.Writer, engine.RWMutex.Reader},
	} {
		had := x.had(openEngine(t, s.URL()).RWMutex("x"))
		next := x.next(openEngine(t, s.URL()).RWMutex("x"))
		must(had.TryLock(t.Context()))(t)
		seen, err := eng.Inspect(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := forceUnlock(t.Context(), eng, seen, ""); n != 1 || err != nil {
			t.Errorf("%s: %d removed, %v", name, n, err)
		}
		h := must(next.TryLock(t.Context()))(t)
		if n, err := forceUnlock(t.Context(), eng, seen, ""); n != 0 || err != nil {
			t.Errorf("%s: %d removed, %v", name, n, err)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The same if the lock was free when it was looked at, and has a token or a queue beside it.
func TestForcedUnlockOfAFreeLockSparesWhoComesNext(t *testing.T) {
	t.Parallel()
	s, _ := server(t)
	eng := openEngine(t, s.URL())
	other := openEngine(t, s.URL())
	for name, prepare := range map[string]func(){
		"fenced": func() {
			if err := must(other.FencedMutex("x").TryLock(t.Context()))(t).Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"fair": func() {
			dead := "5e0c0000-0000-0000-0000-000000000000:1"
			s.Do("RPUSH", "redisson_lock_queue:{x}", dead)
			s.Do("ZADD", "redisson_lock_timeout:{x}", "99999999999999", dead)
		},
	} {
		s.Do("FLUSHALL")
		prepare()
		seen := must(eng.Inspect(t.Context(), "x"))(t)
		if seen.Kind == "" || seen.Locked {
			t.Fatalf("%s: it is %+v", name, seen)
		}
		if name == "fair" { // its head is woken, as long as it is free
			before := s.CommandStats()["publish"]
			if n, err := forceUnlock(t.Context(), eng, seen, ""); n != 0 || err != nil {
				t.Errorf("%s: %d removed, %v", name, n, err)
			}
			if n := s.CommandStats()["publish"] - before; n != 1 {
				t.Errorf("%s: %d are woken", name, n)
			}
		}
		h := must(other.Mutex("x").TryLock(t.Context()))(t)
		if n, err := forceUnlock(t.Context(), eng, seen, ""); n != 0 || err != nil {
			t.Errorf("%s: %d removed, %v", name, n, err)
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A reader beside its writer, as status shows it, is removed alone, and also when the writer has left.
func TestForcedUnlockOfAReaderBesideAWriterSparesTheWriter(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	eng := openEngine(t, s.URL())
	rw := openEngine(t, s.URL()).RWMutex("x")
	writer := must(rw.Writer().TryLock(t.Context()))(t)
	reader := must(rw.Reader().TryLock(writer.Context(t.Context())))(t)
	pawl(t, env, "status", "x").expect(t, 0, "write, and read by 1")
	pawl(t, env, "unlock", "--force", "x", "--if-holder", reader.Owner()).expect(t, 0, "x: removed")
	if st := must(rw.Writer().State(t.Context()))(t); len(st.Holders) != 1 || st.Holders[0].ID != writer.Owner() {
		t.Fatalf("the lock is held by %v", st.Holders)
	}
	reader = must(rw.Reader().TryLock(writer.Context(t.Context())))(t)
	seen := must(eng.Inspect(t.Context(), "x"))(t)
	if err := writer.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := forceUnlock(t.Context(), eng, seen, reader.Owner()); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
}

// What is held by others by the time that it is removed is not called free.
func TestForcedUnlockSaysThatTheLockHasChangedHands(t *testing.T) {
	t.Parallel()
	s, _ := server(t)
	eng := openEngine(t, s.URL())
	rw := openEngine(t, s.URL()).RWMutex("x")
	writer := must(rw.Writer().TryLock(t.Context()))(t)
	seen := must(eng.Inspect(t.Context(), "x"))(t)
	must(rw.Downgrade(t.Context(), writer))(t)
	n, err := forceUnlock(t.Context(), eng, seen, "")
	if n != 0 || err != nil {
		t.Fatalf("%d removed, %v", n, err)
	}
	if err := nothingRemoved(seen, ""); !strings.Contains(err.Error(), "changed hands") {
		t.Error(err)
	}
}
