package engine

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestLockUnlockLeavesTheServerClean(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("orders:42")
	for range 3 {
		h := mustLock(t, m)
		if f := fields(t, s, "orders:42"); f[h.Owner()] != "1" || len(f) != 1 {
			t.Fatalf("hash is %v, want {%s:1}", f, h.Owner())
		}
		if ttl := s.Do("PTTL", "orders:42").(int64); ttl < 25000 || ttl > 30000 {
			t.Fatalf("PTTL is %d", ttl)
		}
		mustUnlock(t, h)
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
			t.Fatalf("second Unlock: %v", err)
		}
	}
	clean(t, s)
}

func TestWaiterIsWokenByRelease(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, a.Mutex("x"))
	f := b.Mutex("x").LockAsync(ctxT(t))
	eventually(t, "b subscribes", func() bool {
		list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == 1 && list[0] == "redisson_lock__channel:{x}"
	})
	if _, err := f.Result(); err != ErrPending {
		t.Fatalf("b is not waiting: %v", err)
	}
	start := cputime.Now()
	mustUnlock(t, h)
	h2, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := start.Elapsed(); d > 2*time.Second {
		t.Errorf("woken after %v", d)
	}
	mustUnlock(t, h2)
	clean(t, s)
}

func TestManyGoroutinesExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := server(t)
	engines := []*Engine{open(t, s.URL()), open(t, s.URL()), open(t, s.URL())}
	var inside, total int
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			for range 50 {
				h, err := engines[i%3].Mutex("hot").Lock(ctxT(t))
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Errorf("%d inside", inside)
				}
				total++
				stay(s)
				inside--
				if err := h.Unlock(ctxT(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if total != 1500 {
		t.Errorf("total %d", total)
	}
	clean(t, s)
}
