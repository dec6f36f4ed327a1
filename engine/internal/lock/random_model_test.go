package lock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// another is the owner of another process.
const another = -1 << 40

// A journey is one name that random callers, a random server and a random network use. The
// server's record is a model of what the scripts do.
type journey struct {
	*lab
	rnd      *rand.Rand
	seed     uint64
	r        *Entry
	story    []string
	owner    int64 // the lock's owner on the server; 0: none. Another process has a negative one.
	depth    uint32
	expires  clock.Instant
	token    int64
	removed  map[int64]bool // owners that somebody else took the lock from
	callers  []*traveller
	leavers  []*leaver
	extends  []*Extend
	left     map[*Grant]bool // the renewals
	grants   map[*Grant]int  // of each grant
	lastly   clock.Instant   // the latest renewal was sent
	late     []encoded       // that the server reads later, though nobody gets the answer
	lateBy   clock.Instant
	notified []*Hold // whose contexts are still to end
	minEnd   clock.Instant
	tokens   int64
	news     int
	phantom  bool // the server has read something late
}

type traveller struct {
	caller
	number int
	asked  clock.Instant
	seen   bool
}

func (j *journey) OnResult() {}

func (j *journey) log(format string, args ...any) {
	j.story = append(j.story, fmt.Sprintf("%v: ", j.now.Sub(clock.Instant(time.Hour)))+fmt.Sprintf(format, args...))
}

func (j *journey) fail(format string, args ...any) {
	j.t.Helper()
	from := max(0, len(j.story)-60)
	for _, s := range j.story[from:] {
		j.t.Log(s)
	}
	j.t.Fatalf("seed %d: "+format+" (%+v)", append(append([]any{j.seed}, args...), j.r.View())...)
}

func (j *journey) do(transition func(rd *Ready)) {
	var rd Ready
	transition(&rd)
	if rd.Ended != nil {
		j.notified = append(j.notified, rd.Ended)
	}
	j.settle()
	tell(&rd)
	j.check()
	if h := j.r.hold; h != nil {
		if holder := h.Handle.(*tenant); holder.soon {
			holder.soon = false
			j.renew(h.Grant)
		}
	}
}

// lapse has the server forget what is over.
func (j *journey) lapse() {
	if j.owner != 0 && j.now >= j.expires {
		j.owner = 0
	}
}

func (j *journey) release(id int64, rest time.Duration) Reply {
	if j.owner != id {
		return NotOwner
	}
	j.owner = 0
	j.news++
	if rest > 0 {
		j.owner, j.depth, j.expires = -id, 1, j.now.Add(rest)
	}
	return OK
}

// encoded is a command as its bytes are: they do not change.
type encoded struct {
	Command
	beside []int64
}

// executes is what the scripts do.
func (j *journey) executes(c *encoded) (o Outcome) {
	j.lapse()
	for i, id := range c.beside {
		o.BatchAnswers, o.BatchReplies[i] = i+1, j.release(id, 0)
	}
	switch c.Action {
	case Acquiring:
		if j.owner != 0 && j.owner != c.ID {
			o.Reply, o.TTL = HeldByOther, j.expires.Sub(j.now)
			return o
		}
		j.owner, j.depth, j.expires = c.ID, 1, j.now.Add(c.Lease)
	case Reentering, Extending:
		if j.owner != c.ID {
			o.Reply = NotOwner
			return o
		}
		if c.Action == Reentering {
			j.depth = c.Number
		}
		j.expires = max(j.expires, j.now.Add(c.Lease))
	case Decrementing:
		if j.owner != c.ID {
			o.Reply = NotOwner
			return o
		}
		j.depth = c.Number
	case Releasing, Compensating:
		o.Reply = j.release(c.ID, c.Lease)
	}
	if c.Action == Acquiring && c.Kind == fenced {
		j.token++
		o.Token = j.token
	}
	return o
}

