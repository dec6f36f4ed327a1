package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// notAcked fails the test unless err says so many of so many.
func notAcked(t testing.TB, err error, acked, wanted int) {
	t.Helper()
	var short *AckError
	if !errors.As(err, &short) || !errors.Is(err, ErrNotAcked) || short.Acked != acked || short.Wanted != wanted {
		t.Fatalf("want %d of %d replicas, got: %v", acked, wanted, err)
	}
	if text := fmt.Sprintf("%d of %d replicas", acked, wanted); !hasText(err, text) {
		t.Errorf("%q does not say %q", err, text)
	}
}

// grantedAgain waits until "all" is granted, with so many.
func grantedAgain(t *testing.T, e *Engine, name string, acked int) {
	t.Helper()
	eventually(t, "it is granted again", func() bool {
		h, err := e.Mutex(name).Lock(ctxT(t), Acked(AllReplicas))
		if err != nil {
			return false
		}
		defer mustUnlock(t, h)
		return h.Acked() == acked
	})
}

const (
	fairQueue   = "redisson_lock_queue:{x}"
	fairTimeout = "redisson_lock_timeout:{x}"
)

// queued waits until n are in the queue of x.
func queued(t *testing.T, s *redistest.Server, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d are queued", n), func() bool {
		return s.Do("LLEN", fairQueue) == int64(n) && s.Do("ZCARD", fairTimeout) == int64(n)
	})
}

// nothingOfX fails the test if anything of x is left on the server.
func nothingOfX(t *testing.T, s *redistest.Server) {
	t.Helper()
	eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
}

// A release that is sent once more to a new primary wakes the first of the queue there, and takes its
// owner out of the queue, as it did on the old one.
func TestFairMutex_ReleaseSentAgain_IsOneOfTheQueue(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	s.Do("HSET", "x", e.ID()+":5", "1")
	s.Do("PEXPIRE", "x", "3600000")
	left := e.ID() + ":6"
	s.Do("RPUSH", fairQueue, left)
	s.Do("ZADD", fairTimeout, fmt.Sprint(time.Now().Add(2*time.Hour).UnixMilli()), left)
	next := other.FairMutex("x").LockAsync(ctxT(t))
	eventually(t, "it has been refused again, when it listened", func() bool { return s.CommandStats()["lpos"] > 0 })
	again := func(id int64) {
		e.table.Recovery.Resend([]recovery.Release{{Name: "x", Kind: kind.Fair, ID: id, At: e.clock.Now()}}, 0)
	}
	again(6)
	queued(t, s, 1)
	sent := cputime.Now()
	again(5)
	h, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := sent.Elapsed(); d > 2*time.Second {
		t.Errorf("the first of the queue has it after %v", d)
	}
	mustUnlock(t, h)
	nothingOfX(t, s)
}

// What a new primary has missed of that is sent again with what the MinHold has left.
func TestMinHold_OfALostHoldThatTheNewPrimaryMissed_KeepsItsRest(t *testing.T) {
	t.Parallel()
	o := newOutdated(t, func(c *Config) { c.Lease, c.Margin = 3*time.Minute, time.Minute-time.Second })
	h := mustLock(t, o.e.Mutex("x"), Lease(time.Minute), MinHold(time.Minute))
	o.holdUp(1)
	receive(t, h.Done())
	eventually(t, "its owner is gone", func() bool { return fields(t, o.primary, "x")[h.Owner()] == "" })
	o.promote()
	eventually(t, "its owner is gone there, too", func() bool { return fields(t, o.promoted, "x")[h.Owner()] == "" })
	if left := pttl(t, o.promoted, "x"); left < 30*time.Second || left > time.Minute {
		t.Errorf("the key has %v left", left)
	}
}

// A release with a MinHold makes the lease shorter. A server that refuses the rest of it, for want
// of a right, has told the waiters by then: they sleep until the lease that they know of.
func TestMinHold_ReleaseRefused_WaitersAreWoken(t *testing.T) {
	t.Parallel()
	for kind, lock := range map[string]func(e *Engine) Mutex{
		"mutex":  func(e *Engine) Mutex { return e.Mutex("x") },
		"fenced": func(e *Engine) Mutex { return e.FencedMutex("x") },
		"writer": func(e *Engine) Mutex { return e.RWMutex("x").Writer() },
	} {
		for _, right := range []string{"hset", "hdel"} {
			t.Run(kind+" without "+right, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				s.Do("ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@all")
				holder, waiter := open(t, "redis://bob:secret@"+s.Addr()), open(t, s.URL())
				h := mustLock(t, lock(holder), Lease(time.Minute), MinHold(4*time.Second))
				waits := lock(waiter).LockAsync(ctxT(t))
				eventually(t, "it sleeps", func() bool { return waiter.sleepsOnMessagesForTest("x") })
				s.Do("ACL", "SETUSER", "bob", "-"+right)
				h.UnlockAsync()
				if _, err := waits.Await(ctxT(t)); err != nil {
					t.Errorf("the waiter: %v", err)
				}
			})
		}
	}
}

