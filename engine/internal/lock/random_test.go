package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func (j *journey) ask() {
	c := &traveller{number: len(j.callers), asked: j.now}
	c.Init(&c.caller)
	c.once(j.rnd.IntN(5) == 0)
	if j.rnd.IntN(4) == 0 {
		c.Kind = fenced
	}
	switch j.rnd.IntN(12) {
	case 0:
		c.Lease = time.Duration(1+j.rnd.IntN(40)) * time.Second
	case 1:
		c.More().MaxHold = time.Duration(1+j.rnd.IntN(40)) * time.Second
	case 2:
		c.More().MinHold = time.Duration(1+j.rnd.IntN(3)) * time.Second
	}
	if j.rnd.IntN(6) == 0 {
		for _, of := range j.callers {
			if of.hold != nil && of.hold.IsLive() && j.rnd.IntN(2) == 0 {
				c.Parent, c.Kind, c.extra = &of.hold.Hold, of.Kind, nil
			}
		}
	}
	if j.r.Detached {
		j.r = j.name()
	}
	j.callers = append(j.callers, c)
	j.log("caller %d asks: once %v, kind %d, lease %v, re-enters %v, %+v", c.number, c.Try(), c.Kind, c.Lease, c.Parent != nil, c.extra)
	j.do(func(rd *Ready) { j.r.Admit(&c.Request, rd) })
}

func (j *journey) unlockOne(i int) {
	c := j.callers[i]
	u := new(leaver)
	u.Handle = u
	unlock := c.hold.Unlock
	if j.rnd.IntN(10) == 0 {
		unlock = c.hold.GiveBack
	}
	j.leavers = append(j.leavers, u)
	j.log("caller %d unlocks", i)
	j.do(func(rd *Ready) { unlock(&u.Unlock, rd) })
}

func (j *journey) answer(calm bool) {
	c := encoded{j.r.Cmd, slices.Collect(j.r.Cmd.BatchedIDs)}
	if c.Action == NoCommand {
		return
	}
	sent := j.now
	o := Outcome{Sent: sent}
	switch n := j.rnd.IntN(20); {
	case calm || n < 13:
		o = j.executes(&c)
		o.Sent = sent
		if c.Action == Extending {
			j.lastly = sent // it counts as a renewal
		}
		j.now = j.now.Add(time.Duration(j.rnd.IntN(3)) * time.Millisecond)
	case n == 13:
		o.Result = RetryLater
		o.Moving = j.rnd.IntN(2) == 0
		if o.Begun = j.rnd.IntN(3) == 0; o.Begun && j.rnd.IntN(2) == 0 {
			j.executes(&c)
		}
	case n == 14:
		o.Result = NotSent
	case n == 15:
		o.Result = LaneFull
	case n == 16:
		o.Result = Unknown
		j.executes(&c)
	case n == 17:
		o.Result = Unknown
		if c.Action == Acquiring {
			j.late = append(j.late, c)
			j.lateBy = j.now.Add(time.Second)
		}
	case n == 18:
		o.Result = Unknown
	default:
		o.Result = Refused
		// Of a batch the releases come first. A compensation that cannot be released is not asked for again.
		if c.Action == Compensating || j.rnd.IntN(2) == 0 {
			j.executes(&c)
		} else if c.Batched != 0 {
			j.executes(&encoded{beside: c.beside})
		}
	}
	if o.Result != Replied {
		o.Err = errors.New("no")
		o.BatchAnswers = 0
	}
	o.Now = j.now
	j.log("the answer to %d for %d: %+v; the server has %d", c.Action, c.ID, o, j.owner)
	j.do(func(rd *Ready) { j.r.Replied(&o, rd) })
}

