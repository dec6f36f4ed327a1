package script

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// contenders are engines that queue for a lock whose front has three places. One after the other holds it, and is
// the last of the queue afterwards, or tries at once.
type contenders struct {
	*caller
	front     int
	places    []int       // the engines, as the queue has them
	overtaken map[int]int // while it waits, by engines that came later
}

func newContenders(t *testing.T, n int) *contenders {
	c := &contenders{newCaller(t), 3, nil, make(map[int]int)}
	c.take("holder")
	for e := range n {
		if c.join(e) {
			t.Fatal("the lock is free")
		}
	}
	return c
}

func (c *contenders) take(engine string) {
	if _, err := c.run(acquire(Owner{Engine: engine, ID: 1}, time.Minute)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *contenders) release(engine string) {
	if _, err := c.run(release(Owner{Engine: engine, ID: 1})); err != nil {
		c.t.Fatal(err)
	}
}

// join has an engine ask, and reports whether it was granted the lock.
func (c *contenders) join(e int) (granted bool) {
	granted, _ = c.joinAfter(e, 0)
	return granted
}

// joinAfter has an engine ask that has waited for a first. If it is the turn of others, it returns the first of them.
func (c *contenders) joinAfter(e int, waitedFor uint32) (granted bool, first uint32) {
	q := Queue{Key: lockName, Channel: wake, Front: c.front}
	o := Owner{Engine: fmt.Sprint("e", e), ID: 1}
	v, err := c.run(func(b []byte, f resp.ScriptForm) []byte { return AppendJoin(b, f, q, o, time.Minute, false, waitedFor) })
	if err != nil {
		c.t.Fatal(err)
	}
	v.Each(func(i int, e resp.Value) bool {
		if i == 3 {
			first = uint32(e.Int)
		}
		return true
	})
	at := slices.Index(c.places, e)
	if granted = v.Kind == wire.KindInt && v.Int == Granted; !granted {
		if at < 0 {
			c.places = append(c.places, e)
		}
		return false, first
	}
	if at < 0 {
		at = len(c.places)
	} else {
		c.places = slices.Delete(c.places, at, at+1)
	}
	for _, before := range c.places[:at] {
		c.overtaken[before]++
	}
	c.overtaken[e] = 0
	return true, 0
}

// turn has one hold the lock that was just released, and queue again.
func (c *contenders) turn(e int) bool {
	if !c.join(e) {
		return false
	}
	c.release(fmt.Sprint("e", e))
	c.take("holder")
	c.join(e)
	c.release("holder")
	return true
}

// queue is what the server has.
func (c *contenders) queue() string {
	return fmt.Sprint(c.s.Do("ZRANGE", Companion(WaitersPrefix, lockName), "0", "-1", "WITHSCORES"))
}

// wantPlace fails the test unless an engine has a place, or has none.
func (c *contenders) wantPlace(e int, want bool) {
	c.t.Helper()
	if has := c.s.Do("ZRANK", Companion(WaitersPrefix, lockName), fmt.Sprint("e", e)) != nil; has != want {
		c.t.Errorf("e%d has a place: %v; %s", e, has, c.queue())
	}
}

// The front races. Whoever is the quickest, the first is overtaken once less than the front has places, and an engine
// at most twice as often on its way from the last place of the front to its grant. That includes engines that
// try at once after their release.
func TestJoin_FrontRaces_NobodyIsOvertakenOften(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 8; n++ { // the last of the queue leaves no gap behind it when it is granted
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		c := newContenders(t, n)
		c.release("holder")
		worst, turns := 0, 0
		for turns < 300 {
			first := c.places[0]
			order := random.Perm(n)
			if random.IntN(2) == 0 { // the first is always the slowest
				order = append(slices.DeleteFunc(order, func(e int) bool { return e == first }), first)
			}
			before := turns
			for _, e := range order {
				if at := slices.Index(c.places, e); at >= c.front || !c.join(e) {
					continue
				}
				turns++
				if c.release(fmt.Sprint("e", e)); random.IntN(2) == 0 || len(c.places) == 0 { // it queues before it tries again
					c.take("holder")
					c.join(e)
					c.release("holder")
				}
				break
			}
			if turns == before {
				t.Fatalf("seed %d, %d engines: nobody may take the free lock: %v", seed, n, c.places)
			}
			for e, overtaken := range c.overtaken {
				worst = max(worst, overtaken)
				if overtaken > 2*(c.front-1) {
					t.Fatalf("seed %d, %d engines: e%d was overtaken %d times", seed, n, e, overtaken)
				}
			}
		}
		t.Logf("%d engines: overtaken %d times at most in %d turns", n, worst, turns)
	}
}

// The first has gone. The others overtake it twice, and then the lock is for it, until one of them has waited for it.
// That one has the lock then, and the first alone has lost its place.
func TestJoin_FirstHasGone_LosesItsPlaceToOneThatHasWaited(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 5; n++ {
		c := newContenders(t, n)
		c.release("holder")
		for range c.front - 1 {
			if !c.turn(c.places[1]) {
				t.Fatalf("%d engines: the first was overtaken less than %d times", n, c.front-1)
			}
		}
		last := min(n, c.front) - 1
		granted, first := c.joinAfter(c.places[last], 0)
		if granted || first == 0 {
			t.Fatalf("%d engines: the first was overtaken %d times", n, c.front)
		}
		kept := slices.Clone(c.places[1:last])
		if granted, _ := c.joinAfter(c.places[last], first); !granted {
			t.Fatalf("%d engines: one that has waited for the first is not granted the lock", n)
		}
		for _, e := range kept {
			c.wantPlace(e, true)
		}
		c.wantPlace(0, false)
	}
}

// The whole front has gone. One behind it waits for its turn, too, and has the lock then; the front has lost its places.
func TestJoin_FrontHasGone_LosesItsPlacesToOneBehind(t *testing.T) {
	t.Parallel()
	c := newContenders(t, 6)
	c.release("holder")
	granted, first := c.joinAfter(4, 0) // just after the release: nobody of the front was slow
	if granted || first == 0 {
		t.Fatalf("granted %v; the first is %d: %s", granted, first, c.queue())
	}
	if granted, _ := c.joinAfter(4, first); !granted {
		t.Fatal("one that has waited for the front is not granted the lock")
	}
	for e := range 6 {
		c.wantPlace(e, e == 3 || e == 5)
	}
}

// The first comes while another waits for it. That one waits for the next first anew: this one was not slow.
func TestJoin_FirstHasComeMeanwhile_TheNextOneKeepsItsPlace(t *testing.T) {
	t.Parallel()
	c := newContenders(t, 5)
	c.release("holder")
	for range c.front - 1 {
		c.turn(c.places[1])
	}
	waits, first, next := c.places[2], c.places[0], c.places[1]
	_, number := c.joinAfter(waits, 0)
	if !c.join(first) {
		t.Fatal("the first has no turn")
	}
	c.release(fmt.Sprint("e", first))
	if granted, _ := c.joinAfter(waits, number); !granted { // as one in the front
		t.Fatal("it is not granted the lock")
	}
	c.wantPlace(next, true)
}

// The first has died. Others take the lock again and again without a place in the queue, as Redisson and TryLock do: the
// second has its turn, once it has waited.
func TestJoin_FirstDiedAndOthersDoNotQueue_SecondHasItsTurn(t *testing.T) {
	t.Parallel()
	c := newContenders(t, 2)
	c.s.Do("ZADD", Companion(WaitersPrefix, lockName), "1.25", "e0")
	c.release("holder")
	granted, first := c.joinAfter(1, 0)
	if granted {
		t.Fatal("the first was overtaken twice, and the lock is not its alone")
	}
	for range 5 {
		c.take("holder")
		if granted, other := c.joinAfter(1, first); granted || other != 0 {
			t.Fatal("granted though another has it")
		}
		c.release("holder")
	}
	if granted, _ := c.joinAfter(1, first); !granted {
		t.Fatalf("it has waited, and is not granted the lock: %s", c.queue())
	}
}

// The first counts exactly, whatever the size of the front, and however many came before.
func TestJoin_AnyFront_FirstIsOvertakenOnceLessThanItHasPlaces(t *testing.T) {
	t.Parallel()
	for front := 1; front <= 8; front++ {
		c := &contenders{newCaller(t), front, nil, make(map[int]int)}
		c.take("holder")
		c.s.Do("ZADD", Companion(WaitersPrefix, lockName), fmt.Sprint(1<<47), "e0")
		c.places = []int{0}
		for e := 1; e < 12; e++ {
			c.join(e)
		}
		c.release("holder")
		n := 0
		for n < 30 && front > 1 && c.turn(c.places[1]) {
			n++
		}
		if n != front-1 {
			t.Errorf("front %d: overtaken %d times: %s", front, n, c.queue())
		}
		if granted, _ := c.joinAfter(c.places[len(c.places)-1], uint32((1<<50+n)%(1<<32-1)+1)); !granted {
			t.Errorf("front %d: the number is not told exactly: %s", front, c.queue())
		}
	}
}
