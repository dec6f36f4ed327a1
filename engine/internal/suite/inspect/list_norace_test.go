//go:build !race

package inspect

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// hundredThousand puts locks on the server of a slot, as Redisson would.
func hundredThousand(t *testing.T, do func(key string, words ...string) any, tags ...string) {
	t.Helper()
	const script = `for i = 1, ARGV[1] do local k = KEYS[1] .. i; redis.call('HSET', k, '0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11:39', 1); redis.call('PEXPIRE', k, 600000) end`
	for _, tag := range tags {
		if v := do(tag, "EVAL", script, "1", "orders:{"+tag+"}:", fmt.Sprint(100_000/len(tags))); v != nil {
			t.Fatal(v)
		}
	}
}

func TestList_HundredThousandLocksInACluster_TakesThreeSeconds(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	var tags []string // one for each node
	owners := make(map[*redistest.Server]bool)
	for i := 0; len(tags) < 3; i++ {
		tag := fmt.Sprint("t", i)
		if owner := c.Owner(c.Slot(tag)); owner != nil && !owners[owner] {
			owners[owner] = true
			tags = append(tags, tag)
		}
	}
	hundredThousand(t, c.Do, tags...)
	c.Do("hash", "HSET", "orders:{hash}:other", "field", "value") // no locks
	c.Do("text", "SET", "orders:{text}:other", "value")
	e := testkit.Open(t, c.URL(), inspected)
	testkit.MustLock(t, e.Mutex("orders:mine"))
	list := func(pattern string) (n, mine int, took time.Duration) {
		began := time.Now()
		for info, err := range e.List(testkit.Within(t, time.Minute), pattern) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; info.Name == "orders:mine" && info.Holders[0].Engine.Answered && len(info.Holders[0].Uses) == 1 {
				mine++
			}
		}
		return n, mine, time.Since(began)
	}
	n, mine, took := list("orders:*")
	for i := 0; i < 2 || took > 3*time.Second && i < 10; i++ { // this machine may have other things to do
		_, _, again := list("orders:*")
		took = min(took, again)
	}
	t.Logf("%d locks in %v", n, took)
	if want := 3*(100_000/3) + 1; n != want || mine != 1 {
		t.Errorf("%d locks, want %d; mine is there %d times", n, want, mine)
	}
	if took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	if n, mine, _ := list("*mine"); n != 1 || mine != 1 {
		t.Errorf("the pattern found %d", n)
	}
}

// A list keeps what one step of the scan has found: 1,000 locks, of 100,000.
func TestList_HundredThousandLocks_TakesTwentyMegabytes(t *testing.T) { // alone: others have heaps, too
	s := testkit.Server(t)
	hundredThousand(t, func(_ string, words ...string) any { return s.Do(words...) }, "t")
	e := testkit.Open(t, s.URL(), inspected)
	testkit.MustLock(t, e.Mutex("mine"))
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n, most := 0, uint64(0)
	for _, err := range e.List(testkit.Within(t, time.Minute), "*") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%1000 == 0 {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}
	grown := (max(most, before.HeapAlloc) - before.HeapAlloc) >> 20
	t.Logf("%d locks; the heap has %d MiB more, garbage included", n, grown)
	if n != 100_001 || grown > 20 {
		t.Errorf("%d locks, %d MiB", n, grown)
	}
}
