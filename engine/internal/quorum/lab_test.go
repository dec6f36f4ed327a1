package quorum

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// lab is a machine with a Port in which nothing happens by itself: it notes what it is asked for.
// Its servers are a table of tries and holds. A random time is none.
type lab struct {
	t testing.TB
	Machine
	now   clock.Instant
	tries []*try          // that are out, at each server
	holds []*hold         // the latest, at each server
	trips []time.Duration // the latest round trips

	asked     []string // since the latest look at it: see news
	given     []int
	cancelled []int
	looked    []int
	joins     clock.Instant // when what joined latest ends
	won       int
	failed    []Failure
	logged    []error
	listed    int
}

type try struct {
	server int
	waits  bool
}

// hold is the hold of a vote.
type hold struct {
	Vote
	lab   *lab
	until clock.Instant
}

func (h *hold) InTime() bool         { return h.lab.now < h.until }
func (h *hold) Until() clock.Instant { return h.until }

// verdict and loss are the errors of a lab.
type failureError struct{ Failure }
type lossError struct{ Loss }

func (*failureError) Error() string { return "not acquired" }
func (*lossError) Error() string    { return "lost" }

func (l *lab) Now() clock.Instant                  { return l.now }
func (l *lab) Stamp(int) clock.Instant             { return l.now }
func (l *lab) Away(int) error                      { return nil }
func (l *lab) Draw(time.Duration) time.Duration    { return 0 }
func (l *lab) NotAcquired(f Failure) error         { return &failureError{f} }
func (l *lab) Lost(loss Loss) error                { return &lossError{loss} }
func (l *lab) NewTry(server int, waits bool) Try   { return &try{server, waits} }
func (l *lab) RoundTrip(i int) time.Duration       { return l.trips[i] }
func (l *lab) SetRoundTrip(i int, d time.Duration) { l.trips[i] = d }
func (l *lab) after(d time.Duration)               { l.now = l.now.Add(d) }
func (l *lab) is(stage Stage) {
	l.t.Helper()
	l.must(l.Stage == stage, "stage %d, want %d", l.Stage, stage)
}
func (l *lab) must(ok bool, s string, of ...any) { l.t.Helper(); mustBe(l.t, ok, s, of...) }

func mustBe(t testing.TB, ok bool, format string, of ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, of...)
	}
}

// newLab is a lab with so many servers, in their order, unless c has another, a millisecond away.
func newLab(t testing.TB, servers int, c Config) *lab {
	l := &lab{
		t: t, now: clock.Instant(time.Hour), tries: make([]*try, servers), holds: make([]*hold, servers),
		trips: make([]time.Duration, servers),
	}
	for i := 0; len(c.Order) < servers; i++ {
		c.Order = append(c.Order, i)
	}
	for i := range l.trips {
		l.trips[i] = time.Millisecond
	}
	l.Init(l, servers, c)
	return l
}

// newContender is a lab that has begun.
func newContender(t testing.TB, servers int) *lab {
	return lockWith(t, servers, Config{Renewal: renewal})
}

func lockWith(t testing.TB, servers int, c Config) *lab {
	l := newLab(t, servers, c)
	l.does(func(do *Ready) { l.Begin(do) })
	return l
}

// heldBy is a lab that holds the lock at all of its servers, granted now.
func heldBy(t testing.TB, servers int) *lab {
	t.Helper()
	l := newContender(t, servers)
	for i := range servers {
		l.grant(i)
	}
	l.is(Holding)
	l.news()
	return l
}

// does makes a transition, checks the invariants, and notes what is to be done, in its order.
func (l *lab) does(transition func(do *Ready)) {
	l.t.Helper()
	var do Ready
	transition(&do)
	l.invariants()
	if do.Lost != nil {
		l.logged = append(l.logged, do.Lost)
	}
	for _, v := range do.Give {
		l.given = append(l.given, v.Member)
	}
	for _, a := range do.Cancel {
		l.cancelled = append(l.cancelled, a.(*try).server)
	}
	if do.Won {
		l.won++
	}
	if do.Failed != nil {
		l.failed = append(l.failed, do.Failed.(*failureError).Failure)
	}
	if do.Join != nil {
		l.joins = do.Last
	}
	for _, v := range do.LookAt {
		l.looked = append(l.looked, v.Member)
	}
	for _, one := range do.Ask {
		a := one.Try.(*try)
		l.must(l.tries[one.Member] == nil, "server %d is asked twice", one.Member)
		l.tries[one.Member] = a
		word := "once"
		if a.waits {
			word = "waits"
		}
		l.asked = append(l.asked, fmt.Sprint(word, " ", one.Member))
	}
	if do.List {
		l.listed++
	}
}

// invariants are those of Machine.
func (l *lab) invariants() {
	l.t.Helper()
	out, votes := 0, 0
	for i := range l.Members {
		p := &l.Members[i]
		if p.Asked != nil {
			out++
		}
		if p.Vote != nil {
			votes++
		}
		l.must(p.Asked == nil || p.Vote == nil, "server %d is asked, and has granted it", i)
	}
	l.must(l.Stage != Waiting || l.stop != nil || votes == 0, "it waits, and keeps %d votes", votes)
	l.must(l.Stage != Over || votes == 0 && l.Due == 0, "it is over, keeps %d votes, and is due at %v", votes, l.Due)
	l.must(l.won+len(l.failed) <= 1, "it was told %d times", l.won+len(l.failed))
	l.must(l.Decided() || out > 0 || l.stop == nil && l.Due != 0, "in stage %d nothing wakes it", l.Stage)
}

