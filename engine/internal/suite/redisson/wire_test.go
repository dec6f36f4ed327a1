package redisson

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/resp"
)

func TestHashOfRedissonBlocksPawl(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		m := testkit.Open(t, s.URL()).Mutex("L")
		// By hand, as Redisson leaves it after lock() twice.
		s.Do("HSET", "L", javaA+":39", "2")
		s.Do("PEXPIRE", "L", "30000")
		var taken *engine.NotAcquiredError
		if _, err := m.TryLock(testkit.Ctx(t)); !errors.As(err, &taken) || taken.TTL < 20*time.Second || taken.TTL > 30*time.Second {
			t.Fatalf("TryLock: %v", err)
		}
		if _, err := m.Lock(testkit.Ctx(t), engine.Wait(100*time.Millisecond)); !errors.Is(err, engine.ErrNotAcquired) {
			t.Fatalf("Lock: %v", err)
		}
		if f := testkit.Fields(t, s, "L"); len(f) != 1 || f[javaA+":39"] != "2" {
			t.Fatalf("the hash became %v", f)
		}
	})
}

func TestRedissonsMessageWakesPawl(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		java := redisson{s, javaA}
		java.mustTryLock(t, "L", 39, 30*time.Second)
		java.mustTryLock(t, "L", 39, 30*time.Second)
		f := e.Mutex("L").LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "Pawl listens", func() bool { return e.Stats().Channels == 1 && e.Stats().InFlight == 0 })

		// Messages that mean nothing to Redisson, or to nobody, do no harm here either.
		for _, odd := range []string{"1", "5", "-1", "text", ""} {
			s.Do(verb(s, "PUBLISH"), "redisson_lock__channel:{L}", odd)
		}
		java.mustUnlock(t, "L", 39, int64(0)) // still held: no message
		if _, err := f.Result(); err != engine.ErrPending {
			t.Fatalf("Pawl has the lock that Redisson holds: %v", err)
		}

		start := cputime.Now()
		java.mustUnlock(t, "L", 39, int64(1))
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if d := start.Elapsed(); d > 5*time.Second {
			t.Errorf("woken after %v: not by the message", d)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s)
	})
}

func TestReleaseOfPawlIsAnnouncedAsRedissonExpects(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		m := e.Mutex("L")
		heard := listen(t, s, "redisson_lock__channel:{L}")
		h := testkit.MustLock(t, m)
		if granted, left, err := (redisson{s, javaA}).tryLock("L", 39, time.Minute); granted || err != nil || left < 20*time.Second || left > 30*time.Second {
			t.Fatalf("Redisson's try while Pawl holds: granted %t, left %v, %v", granted, left, err)
		}
		inner, err := m.Lock(h.Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, inner) // still held: no message
		heard.hearsNothing(t)
		testkit.MustUnlock(t, h)
		heard.hears(t, "0")

		testkit.MustLock(t, m)
		if done, err := m.ForceUnlock(testkit.Ctx(t)); !done || err != nil {
			t.Fatal(done, err)
		}
		heard.hears(t, "0")
		if done, err := m.ForceUnlock(testkit.Ctx(t)); done || err != nil {
			t.Fatal("of a free lock:", done, err)
		}
		heard.hearsNothing(t)
	})
}