// check looks at everything after each transition.
func (j *journey) check() {
	j.t.Helper()
	j.lapse()
	for i, c := range j.callers {
		if c.settled > 1 || c.delivered > c.settled {
			j.fail("caller %d is told %d times", i, c.settled)
		}
		if c.hold == nil || c.seen {
			continue
		}
		c.seen = true
		h := c.hold
		j.log("caller %d has it: owner %d, depth %d, handed %d", i, h.ID, h.count, h.handOvers)
		if h.Parent != nil {
			continue
		}
		if !c.Try() {
			for k, other := range j.callers[:i] {
				if other.settled == 0 && !other.Try() && other.Parent == nil {
					j.fail("caller %d was overtaken by %d", k, i)
				}
			}
		}
		if j.now < j.minEnd {
			j.fail("granted before the MinHold of another is over")
		}
		if x := c.Extra(); x != nil && x.MinHold != 0 {
			j.minEnd = j.now.Add(x.MinHold)
		}
		if c.Kind == fenced {
			if h.Token() <= j.tokens {
				j.fail("token %d after %d", h.Token(), j.tokens)
			}
			j.tokens = h.Token()
		}
		j.grants[h.Grant]++
		if j.grants[h.Grant] > 1+int(j.cfg.HandOvers) || h.handOvers > j.cfg.HandOvers {
			j.fail("handed over %d times", h.handOvers)
		}
		if h.handOvers > 0 && !j.removed[h.ID] && j.owner == h.ID {
			if j.depth != 1 {
				j.fail("handed over with a count of %d", j.depth)
			}
			if j.expires > j.now.Add(j.cfg.Lease) {
				j.fail("handed over with a lease of %v", j.expires.Sub(j.now))
			}
		}
		switch {
		case h.handOvers == 0:
			j.lastly = j.now
		case h.handOvers > 0 && c.Kind != fenced && j.now > c.asked && j.now.Sub(j.lastly) > j.cfg.HandOverFor+2*time.Millisecond:
			j.fail("handed over %v after the grant", j.now.Sub(j.lastly))
		}
	}
	holders := 0
	for i, c := range j.callers {
		if c.hold == nil || !c.hold.IsLive() || j.now >= c.hold.Until() {
			continue
		}
		h := c.hold
		if h.Parent == nil {
			holders++
		}
		if j.owner != h.ID && !j.removed[h.ID] {
			j.fail("caller %d holds it as %d, but on the server it is %d's", i, h.ID, j.owner)
		}
		if j.left[h.Grant] && h.watchdog {
			j.fail("caller %d holds it, and nobody renews it", i)
		}
		if r := h.Entry; r.hold == nil || r.hold.Grant != h.Grant {
			j.fail("caller %d holds what the name has forgotten", i)
		}
	}
	if holders > 1 {
		j.fail("%d holders", holders)
	}
	if v := j.r; v.Cmd.Action == NoCommand && v.blocked == NotBlocked && v.endingContexts == 0 && !v.Detached {
		if h := v.hold; h != nil && h.state == releasing {
			j.fail("an Unlock is forgotten")
		}
		if v.hold == nil && (v.tries.Len() > 0 || v.waiters.Len() > 0 && (v.sub == nil || v.sub.Ready())) {
			j.fail("a request is forgotten")
		}
		if v.sub != nil && v.hold == nil && v.waiters.Len() > 0 && bellOf(v.sub).at.Sub(j.now) > 30*time.Second {
			j.fail("the head sleeps too long")
		}
		if v.sub != nil && v.hold == nil && v.waiters.Len() > 0 && bellOf(v.sub).at == 0 {
			j.fail("the head sleeps for ever")
		}
	}
	if v := j.r; !v.Detached && v.endingContexts == 0 && v.hold != nil && v.hold.state == live && v.waiters.Len() > 0 && v.hold.Parent == nil {
		if v.sub == nil {
			j.fail("no wait behind a hold")
		}
		b := bellOf(v.sub)
		if v.sub.Ready() && v.Cmd.Action == NoCommand && v.blocked == NotBlocked {
			j.fail("awake behind a hold")
		}
		if !v.hold.watched() {
			if !v.sub.Ready() && v.Cmd.Action == NoCommand && (b.at == 0 || b.at.Sub(j.now) > LongestSleep) {
				j.fail("sleeps behind a fixed hold until %v", b.at.Sub(j.now))
			}
		} else if !v.sub.Hears() && !v.sub.Ready() && b.at == 0 {
			j.fail("sleeps behind a watched hold, unconfirmed, without an alarm")
		} else if j.left[v.hold.Grant] {
			j.fail("watched hold has left")
		}
	}
	for i, c := range j.callers {
		if c.res == nil || c.Ended() {
			continue
		}
		if why := c.Blocking(true); errors.Is(why, lockerr.ErrHeld) == errors.Is(why, lockerr.ErrUnavailable) {
			j.fail("caller %d has waited as long as it may, and is told %v", i, why)
		}
	}
	if j.r.Detached && j.r.InUse() {
		j.fail("it went with something left")
	}
}

// timers has fire what is due, and returns when the next one is.
func (j *journey) timers() (next clock.Instant) {
	for range 50 {
		next = 0
		due := func(at clock.Instant) bool {
			if at == 0 {
				return false
			}
			if at > j.now && (next == 0 || at < next) {
				next = at
			}
			return at <= j.now
		}
		switch {
		case j.r.blocked == BackingOff && due(j.paused):
			j.do(j.r.PauseOver)
			continue
		case j.r.blocked == Disconnected:
			j.do(func(rd *Ready) { j.r.Reconnected(nil, rd) })
			continue
		}
		fired := false
		if w := j.r.sub; w != nil {
			if b := bellOf(w); due(b.at) {
				b.at, fired = 0, true
				j.do(w.AlarmFired)
			}
		}
		for d := j.r.compensations; d != nil && !fired; d = d.next {
			if due(noteOf(d).at) {
				fired = true
				j.do(func(rd *Ready) { d.Fired(j.now, rd) })
			}
		}
		for _, c := range j.callers {
			if !fired && c.hold != nil && due(c.hold.alarm) {
				c.hold.alarm, fired = 0, true
				j.do(func(rd *Ready) { c.hold.Fired(j.now, rd) })
			}
			if !fired && c.giveUp != 0 && due(c.giveUp) && !c.Ended() {
				c.giveUp, fired = 0, true
				j.do(func(rd *Ready) { c.Cancel(lockerr.Cancel{TimedOut: true}, rd) })
			}
		}
		if !fired {
			return next
		}
	}
	j.fail("timers without end")
	return 0
}
