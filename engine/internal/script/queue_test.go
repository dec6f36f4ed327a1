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
// the last of the queue afterwards.
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
		if c.join(e, false) {
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

// join has an engine ask, and look or not, and reports whether it was granted the lock.
func (c *contenders) join(e int, looks bool) (granted bool) {
	q := Queue{Key: lockName, Channel: wake, Front: c.front}
	o := Owner{Engine: fmt.Sprint("e", e), ID: 1}
	v, err := c.run(func(b []byte, f resp.ScriptForm) []byte { return AppendJoin(b, f, q, o, time.Minute, false, looks) })
	if err != nil {
		c.t.Fatal(err)
	}
	at := slices.Index(c.places, e)
	switch granted = v.Kind == wire.KindInt && v.Int == Granted; {
	case !granted && at < 0:
		c.places = append(c.places, e)
	case granted && at >= 0:
		for _, before := range c.places[:at] {
			c.overtaken[before]++
		}
		c.places = slices.Delete(c.places, at, at+1)
		c.overtaken[e] = 0
	}
	return granted
}

// turn has one hold the lock that was just released, and queue again.
func (c *contenders) turn(e int, looks bool) bool {
	if !c.join(e, looks) {
		return false
	}
	c.release(fmt.Sprint("e", e))
	c.take("holder")
	c.join(e, false)
	c.release("holder")
	return true
}

// The front races. Whoever is the quickest, the first is overtaken once less than the front has places, and an engine
// at most twice as often on its way from the last place of the front to its grant.
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
				if slices.Index(c.places, e) < c.front && c.turn(e, false) {
					turns++
					break
				}
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

// The first has gone. The others overtake it twice, and then the lock waits for it, until one of them looks. That one
// has it then, and the first alone has lost its place.
func TestJoin_FirstHasGone_LosesItsPlaceToALook(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 5; n++ {
		c := newContenders(t, n)
		c.release("holder")
		for range c.front - 1 {
			if !c.turn(c.places[1], false) {
				t.Fatalf("%d engines: the first was overtaken less than %d times", n, c.front-1)
			}
		}
		last := min(n, c.front) - 1
		if c.join(c.places[last], false) {
			t.Fatalf("%d engines: the first was overtaken %d times", n, c.front)
		}
		kept := c.places[1:last]
		if !c.turn(c.places[last], true) {
			t.Fatalf("%d engines: who looks is not granted", n)
		}
		queue := fmt.Sprint(c.s.Do("ZRANGE", Companion(WaitersPrefix, lockName), "0", "-1"))
		for _, e := range kept {
			if c.s.Do("ZRANK", Companion(WaitersPrefix, lockName), fmt.Sprint("e", e)) == nil {
				t.Errorf("%d engines: e%d has lost its place, too: %s", n, e, queue)
			}
		}
		if c.s.Do("ZRANK", Companion(WaitersPrefix, lockName), "e0") != nil {
			t.Errorf("%d engines: the first has its place still: %s", n, queue)
		}
	}
}