// outdated is a primary, an engine, and a replica that is held up: it has what was
// written before, and will be promoted without what comes then.
type outdated struct {
	t                 testing.TB
	servers           *redistest.Replicated
	primary, promoted *redistest.Server
	link              *redistest.Link
	e                 *Engine
}

// holdUp waits until the replica has so many keys, and holds up what comes then.
func (o *outdated) holdUp(keys int) {
	o.t.Helper()
	eventually(o.t, "the replica has the locks", func() bool { return o.promoted.Do("DBSIZE") == int64(keys) })
	o.link.Hold()
}

// promote kills the primary, promotes the replica, and waits until the engine has found
// it.
func (o *outdated) promote() (found cputime.Mark) {
	o.t.Helper()
	o.primary.Kill()
	o.link.Cut()
	o.promoted.Do("REPLICAOF", "NO", "ONE")
	eventually(o.t, "the engine has found it", func() bool { return o.e.table.Client.AddrOf(0) == o.promoted.Addr() })
	return cputime.Now()
}

// awaitKeys waits until the promoted one has so many keys, which must be soon: a renewal is due after ten
// seconds.
func (o *outdated) awaitKeys(found cputime.Mark, n int) {
	o.t.Helper()
	eventually(o.t, fmt.Sprint(n, " keys are left"), func() bool { return o.promoted.Do("DBSIZE") == int64(n) })
	if d := found.Elapsed(); d > 3*time.Second {
		o.t.Errorf("it took %v", d)
	}
}

func newOutdated(t testing.TB, change ...func(*Config)) *outdated {
	t.Helper()
	r := redistest.StartReplicated(t, 1, redistest.Line("repl-timeout 300"))
	o := &outdated{t: t, servers: r, primary: r.Servers()[0], promoted: r.Servers()[1]}
	o.link = r.Through(o.promoted, o.primary)
	o.e = open(t, r.URL(), change...)
	return o
}

func TestRecovery_ReleasesThatTheNewPrimaryMissed_AreSentAgain(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		o := newOutdated(t)
		var holds []*Hold
		for i := range 700 { // a few pages
			holds = append(holds, mustLock(t, o.e.Mutex(fmt.Sprint("x", i))))
		}
		kept := mustLock(t, o.e.Mutex("kept"))
		o.holdUp(701)
		for _, h := range holds {
			mustUnlock(t, h)
		}
		// Somebody waits for one of them over there: the message has to wake it.
		b := open(t, o.promoted.URL())
		found := o.promote()
		waits := b.Mutex("x0").LockAsync(ctxT(t))
		o.awaitKeys(found, 2) // kept, and x0 for the waiter
		next, err := waits.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if d := found.Elapsed(); d > 3*time.Second {
			t.Errorf("the waiter got it after %v", d)
		}
		mustUnlock(t, next)
		if kept.Err() != nil {
			t.Errorf("a lock that is held: %v", kept.Err())
		}
		mustUnlock(t, kept)
		clean(t, o.promoted)
	})
}

// What was given back because nobody wanted it would be back on the new primary, too.
func TestRecovery_Compensation_IsRememberedAsAReleaseIs(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	e := open(t, r.URL())
	grantedAgain(t, e, "x", 1) // a new replica acknowledges nothing for up to a second
	_, before := remembered(e)
	_, err := e.Mutex("x").Lock(ctxT(t), Acked(2))
	notAcked(t, err, 1, 2)
	eventually(t, "it is given back, and remembered", func() bool {
		_, n := remembered(e)
		return n == before+1 && r.Primary().Do("DBSIZE") == int64(0)
	})
}

// A MinHold stays for what it has left, and no longer than that.
func TestMinHold_ThatTheNewPrimaryMissed_KeepsItsRest(t *testing.T) {
	t.Parallel()
	const hold = 20 * time.Second // less than the lease
	o := newOutdated(t)
	asked := time.Now()
	h := mustLock(t, o.e.Mutex("x"), MinHold(hold))
	granted := time.Now()
	over := mustLock(t, o.e.Mutex("y"), MinHold(time.Millisecond))
	o.holdUp(2)
	mustUnlock(t, h)
	mustUnlock(t, over)
	eventually(t, "some of it goes by", func() bool { return time.Since(granted) > 500*time.Millisecond })
	replaced := time.Now()
	o.awaitKeys(o.promote(), 1)
	// They are two commands, the latest release first: y may be gone before x is asked for.
	eventually(t, "the owner is gone", func() bool { return fields(t, o.promoted, "x")[h.Owner()] == "" })
	ttl, _ := o.promoted.Do("PTTL", "x").(int64)
	// The rest is reckoned when the release is sent, after replaced, and counts from when it is run.
	least, most := time.Until(asked.Add(hold))-10*time.Millisecond, time.Until(granted.Add(hold))+time.Since(replaced)
	if left := time.Duration(ttl) * time.Millisecond; left < least || left > most {
		t.Errorf("%v left, want %v to %v", left, least, most)
	}
}

