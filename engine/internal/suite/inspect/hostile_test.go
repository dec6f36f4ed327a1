package inspect

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	questions "github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

func TestInspect_ServerFarAway_IsAnswered(t *testing.T) {
	t.Parallel()
	s, p, far := testkit.Behind(t, inspected)
	e := testkit.Open(t, s.URL(), inspected)
	testkit.MustLock(t, e.Mutex("x"))
	testkit.Eventually(t, "it listens", func() bool { return listeners(s) == 1 })
	p.Delay(faultproxy.All, 75*time.Millisecond, 75*time.Millisecond)
	testkit.Eventually(t, "a look gets the answer", func() bool {
		info, err := far.Inspect(testkit.Ctx(t), "x")
		return err == nil && info.NotAsked == nil && answers(info)
	})
}

// A wait that ended, and began anew, between two looks is no deadlock.
func TestDeadlocks_WaitThatBeganAnew_IsNone(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, waitThatBeganAnewIsNone) // or a wait of 150 ms lasts for longer
}

func waitThatBeganAnewIsNone(t testing.TB) {
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a, b := testkit.MustLock(t, e.Mutex("a")), testkit.MustLock(t, e.Mutex("b"))
	e.Mutex("a").LockAsync(b.Context(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			short, end := context.WithTimeout(a.Context(ctx), 150*time.Millisecond)
			_, _ = e.Mutex("b").Lock(short)
			end()
		}
	}()
	for range 20 {
		if cycles, err := e.Deadlocks(testkit.Ctx(t)); err != nil || len(cycles) != 0 {
			t.Errorf("%v, %v", cycles, err)
			break
		}
	}
	cancel()
	<-done
}

func TestDeadlocks_EveryKind_IsFound(t *testing.T) {
	t.Parallel()
	for what, of := range map[string]func(e *engine.Engine, name string) engine.Mutex{
		"spin":    func(e *engine.Engine, name string) engine.Mutex { return e.SpinMutex(name) },
		"fair":    func(e *engine.Engine, name string) engine.Mutex { return e.FairMutex(name) },
		"fenced":  func(e *engine.Engine, name string) engine.Mutex { return e.FencedMutex(name) },
		"writers": func(e *engine.Engine, name string) engine.Mutex { return e.RWMutex(name).Writer() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t) // its own: a look finds the deadlocks of all engines of a server
			x, y := testkit.Open(t, s.URL(), inspected), testkit.Open(t, s.URL(), inspected)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			a, b := testkit.MustLock(t, of(x, what+"a")), testkit.MustLock(t, of(y, what+"b"))
			of(x, what+"b").LockAsync(a.Context(ctx))
			of(y, what+"a").LockAsync(b.Context(ctx))
			testkit.Eventually(t, "the deadlock is found", func() bool {
				cycles, err := x.Deadlocks(testkit.Ctx(t))
				return err == nil && isDeadlock(cycles, 2)
			})
		})
	}
	t.Run("readers", func(t *testing.T) {
		t.Parallel()
		s := testkit.Server(t)
		x, y := testkit.Open(t, s.URL(), inspected), testkit.Open(t, s.URL(), inspected)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		a, b := testkit.MustLock(t, x.RWMutex("ra").Reader()), testkit.MustLock(t, y.RWMutex("rb").Reader())
		testkit.MustLock(t, x.RWMutex("ra").Reader())
		x.RWMutex("rb").Writer().LockAsync(a.Context(ctx))
		y.RWMutex("ra").Writer().LockAsync(b.Context(ctx))
		testkit.Eventually(t, "the deadlock is found", func() bool {
			cycles, err := x.Deadlocks(testkit.Ctx(t))
			return err == nil && isDeadlock(cycles, 2)
		})
	})
}

// What somebody claims of names that are no locks hides no deadlock.
func TestDeadlocks_ClaimsOfOtherKeys_HideNone(t *testing.T) {
	claimsHideNone(t, "text", "other", "x:1")
}

// A claim about the keys of a deadlock is no part of it, and does not take its place.
func TestDeadlocks_ClaimsOfTheSameKeys_HideNone(t *testing.T) {
	claimsHideNone(t, "lock0", "lock1", "0:1")
}

// claimsHideNone has somebody claim that an owner has two keys, and waits for each under the other, beside a deadlock over
// lock0 and lock1.
func claimsHideNone(t *testing.T, a, b, owner string) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		engines, _ := ring(t, s.URL(), 2, func(i int) string { return fmt.Sprint("lock", i) })
		s.Do("SET", "text", "value")
		client, since := testkit.Client(testkit.Open(t, s.URL())), time.Now()
		wait := func(name, under string) questions.Name {
			return questions.Name{Name: []byte(name), Waiting: 1, Uses: []questions.Use{{Kind: "mutex", Millis: time.Since(since).Milliseconds(),
				Under: []questions.Carried{{Name: []byte(under), Owner: owner, Kind: "mutex"}}}}}
		}
		lies := resp.NewChannel(questions.Channel, &liar{client, func(q *questions.Question) []byte {
			a := questions.Answer{Question: q.ID, Engine: "0", Names: []questions.Name{wait(a, b), wait(b, a)}}
			return a.Encode()
		}})
		client.Subscribe(lies)
		defer client.Unsubscribe(lies)
		testkit.Eventually(t, "both listen and lie", func() bool { return listeners(s) == 3 })
		for range 8 {
			cycles, err := engines[0].Deadlocks(testkit.Ctx(t))
			if err != nil || !isDeadlock(cycles, 2) || slices.ContainsFunc(cycles[0].Waits, func(u engine.Use) bool { return u.Engine.ID == "0" }) {
				t.Fatalf("%v, %v", cycles, err)
			}
		}
	})
}