func TestChannelFollowsRedissonsBraceRule(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		for name, channel := range map[string]string{
			"orders":    "redisson_lock__channel:{orders}",
			"{t}x":      "redisson_lock__channel:{t}x",
			"x:{t}:y":   "redisson_lock__channel:x:{t}:y",
			"blank é\n": "redisson_lock__channel:{blank é\n}",
			"a}b":       "redisson_lock__channel:{a}b}", // these have another slot than their key
			"x{t":       "redisson_lock__channel:x{t",
			"{}x":       "redisson_lock__channel:{}x",
			"}{":        "redisson_lock__channel:}{",
		} {
			if s.InCluster() && resp.SlotOf(name) != resp.SlotOf(channel) {
				if _, err := e.Mutex(name).Lock(testkit.Ctx(t)); !errors.Is(err, engine.ErrInvalid) {
					t.Errorf("%q in a cluster: %v", name, err)
				}
				continue
			}
			heard := listen(t, s, channel)
			h := testkit.MustLock(t, e.Mutex(name))
			if f := testkit.Fields(t, s, name); f[h.Owner()] != "1" {
				t.Errorf("%q: the key is not the plain name: %v", name, s.Do("KEYS", "*"))
			}
			waiter := testkit.Open(t, s.URL())
			f := waiter.Mutex(name).LockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "Pawl listens there, too", func() bool { return subscribers(s, channel) == 2 })
			testkit.MustUnlock(t, h)
			heard.hears(t, "0")
			h, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, h)
			heard.hears(t, "0")
		}
	})
}

func TestMappedNameIsWhatRedissonsMapperGives(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.NameMapper = func(name string) string { return "test::" + name } })
		heard := listen(t, s, "redisson_lock__channel:{test::L}")
		h := testkit.MustLock(t, e.Mutex("L"))
		if f := testkit.Fields(t, s, "test::L"); f[h.Owner()] != "1" {
			t.Errorf("keys: %v", s.Do("KEYS", "*"))
		}
		testkit.MustUnlock(t, h)
		heard.hears(t, "0")
	})
}

func TestStateShowsHoldersOfRedisson(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		m := testkit.Open(t, s.URL()).Mutex("L")
		for _, tc := range []struct {
			hash string // fields and values
			want engine.State
		}{
			{"", engine.State{}},
			{javaA + ":39 2", engine.State{Locked: true, Mode: "exclusive", Holders: []engine.Holder{{ID: javaA + ":39", Count: 2}}}},
			{"mode read " + javaA + ":39 1 " + javaB + ":40 3", engine.State{Locked: true, Mode: "read",
				Holders: []engine.Holder{{ID: javaA + ":39", Count: 1}, {ID: javaB + ":40", Count: 3}}}},
			{"mode write " + javaA + ":39:write 1", engine.State{Locked: true, Mode: "write", Holders: []engine.Holder{{ID: javaA + ":39:write", Count: 1}}}},
		} {
			s.Do("DEL", "L")
			if tc.hash != "" {
				s.Do(append([]string{"HSET", "L"}, strings.Fields(tc.hash)...)...)
				s.Do("PEXPIRE", "L", "30000")
			}
			got, err := m.State(testkit.Ctx(t))
			if err != nil {
				t.Fatalf("%q: %v", tc.hash, err)
			}
			if tc.want.Locked != (got.TTL > 20*time.Second && got.TTL <= 30*time.Second) {
				t.Errorf("%q: TTL %v", tc.hash, got.TTL)
			}
			got.TTL = 0
			slices.SortFunc(got.Holders, func(a, b engine.Holder) int { return strings.Compare(a.ID, b.ID) })
			slices.SortFunc(tc.want.Holders, func(a, b engine.Holder) int { return strings.Compare(a.ID, b.ID) })
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%q: %+v, want %+v", tc.hash, got, tc.want)
			}
		}
	})
}

func TestForceUnlockByRedissonIsSurvived(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Lease = 3 * time.Second })
			java := redisson{s, javaA}
			h := testkit.MustLock(t, e.Mutex("L"))
			if done, err := java.forceUnlock("L"); !done || err != nil {
				t.Fatal(done, err)
			}
			java.mustTryLock(t, "L", 39, 30*time.Second) // and takes it
			before := cputime.Now()
			select {
			case <-h.Done():
			case <-testkit.Ctx(t).Done():
				t.Fatal("the holder was not told")
			}
			if d := before.Elapsed(); d > 10*time.Second {
				t.Errorf("told after %v", d)
			}
			var lost *engine.LostError
			if !errors.As(h.Err(), &lost) || lost.Reason != engine.RemovedOnServer {
				t.Errorf("Err: %v", h.Err())
			}
			if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
			if f := testkit.Fields(t, s, "L"); len(f) != 1 || f[java.owner(39)] != "1" {
				t.Errorf("Redisson's hold was touched: %v", f)
			}
			java.mustUnlock(t, "L", 39, int64(1))
			testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("L"))) // life goes on
		})
	})
}