// The name has been taken again since: by another grant, which stays.
func TestRecovery_ReleaseSentAgain_SparesTheNextHold(t *testing.T) {
	t.Parallel()
	o := newOutdated(t)
	mustUnlock(t, mustLock(t, o.e.Mutex("x")))
	h := mustLock(t, o.e.Mutex("x"))
	eventually(t, "the replica has the next one", func() bool { return fields(t, o.promoted, "x")[h.Owner()] == "1" })
	o.link.Hold()
	before := o.promoted.CommandStats()["hdel"]
	o.promote()
	eventually(t, "the release was sent again", func() bool { return o.promoted.CommandStats()["hdel"] > before })
	if fields(t, o.promoted, "x")[h.Owner()] != "1" || h.Err() != nil {
		t.Errorf("the next hold is gone; %v", h.Err())
	}
	mustUnlock(t, h)
}

// The new primary refuses for now: it is asked again, and not all the time.
func TestRecovery_NewPrimaryRefuses_ReleaseIsSentUntilItDoesNot(t *testing.T) {
	t.Parallel()
	o := newOutdated(t)
	h := mustLock(t, o.e.Mutex("x"))
	o.holdUp(1)
	mustUnlock(t, h)
	o.promoted.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	o.promote()
	scripts := func() int64 { return o.promoted.CommandStats()["evalsha"] }
	since, before := time.Now(), scripts()
	eventually(t, "it is asked a few times", func() bool { return scripts() >= before+4 })
	if d := time.Since(since); d < 2*recovery.ResendAfter {
		t.Errorf("four times within %v", d)
	}
	o.promoted.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	o.awaitKeys(cputime.Now(), 0)
}

// remembering has an engine remember releases for so long.
func remembering(keep time.Duration) func(*Config) {
	return func(c *Config) { c.remember = keep }
}

func TestRecovery_StandaloneServer_RemembersNoRelease(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	mustUnlock(t, mustLock(t, e.Mutex("x")))
	if servers, n := remembered(e); servers != 0 || n != 0 {
		t.Errorf("%d releases of %d servers are remembered", n, servers)
	}
}

// The last user leaves nothing.
func TestRecovery_OldReleases_AreForgotten(t *testing.T) {
	t.Parallel()
	e := open(t, redistest.StartReplicated(t, 1).URL(), remembering(time.Second))
	mustUnlock(t, mustLock(t, e.Mutex("x")))
	if _, n := remembered(e); n != 1 {
		t.Fatalf("%d releases are remembered", n)
	}
	eventually(t, "it is forgotten", func() bool { servers, _ := remembered(e); return servers == 0 })
}

// While nobody can be asked nothing is forgotten: the failover may take its time.
func TestRecovery_ServerGone_ReleasesAreRemembered(t *testing.T) {
	t.Parallel()
	o := newOutdated(t, remembering(2*time.Second))
	h := mustLock(t, o.e.Mutex("x"))
	o.holdUp(1)
	mustUnlock(t, h)
	o.primary.Kill()
	gone := time.Now()
	eventually(t, "time goes by", func() bool { return time.Since(gone) > 4*time.Second })
	o.awaitKeys(o.promote(), 0)
}

// The routes have changed while the release was out.
func TestRecovery_ReleaseAnsweredByAReplacedServer_IsSentAgainAtOnce(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	e := open(t, r.URL())
	r.Primary().Do("HSET", "x", e.ID()+":5", "1")
	e.table.Recovery.Note(e.table.Client.ServerOf(0)+1, e.table.Client.Route("x"), recovery.Release{Name: "x", ID: 5, At: e.clock.Now()})
	eventually(t, "it is released", func() bool { return r.Primary().Do("EXISTS", "x") == int64(0) })
	// That has an effect, so it is remembered, for the server that has done it.
	eventually(t, "it is remembered", func() bool { servers, n := remembered(e); return servers == 1 && n == 1 })
}

// A Shutdown may wait for holders for as long as they like, and the connection that the
// releases go to may not be there yet.
func TestRecovery_ShutdownWaits_ReleasesAreSentAgain(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	kept := mustLock(t, e.Mutex("kept"))
	down := make(chan error, 1)
	go func() { down <- e.Shutdown(ctxT(t)) }()
	eventually(t, "it has begun", Closing(e))
	s.Do("HSET", "x", e.ID()+":5", "1")
	p.Down()
	route := e.table.Client.Route("x")
	eventually(t, "the lane is down", func() bool { return !e.table.Client.LaneOf(route).Up() })
	e.table.Recovery.Resend([]recovery.Release{{Name: "x", ID: 5, At: e.clock.Now()}}, 0)
	eventually(t, "they were looked at", func() bool {
		return !slices.ContainsFunc(e.table.Recovery.View().Lanes, func(l recovery.LaneView) bool {
			return l.Lane == e.table.Client.LaneOf(route) && l.Kicked
		})
	})
	p.Up()
	eventually(t, "it is released", func() bool { return s.Do("EXISTS", "x") == int64(0) })
	mustUnlock(t, kept)
	if err := receive(t, down); err != nil {
		t.Error(err)
	}
}