func TestInspect_QuestionsWithoutEnd_KnowsItself(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	testkit.MustLock(t, e.Mutex("x"))
	testkit.Eventually(t, "it listens", func() bool { return listeners(s) == 1 })
	flood(t, s, (&questions.Question{ID: "1", Reply: questions.Channel + ":1", About: "name", Text: []byte("x"), Millis: 200}).Encode())
	for range 5 {
		info, err := e.Inspect(testkit.Ctx(t), "x")
		if err != nil || !answers(info) {
			t.Fatalf("%+v, %v", info, err)
		}
	}
}

// flood publishes a question until the test ends.
func flood(t *testing.T, s *redistest.Server, q []byte) {
	t.Helper()
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
				s.Do("EVAL", "for i = 1, 500 do redis.call('PUBLISH', ARGV[1], ARGV[2]) end", "0", questions.Channel, string(q))
			}
		}
	}()
	t.Cleanup(func() { close(over); <-ended })
}

func TestList_NodeDown_ListsTheOthers(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	e := testkit.Open(t, c.URL(), inspected, func(c *engine.Config) { c.CommandTimeout, c.CloseTimeout = 200*time.Millisecond, time.Millisecond })
	down := c.Nodes()[1]
	want := 0
	for i := range 20 {
		name := fmt.Sprint("lock", i)
		testkit.MustLock(t, e.Mutex(name))
		if c.Owner(c.Slot(name)) != down {
			want++
		}
	}
	down.Kill()
	for range 5 {
		n, failed := 0, false
		for _, err := range e.List(testkit.Ctx(t), "lock*") {
			if failed = err != nil; !failed {
				n++
			}
		}
		if !failed || n != want {
			t.Errorf("%d locks, want %d; failed: %v", n, want, failed)
		}
	}
}

// A hash with an expiry that another program keeps, such as a session, is told from a lock without its values.
func TestList_HashesOfOtherPrograms_AreNotRead(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	testkit.MustLock(t, e.Mutex("lock"))
	testkit.MustLock(t, e.RWMutex("readers").Reader())
	s.Do("EVAL", `for i = 1, 100 do local k = 'session' .. i
		redis.call('HSET', k, 'data', string.rep('x', 100000)); redis.call('PEXPIRE', k, 600000) end`, "0")
	s.Do("HSET", "endless", "0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11:39", "1")
	s.Do("SET", "text", "value")
	before, n := e.Stats().BytesIn, 0
	for _, err := range e.List(testkit.Ctx(t), "*") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if read := e.Stats().BytesIn - before; n != 2 || read > 100_000 {
		t.Errorf("%d locks, of %d bytes", n, read)
	}
}

func TestList_UserWithoutARight_IsAnError(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("mine:lock"))
	testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("other"))
	list := func(user string, rules ...string) (n int, err error) {
		s.Do(append([]string{"ACL", "SETUSER", user, "on", ">secret", "~mine:*", "&*", "+@all"}, rules...)...)
		e := testkit.Open(t, "redis://"+user+":secret@"+s.Addr(), inspected)
		for _, err := range e.List(testkit.Ctx(t), "*") {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	if n, err := list("all"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, command := range []string{"scan", "pttl", "hlen", "hkeys"} {
		if n, err := list("no"+command, "-"+command); err == nil {
			t.Errorf("without %s: %d", command, n)
		}
	}
}

// Somebody who answers sooner, in the name of the engine that holds the lock, does not hide what that says.
func TestInspect_LiarInAnothersName_HidesNothing(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, liarInAnothersNameHidesNothing) // or one of both answers too late
}

func liarInAnothersNameHidesNothing(t testing.TB) {
	s := testkit.Server(t)
	holds, asks := testkit.Open(t, s.URL(), inspected, func(c *engine.Config) { c.Service = "true" }), testkit.Open(t, s.URL(), inspected)
	h := testkit.MustLock(t, holds.Mutex("x"))
	testkit.Eventually(t, "it listens", func() bool { return listeners(s) == 1 })
	client := testkit.Client(testkit.Open(t, s.URL()))
	lies := resp.NewChannel(questions.Channel, &liar{client, func(q *questions.Question) []byte {
		a := questions.Answer{Question: q.ID, Engine: holds.ID(), Service: "false", Names: []questions.Name{{Uses: []questions.Use{{Held: true, Kind: "mutex", Owner: h.Owner()}}}}}
		return a.Encode()
	}})
	client.Subscribe(lies)
	defer client.Unsubscribe(lies)
	testkit.Eventually(t, "the liar listens, too", func() bool { return listeners(s) == 2 })
	for range 20 { // one or the other is first
		info, err := asks.Inspect(testkit.Ctx(t), "x")
		if err != nil || len(info.Holders) != 1 {
			t.Fatalf("%+v, %v", info, err)
		}
		said := make(map[string]bool)
		for _, u := range info.Holders[0].Uses {
			said[u.Engine.Service] = u.Engine.Contested
		}
		if !said["true"] || !said["false"] || !info.Holders[0].Engine.Contested || len(info.Unconfirmed) != 0 || info.Silent != 1 {
			t.Fatalf("%v of %+v", said, info)
		}
	}
	// An engine knows itself: nobody answers it in its own name.
	info, err := holds.Inspect(testkit.Ctx(t), "x")
	if err != nil || info.Holders[0].Engine.Contested || len(info.Holders[0].Uses) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}
