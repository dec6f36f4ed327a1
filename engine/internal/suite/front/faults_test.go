package front

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Connections are cut, places and the queue are deleted, waiters give up and come again, all at random. There is
// one holder at a time; and once it is over everybody is served again, and nothing is left.
func TestMutex_RandomFaults_NobodyIsLost(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(*engine.Engine) engine.Mutex{"Mutex": mutex, "FencedMutex": fenced} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			c := newContest(t, testkit.Single(s))
			c.lock = lock
			p := faultproxy.New(t, "tcp", s.Addr())
			c.at.URL = "redis://" + p.Addr() // half of the engines are far away
			c.open(6, testkit.LeaseOf(brief))
			c.at.URL = s.URL()
			c.open(6, testkit.LeaseOf(brief))
			all := c.engines
			over := make(chan struct{})
			var users sync.WaitGroup
			for _, e := range all {
				users.Go(func() {
					for testkit.Pause(over, time.Millisecond) {
						ctx, cancel := context.WithTimeout(testkit.Within(t, limit), time.Duration(rand.IntN(100))*time.Millisecond)
						_, err := c.turn(ctx, e)
						cancel()
						if err != nil && !errors.Is(err, engine.ErrNotAcquired) && !errors.Is(err, engine.ErrLost) && !errors.Is(err, engine.ErrOutcomeUnknown) {
							t.Error(err)
						}
					}
				})
			}
			faults := randomFaults(s, p)
			for began := time.Now(); time.Since(began) < 4*time.Second; {
				faults[rand.IntN(len(faults))]()
				testkit.Pause(nil, time.Duration(rand.IntN(100))*time.Millisecond)
			}
			p.Delay(faultproxy.All, 0, 0)
			close(over)
			users.Wait()
			if s.Do("TYPE", queue) == "string" {
				s.Do("DEL", queue)
			}
			calm := cputime.Now()
			c.loop(10, all...)
			t.Logf("%d turns, the last ones within %v", c.grants.Load(), calm.Elapsed())
			s.Do("DEL", tokens)
			c.wantOnlyTheDead()
		})
	}
}

func randomFaults(s *redistest.Server, p *faultproxy.Proxy) (list []func()) {
	for _, words := range [][]string{
		{"CLIENT", "KILL", "TYPE", "pubsub"}, {"CLIENT", "KILL", "TYPE", "normal"}, {"SCRIPT", "FLUSH"},
		{"DEL", queue}, {"ZREMRANGEBYRANK", queue, "0", "0"}, {"ZREMRANGEBYRANK", queue, "-1", "-1"}, {"SET", queue, "0"},
	} {
		list = append(list, func() { _, _ = s.Process.Do(words...) }) // it may cut its own connection
	}
	for _, cmd := range []*script.Script{script.Acquire, script.Join, script.Withdraw, script.Release} {
		list = append(list,
			func() { p.CutAfterRequest(testkit.Calls(cmd)) },
			func() { p.CutBeforeRequest(testkit.Calls(cmd)) })
	}
	for _, late := range []faultproxy.Select{faultproxy.Carried("SUBSCRIBE"), faultproxy.Carried("EVALSHA")} {
		list = append(list,
			func() { p.Delay(late, 0, time.Duration(rand.IntN(50))*time.Millisecond) },
			func() { p.Delay(faultproxy.All, 0, 0) })
	}
	return list
}

// The connection breaks with a join on it, before or after the server has executed that. The engine has one place
// in the queue afterwards, and none in the end.
func TestMutex_JoinUnanswered_HasOnePlace(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(p *faultproxy.Proxy, m faultproxy.Match) *faultproxy.Trap{
		"not executed": (*faultproxy.Proxy).CutBeforeRequest,
		"executed":     (*faultproxy.Proxy).CutAfterRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, far := testkit.Behind(t)
			c := newContest(t, testkit.Single(s))
			h := testkit.MustLock(t, c.lock(c.open(1)[0]))
			list := c.line(c.open(5)...)
			trap := cut(p, testkit.Calls(script.Join))
			list = append(list, c.wait(far))
			released := p.Watch(testkit.ReleaseOf("x"))
			trap.Wait(1)
			again := p.Watch(testkit.Calls(script.Join))
			released.Wait(1)
			again.Wait(1)
			c.awaitPlaces(6)
			testkit.MustUnlock(t, h)
			c.wantServed(list...)
			c.at.Clean(t)
		})
	}
}

// All of the front belongs to a machine that has vanished: its connections live on at the server, and count as
// listeners. The others are served; and so is it, when it is back.
func TestMutex_FrontVanished_OthersAreServed(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		p := faultproxy.New(t, "tcp", s.Addr())
		c := newContest(t, testkit.Single(s))
		h := testkit.MustLock(t, c.lock(c.open(1)[0]))
		c.at.URL = "redis://" + p.Addr()
		far := c.line(c.open(places)...)
		c.at.URL = s.URL()
		near := c.line(c.open(5)...)
		c.awaitAsleep()
		p.Blackhole(faultproxy.All)
		testkit.MustUnlock(t, h)
		released := cputime.Now()
		c.wantNextSoon(released)
		c.wantServed(near...)
		t.Logf("all have had it after %v", released.Elapsed())
		p.Heal()
		c.wantServed(far...)
		c.wantOnlyTheDead()
	})
}