// grant has a server grant it, for half a minute from now.
func (l *lab) grant(i int) *hold { l.t.Helper(); return l.grantWithin(i, false) }

// grantWithin is grant; reenters: within a hold of the caller's.
func (l *lab) grantWithin(i int, reenters bool) *hold {
	l.t.Helper()
	h := &hold{lab: l, until: l.now.Add(30 * time.Second)}
	h.Port, h.Member, h.Reenters = h, i, reenters
	l.holds[i] = h
	l.tell(i, h, Refusal{})
	return h
}

// tell answers the try at a server.
func (l *lab) tell(i int, h *hold, r Refusal) {
	l.t.Helper()
	l.must(l.tries[i] != nil, "server %d is not asked", i)
	l.tries[i] = nil
	l.does(func(do *Ready) {
		var v *Vote
		if h != nil {
			v = &h.Vote
		}
		l.Reply(i, v, r, do)
	})
}

func (l *lab) refuse(i int, r Refusal) { l.t.Helper(); l.tell(i, nil, r) }

const renewal = 10 * time.Second

// These are what a server may say.
var (
	held    = Refusal{Why: lockerr.ErrHeld, State: Held, TTL: time.Second, Passes: true}
	away    = Refusal{Why: lockerr.ErrUnavailable, State: Unavailable, Passes: true}
	forGood = Refusal{Why: lockerr.ErrWrongType}
	full    = Refusal{Why: lockerr.ErrOverloaded, Full: true}
	late    = Refusal{Why: lockerr.ErrGrantTooLate, Late: true, Passes: true}
	closed  = Refusal{Why: lockerr.ErrClosed, Closed: true}
	cut     = Refusal{Why: errors.New("given up")}
)

func heldFor(ttl time.Duration) Refusal { r := held; r.TTL = ttl; return r }

// ring waits until it is due, which must be d from now.
func (l *lab) ring(d time.Duration) {
	l.t.Helper()
	l.must(l.Due == l.now.Add(d), "it is due in %v, want %v", l.Due.Sub(l.now), d)
	l.now = l.Due
	l.does(l.Tick)
}

// waitsAt checks that it waits there, without votes.
func (l *lab) waitsAt(i int) {
	l.t.Helper()
	l.is(Waiting)
	l.must(l.tries[i] != nil && l.tries[i].waits, "it does not wait at server %d", i)
}

// inVain is a wait at a server that brings nothing.
func (l *lab) inVain(i int) {
	l.t.Helper()
	l.waitsAt(i)
	l.ring(LongestWait / 2)
	l.must(slices.Equal(l.cancelled, []int{i}), "cancelled %v, want %d", l.cancelled, i)
	l.cancelled = nil
	l.refuse(i, held)
}

// endOf is the end of the hold of a member.
func endOf(i int, why error, loss lock.Loss) End {
	return End{Member: i, Why: why, There: why, Loss: loss}
}

// leave has the hold of a vote end, which its server had at that time still.
func (l *lab) leave(i int, why lock.Loss, there clock.Instant) {
	l.t.Helper()
	e := endOf(i, fmt.Errorf("loss %d", why), why)
	if why == 0 {
		e = endOf(i, lockerr.ErrReleased, 0)
	}
	l.does(func(do *Ready) { l.Leave(&l.holds[i].Vote, e, there, do) })
}

// cancel gives it up; what was asked is answered: it was cut.
func (l *lab) cancel(cause error) bool {
	l.t.Helper()
	did := false
	l.does(func(do *Ready) { did = l.Cancel(lockerr.Cancel{Cause: cause}, do) })
	return did
}

// news is what was asked, given back, cancelled and looked at since the latest call.
func (l *lab) news() string {
	s := fmt.Sprintf("ask %v give %v cancel %v look %v", l.asked, l.given, l.cancelled, l.looked)
	l.asked, l.given, l.cancelled, l.looked = nil, nil, nil, nil
	return s
}

// did checks the news.
func (l *lab) did(want string) {
	l.t.Helper()
	if got := l.news(); got != want {
		l.t.Fatalf("it did\n\t%s, want\n\t%s", got, want)
	}
}

// votes are the servers that have granted it.
func (l *lab) votes() (at []int) {
	for _, v := range l.Votes() {
		at = append(at, v.Member)
	}
	return at
}

func (l *lab) hasVotes(want ...int) {
	l.t.Helper()
	l.must(slices.Equal(l.votes(), want), "it has the votes of %v, want %v", l.votes(), want)
}

// failedWith returns the failure of one that has failed.
func (l *lab) failedWith(is error) Failure {
	l.t.Helper()
	l.must(l.Stage == Over && len(l.failed) == 1 && l.won == 0, "stage %d, failed %+v, won %d", l.Stage, l.failed, l.won)
	l.must(l.failed[0].Is == is, "failed with %+v, want %v", l.failed[0], is)
	return l.failed[0]
}