// renew asks for the grant.
func (j *journey) renew(t *Grant) {
	if t.hold() == nil || j.left[t] {
		return
	}
	var lease time.Duration
	var ok bool
	sent := j.now
	j.do(func(rd *Ready) { lease, ok = t.Renewal(j.now, rd) })
	if !ok {
		j.log("%d is not to be renewed", t.ID)
		j.left[t] = t.watchdog
		j.check()
		return
	}
	j.lapse()
	if j.owner != t.ID {
		j.log("a renewal of %d finds nothing", t.ID)
		j.left[t] = t.watchdog
		j.do(func(rd *Ready) { t.Gone(RemovedOnServer, rd) })
		return
	}
	j.expires = max(j.expires, j.now.Add(lease))
	if j.rnd.IntN(8) == 0 {
		return // no answer
	}
	j.log("%d is renewed for %v", t.ID, lease)
	j.lastly = max(j.lastly, sent)
	j.do(func(rd *Ready) { t.Renewed(sent, j.now, lease, 0, rd) })
}

func (j *journey) renewAll() {
	for _, c := range j.callers {
		if h := c.hold; h != nil && h.Parent == nil && h.hold() != nil && h.watchdog {
			j.renew(h.Grant)
		}
	}
}

func (j *journey) step() {
	switch n := j.rnd.IntN(40); {
	case n < 8:
		j.ask()
	case n < 16:
		if k := len(j.callers); k > 0 {
			for i := k - 1; i >= max(0, k-12); i-- {
				if h := j.callers[i].hold; h != nil && (h.IsLive() || j.rnd.IntN(10) == 0) {
					j.unlockOne(i)
					break
				}
			}
		}
	case n < 26:
		j.answer(false)
	case n == 26:
		for i := len(j.callers) - 1; i >= 0; i-- {
			if c := j.callers[i]; c.settled == 0 && j.rnd.IntN(2) == 0 {
				j.log("caller %d gives up", i)
				j.do(func(rd *Ready) { c.Cancel(lockerr.Cancel{Cause: context.Canceled}, rd) })
				break
			}
		}
	case n == 27:
		for _, c := range j.callers {
			if h := c.hold; h != nil && h.IsLive() {
				x := &Extend{Handle: j, Lease: time.Duration(1+j.rnd.IntN(50)) * time.Second}
				j.log("caller %d extends by %v", c.number, x.Lease)
				j.do(func(rd *Ready) { h.Extend(x, rd) })
				stops := j.rnd.IntN(3) == 0
				if stops {
					_ = h.StopExtending(x, context.Canceled)
				}
				if !stops || x.state != pending {
					j.extends = append(j.extends, x)
				}
				break
			}
		}
	case n == 28:
		j.renewAll()
	case n == 29:
		for _, c := range j.callers {
			if h := c.hold; h != nil && h.IsLive() {
				h.Bind(ender{})
				break
			}
		}
	case n == 30 || n == 31:
		if len(j.notified) > 0 {
			h := j.notified[0]
			j.notified = j.notified[1:]
			j.log("contexts of %d have ended", h.ID)
			j.do(func(rd *Ready) { h.Entry.ContextsEnded(h, rd) })
		}
	case n == 32 && j.rnd.IntN(3) == 0:
		if j.lapse(); j.owner != 0 {
			j.log("the lock is removed by force, from %d", j.owner)
			j.removed[j.owner] = true
			j.owner, j.minEnd = 0, 0
			j.news++
		}
	case n == 33:
		if j.lapse(); j.owner == 0 {
			j.log("another process takes the lock")
			j.owner, j.depth, j.expires = another, 1, j.now.Add(time.Duration(j.rnd.IntN(5000))*time.Millisecond)
		} else if j.owner == another {
			j.log("another process releases the lock")
			j.owner = 0
			j.news++
		}
	case n == 34 || n == 35:
		j.channel()
	case n == 36:
		if len(j.late) > 0 {
			c := j.late[0]
			j.late = j.late[1:]
			if j.now >= j.lateBy {
				break // the connection has died meanwhile
			}
			j.executes(&c)
			j.phantom = true
			j.log("the server reads %d for %d late, and has %d", c.Action, c.ID, j.owner)
		}
	case n == 37:
		j.now = j.now.Add(time.Duration(j.rnd.IntN(11000)) * time.Millisecond)
		j.renewAll()
		j.timers()
	default:
		j.now = j.now.Add(time.Duration(j.rnd.IntN(8)) * time.Millisecond)
		j.timers()
	}
	j.check()
}