func TestForceUnlockOfPawlReachesRedisson(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		m := testkit.Open(t, s.URL()).Mutex("L")
		java := redisson{s, javaA}
		java.mustTryLock(t, "L", 39, 30*time.Second)
		heard := listen(t, s, "redisson_lock__channel:{L}") // as its waiters do
		if done, err := m.ForceUnlock(testkit.Ctx(t), engine.IfHolder(javaB+":39")); done || err != nil {
			t.Fatal("of an owner that does not hold it:", done, err)
		}
		heard.hearsNothing(t)
		if done, err := m.ForceUnlock(testkit.Ctx(t), engine.IfHolder(java.owner(39))); !done || err != nil {
			t.Fatal(done, err)
		}
		heard.hears(t, "0")
		java.mustUnlock(t, "L", 39, nil) // "not locked by current thread"
	})
}

func TestDatabasesShareChannelsAndNotKeys(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	zero := testkit.Open(t, s.URL())
	three := testkit.Open(t, s.URL(), func(c *engine.Config) { c.DB = 3 })
	h0, h3 := testkit.MustLock(t, zero.Mutex("L")), testkit.MustLock(t, three.Mutex("L"))
	f := zero.Mutex("L").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it listens", func() bool { return zero.Stats().Channels == 1 })
	testkit.MustUnlock(t, h3) // wakes the waiter for nothing
	if _, err := f.Result(); err != engine.ErrPending {
		t.Fatalf("released in DB 3, granted in DB 0: %v", err)
	}
	testkit.MustUnlock(t, h0)
	h0, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h0)
}

// Both sides fight for one lock; a counter on the server is read and written under
// it without any other protection.
func TestPawlAndRedissonExcludeEachOther(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		const rounds = 20
		var inside atomic.Int32
		guarded := func() {
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside", n)
			}
			v, err := s.Process.Do("GET", "n")
			if err != nil {
				t.Error(err)
			}
			text, _ := v.(string) // nil at first
			n, _ := strconv.Atoi(text)
			if _, err := s.Process.Do("SET", "n", strconv.Itoa(n+1)); err != nil {
				t.Error(err)
			}
			inside.Add(-1)
		}
		var all sync.WaitGroup
		for range 2 {
			m := testkit.Open(t, s.URL()).Mutex("L")
			for range 3 {
				all.Go(func() {
					for range rounds {
						h, err := m.Lock(testkit.Ctx(t))
						if err != nil {
							t.Error(err)
							return
						}
						guarded()
						if err := h.Unlock(testkit.Ctx(t)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		for _, uuid := range []string{javaA, javaB} {
			java := redisson{s, uuid}
			for thread := range 3 {
				all.Go(func() {
					start := cputime.Now()
					for range rounds {
						for {
							granted, _, err := java.tryLock("L", thread, 30*time.Second)
							if err != nil || start.Elapsed() > testkit.Limit {
								t.Error("Redisson did not get the lock:", err)
								return
							}
							if granted {
								break
							}
							time.Sleep(rand.N(2 * time.Millisecond)) // a poll, bounded above
						}
						guarded()
						if v, err := java.unlock("L", thread); v != int64(1) || err != nil {
							t.Error("Redisson's unlock:", v, err)
						}
					}
				})
			}
		}
		all.Wait()
		if n := s.Do("GET", "n"); n != strconv.Itoa(12*rounds) {
			t.Errorf("the counter is %v, want %d: updates were lost", n, 12*rounds)
		}
		s.Do("DEL", "n")
		testkit.Clean(t, s)
	})
}
