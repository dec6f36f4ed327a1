package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One of three servers is slow, and a waiter has heard how slow. When it gets the vote of another,
// it does not keep that until the slow one answers: the owner of the first may need it.
func TestSlowMinorityDelaysNoOtherContender(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		const slow = time.Second
		s := independent(t, 3)
		other, v := s.open(), s.open()
		proxies := make([]*faultproxy.Proxy, len(v))
		for i := range v {
			proxies[i] = s.through(i, v)
		}
		l := v.lock("x")
		first, second, last := l.all.order[0], l.all.order[1], l.all.order[2]
		held := []*Hold{mustLock(t, other[first].Mutex("x")), mustLock(t, other[second].Mutex("x"))}
		proxies[last].Delay(faultproxy.All, slow/2, slow/2)
		waiting := l.LockAsync(ctxT(t))
		q := waiting.source.(*redLockAcquisition)
		eventually(t, "the slow server has answered", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.Parts[last].Asked == nil
		})
		mustUnlock(t, held[1])
		eventually(t, "the waiter has the vote of the second", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.Parts[second].Vote != nil
		})
		again, err := other[second].Mutex("x").Lock(ctxT(t), Wait(slow/2))
		if err != nil {
			t.Fatal("it keeps the vote: ", err)
		}
		mustUnlock(t, again)
		mustUnlock(t, held[0])
		h, err := waiting.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustRelease(t, h)
		proxies[last].Delay(faultproxy.All, 0, 0)
		s.clean(other, v)
	})
}

// Two of one process wait at a server that hangs. The second, which has waited for long, asks the
// others rarely; but not any more when the first has had the lock.
func TestSecondWaiterIsNotHeldUpByTheServerThatItWaitsAt(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				s := independent(t, 3)
				a, b := s.open(), s.open()
				held := mustRedLock(t, a.lock("x"))
				eventually(t, "all three join", func() bool { return len(held.Servers()) == 3 })
				l := b.lock("x")
				waiter := func() (f *Future[*QuorumHold], at int) {
					f = l.LockAsync(ctxT(t))
					q := f.source.(*redLockAcquisition)
					eventually(t, "it waits at a server", func() bool {
						q.mu.Lock()
						defer q.mu.Unlock()
						at = slices.IndexFunc(q.Parts, func(p quorum.Part) bool { return p.Asked != nil && p.Waits })
						return q.Stage == quorum.Blocked && at >= 0
					})
					return f, at
				}
				first, at := waiter()
				second, too := waiter()
				for too != at { // at the first that has answered
					second.Abandon()
					second, too = waiter()
				}
				q := second.source.(*redLockAcquisition)
				q.mu.Lock()
				q.Probes = quorum.MaxProbes - 1 // it has waited for seconds
				q.mu.Unlock()
				eventually(t, "the second asks rarely", func() bool {
					q.mu.Lock()
					defer q.mu.Unlock()
					return q.Probes == quorum.MaxProbes
				})
				if kill {
					s.servers[at].Kill()
				} else {
					s.servers[at].Stop()
					defer func() { _ = s.servers[at].Process.Cont() }()
				}
				mustRelease(t, held)
				h, err := first.Await(ctxT(t))
				if err != nil {
					t.Fatal(err)
				}
				mustRelease(t, h)
				free := time.Now()
				if h, err = second.Await(ctxT(t)); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(free); d > 4*quorum.LongWait {
					t.Errorf("granted %v after the first had released it", d)
				}
				mustRelease(t, h)
				if kill {
					s.servers[at].Restart()
				} else {
					s.servers[at].Cont()
				}
				s.clean(a, b)
			})
		})
	}
}

// One of three servers is known to hang, and a waiter's try there is out. When a probe gets it the
// vote of another, it gives that back at once: the owner of the first may need it.
func TestWaiterKeepsNoVoteForAServerThatIsAway(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := independent(t, 3)
		other, v := s.open(), s.open(func(c *Config) { c.CommandTimeout = 2 * time.Second })
		l := v.lock("x")
		first, second, last := l.all.order[0], l.all.order[1], l.all.order[2]
		held := mustLock(t, other[first].Mutex("x"))
		s.servers[second].Stop()
		defer func() { _ = s.servers[second].Process.Cont() }()
		early := v[second].Mutex("x").LockAsync(ctxT(t)) // hears that it hangs
		eventually(t, "the second is away", func() bool {
			stand, _, _ := early.source.(*acquisition).standing()
			return stand == quorum.Away
		})
		waiting := l.LockAsync(ctxT(t))
		q := waiting.source.(*redLockAcquisition)
		eventually(t, "it waits at the first", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.Looks = 2 * quorum.MaxLooks // as one that has waited for long
			return q.Stage == quorum.Blocked && q.Parts[first].Asked != nil && q.Parts[first].Waits
		})
		var since time.Time
		eventually(t, "it asks the last, and has its vote no more", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			if since.IsZero() && q.Parts[last].Vote != nil {
				since = time.Now()
			}
			return q.Failures > 1 && q.Parts[last].Vote == nil
		})
		if d := time.Since(since); !since.IsZero() && d > quorum.FirstLook<<quorum.MaxLooks/2 {
			t.Errorf("it keeps the vote for %v", d)
		}
		waiting.Abandon()
		early.Abandon()
		mustUnlock(t, held)
		s.servers[second].Cont()
		s.clean(other, v)
	})
}