func (j *journey) channel() {
	w := j.r.sub
	if w == nil || !w.Listening() {
		j.news = 0
		return
	}
	switch {
	case !w.Hears():
		j.do(w.Subscribed)
	case j.news > 0:
		j.news--
		j.do(w.OnMessage)
	case j.rnd.IntN(10) == 0:
		j.do(w.ConnectionLost)
	}
}

func (j *journey) finish() {
	if j.rnd.IntN(4) == 0 {
		j.log("Close")
		j.Phase, j.late = Closed, nil
		j.do(j.r.StopWaiting)
		j.do(j.r.EndHold)
	}
	for i := 0; ; i++ {
		if i > 4000 {
			j.fail("something is left")
		}
		next := j.timers()
		busy := false
		if j.r.Cmd.Action != NoCommand {
			j.answer(true)
			busy = true
		}
		for len(j.notified) > 0 {
			h := j.notified[0]
			j.notified = j.notified[1:]
			j.do(func(rd *Ready) { h.Entry.ContextsEnded(h, rd) })
			busy = true
		}
		for k, c := range j.callers {
			if c.hold != nil && c.hold.IsLive() {
				j.unlockOne(k)
				busy = true
			}
		}
		for len(j.late) > 0 {
			c := j.late[0]
			j.late = j.late[1:]
			if j.now < j.lateBy {
				j.executes(&c)
			}
		}
		if busy {
			continue
		}
		if j.r.Detached || !j.r.InUse() && j.r.sub == nil && j.r.blocked == NotBlocked {
			break
		}
		if next == 0 {
			j.fail("nothing goes on")
		}
		j.now = max(next, j.now)
		j.renewAll()
	}
	for i, c := range j.callers {
		if c.settled != 1 || c.delivered != 1 {
			j.fail("caller %d was told %d times, %d", i, c.settled, c.delivered)
		}
		if c.hold != nil && !c.hold.finished() {
			j.fail("the hold of caller %d is not over", i)
		}
	}
	for i, u := range j.leavers {
		if u.delivered != 1 {
			j.fail("Unlock %d was told %d times", i, u.delivered)
		}
	}
	for i, x := range j.extends {
		if x.state != settled {
			j.fail("Extend %d", i)
		}
	}
	j.lapse()
	if j.owner > 0 && !(j.closing() && j.phantom) { // Close does not wait for what is to be released again
		j.fail("%d is left on the server, for %v", j.owner, j.expires.Sub(j.now))
	}
	if j.Count.Held != 0 || j.Count.Pending != 0 {
		j.fail("counted: %+v", j.Count)
	}
}

const seeds = 800

// Whatever callers, the server and the network do: one has the lock by the server's record, each Unlock
// and each request is told once, turns end, and nothing is left. See journey.
func TestRandomJourneys(t *testing.T) {
	t.Parallel()
	var handed uint64
	for seed := range uint64(seeds) {
		handed += travel(t, seed)
	}
	if handed < seeds {
		t.Errorf("only %d tenures were handed over", handed)
	}
}

func travel(t *testing.T, seed uint64) (handedOver uint64) {
	j := &journey{
		lab: newHandOverLab(t), seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)),
		removed: make(map[int64]bool), left: make(map[*Grant]bool), grants: make(map[*Grant]int),
	}
	j.cfg.HandOvers = uint16(1 + j.rnd.IntN(4))
	j.cfg.HandOverFor = time.Duration(1+j.rnd.IntN(30)) * time.Millisecond
	j.r = j.name()
	for range 120 {
		j.step()
	}
	j.finish()
	return j.Count.HandedOver
}
