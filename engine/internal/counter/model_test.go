package counter

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/internal/clock"
)

const (
	// supply is how many permits there are, or the count of a latch.
	supply = 5
	// markFor is how long the server keeps a mark.
	markFor = time.Minute
	// unreadFor is how long a copy of a command may lie unread in the server, and how long a client
	// waits for an answer.
	unreadFor = 10 * time.Second
	// nearly is an outage after which there is time for a repeat: a pause takes less than a second.
	nearly = 49 * time.Second
)

// copies is a copy of a command that a server may execute.
type copies struct {
	number uint64
	ops    []byte // letters
	n      []int64
	due    clock.Instant // for one that lies unread: when the server reads it
}

// count is the server: the count, and the mark of one engine.
type count struct {
	value  int64
	number uint64
	said   []int64
	gone   clock.Instant // when the mark expires

	answers  map[uint64][]int64 // to each command, when it was executed
	repeated bool               // a command was executed once more
}

func (c *count) execute(cmd copies, now clock.Instant) (answers []int64, superseded bool) {
	if now >= c.gone {
		c.number = 0
	}
	if cmd.number != 0 {
		if cmd.number < c.number {
			return nil, true
		}
		if cmd.number == c.number {
			return c.said, false
		}
	}
	refused := false
	for i, what := range cmd.ops {
		code := int64(1)
		switch what {
		case 'a', 't':
			if refused || c.value < cmd.n[i] {
				code, refused = 0, refused || what == 'a'
			} else {
				c.value -= cmd.n[i]
			}
		case 'r', 'p':
			c.value += cmd.n[i]
		case 'c':
			c.value--
		case 'v':
			code = c.value
		}
		answers = append(answers, code)
	}
	if cmd.number != 0 {
		c.number, c.said, c.gone = cmd.number, answers, now.Add(markFor)
		c.repeated = c.repeated || c.answers[cmd.number] != nil
		c.answers[cmd.number] = answers
	}
	return answers, false
}

// history is what happens to a count in virtual time: calls, and outages of its server.
type history struct {
	*lab
	random  *rand.Rand
	longest time.Duration // an outage
	calm    bool          // everybody gives back what they have, and there is no outage any more

	server *count
	back   clock.Instant // the end of the outage
	outage time.Duration // how long it is
	late   []copies      // that lie unread in the server
	asked  []*caller

	ran          bool     // the command that is out was executed, and its answer is lost
	cmd          copies   // the command that was answered, or failed, last
	unknown      []copies // those that were given up
	downs        int64    // operations in commands that were answered, of a latch
	known, maybe int64    // what those were told who counted down

	doubt time.Duration // the longest that was answered
}

func newHistory(t *testing.T, k Kind, seed uint64, longest time.Duration) *history {
	h := &history{lab: newLab(t, k), random: rand.New(rand.NewPCG(seed, 3)), longest: longest}
	h.server = &count{value: supply, answers: make(map[uint64][]int64)}
	return h
}

// written is a copy of the command that is out.
func (h *history) written() (cmd copies) {
	c := &h.counter.Cmd
	cmd.number = c.Number
	for _, op := range c.Ops {
		cmd.ops, cmd.n = append(cmd.ops, op.Letter()), append(cmd.n, op.N)
	}
	if c.Asks {
		cmd.ops, cmd.n = append(cmd.ops, 'v'), append(cmd.n, 0)
	}
	return cmd
}

func (h *history) away() bool { return h.now < h.back }

// fall begins an outage. It lasts from the sending of the first command that it hits.
func (h *history) fall() {
	scale := []time.Duration{5 * time.Millisecond, time.Second, h.longest}[h.random.IntN(3)]
	h.outage = time.Duration(h.random.Int64N(int64(scale)))
	begins := h.now
	if h.counter.Cmd.out {
		begins = h.outSince
	}
	h.back = begins.Add(h.outage)
}

// outcome is what becomes of the command that is out, if it is not on its way still.
func (h *history) outcome() {
	h.cmd = h.written()
	if h.away() {
		switch what := h.random.IntN(6); {
		case what == 0 || h.ran: // perhaps it never is executed
			h.failed(lock.Unknown)
		case what == 1: // executed later
			h.cmd.due = max(h.now, h.outSince.Add(time.Duration(h.random.Int64N(int64(unreadFor)))))
			h.late = append(h.late, h.cmd)
			h.failed(lock.Unknown)
		case what == 2:
			h.failed(lock.NotSent)
		case what == 3:
			h.failed(lock.RetryLater)
		case what == 4:
			h.server.execute(h.cmd, h.now)
			h.ran = true
		}
		return
	}
	answers, superseded := h.server.execute(h.cmd, h.now)
	if h.counter.Cmd.doubt {
		h.doubt = max(h.doubt, h.now.Sub(h.counter.Cmd.since))
	}
	if !superseded {
		for _, what := range h.cmd.ops {
			if what == 'c' {
				h.downs++
			}
		}
	}
	h.over(Outcome{Answers: answers, Superseded: superseded})
}

func (h *history) failed(v lock.Result) { h.over(Outcome{Verdict: v, Err: errLab}) }

func (h *history) over(o Outcome) {
	h.ran, o.Sent = false, h.outSince
	h.watch(func() { h.reply(o) })
}

// watch notes whether a command is given up.
func (h *history) watch(do func()) {
	before := h.locks.Count.Unknown
	do()
	if h.locks.Count.Unknown != before {
		h.unknown = append(h.unknown, h.cmd)
	}
}

// pass has time pass, and what is due happen.
func (h *history) pass(d time.Duration) {
	for end := h.now.Add(d); ; {
		next := end
		if h.timer != 0 {
			next = min(next, h.timer)
		}
		for _, cmd := range h.late {
			next = min(next, cmd.due)
		}
		if h.counter.Cmd.out {
			next = min(next, h.outSince.Add(unreadFor))
		}
		h.now = max(h.now, next)
		switch {
		case h.timer != 0 && h.timer <= h.now:
			h.watch(h.fired)
		case h.counter.Cmd.out && h.outSince.Add(unreadFor) <= h.now:
			h.cmd = h.written()
			h.failed(lock.Unknown)
		case h.readLate():
		default:
			return
		}
	}
}

// readLate has the server read a copy that is due.
func (h *history) readLate() bool {
	i := slices.IndexFunc(h.late, func(cmd copies) bool { return cmd.due <= h.now })
	if i < 0 {
		return false
	}
	h.server.execute(h.late[i], h.now)
	h.late = slices.Delete(h.late, i, i+1)
	return true
}

// step has something happen.
func (h *history) step() {
	if h.away() {
		h.pass(min(h.back.Sub(h.now), time.Duration(h.random.Int64N(int64(h.outage/10+2)))))
	} else {
		h.pass(time.Duration(h.random.IntN(5)) * time.Millisecond)
		if h.stalled {
			h.watch(h.resume)
		}
	}
	switch what := h.random.IntN(10); {
	case what < 3 && h.counter.Cmd.out:
		h.outcome()
	case what == 3 && h.stalled: // somebody tries, in vain
		h.watch(h.resume)
	case what == 4 && !h.calm && !h.away() && !h.counter.Cmd.doubt:
		h.fall()
	case what == 5 && h.counter.alarm != 0 && h.random.IntN(4) == 0:
		h.watch(h.ring)
	case what == 6 && h.listens:
		events := []func(){h.subscribed, h.announce, func() { h.do(func(rd *Ready) { h.counter.OnChannel(serial.Lost, 0, false, rd) }) }, func() { h.do(func(rd *Ready) { h.counter.ChannelRefused(errLab, rd) }) }}
		h.watch(events[h.random.IntN(len(events))])
	case what == 7 || what == 8:
		h.call()
	case what == 9 && !h.calm:
		if h.counter.Out {
			h.counter, h.idle = &Counter{Shard: &h.shard, Name: "n", Kind: h.counter.Kind}, 0
		}
		wants := []string{"a1", "a2", "a5", "t1", "t3", "v"}
		if h.counter.Kind == Latch {
			wants = []string{"c", "c", "v", "w"}
		}
		h.watch(func() { h.asked = append(h.asked, h.ask("x", wants[h.random.IntN(len(wants))])) })
	}
}

// call has one who asked go on: release permits, give up, or go.
func (h *history) call() {
	if len(h.asked) == 0 {
		return
	}
	i := h.random.IntN(len(h.asked))
	c := h.asked[i]
	switch {
	case c.permits != nil && c.permits.Err() == nil:
		if h.calm || h.random.IntN(2) == 0 {
			h.watch(func() { h.asked = append(h.asked, h.release(c)) })
		}
	case c.settled == 0:
		if h.calm && c.waits() || h.random.IntN(4) == 0 {
			h.watch(func() { h.do(func(rd *Ready) { c.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) }) })
		}
	default:
		h.asked = append(h.asked[:i], h.asked[i+1:]...)
		switch {
		case c.Kind == CountDown && c.why == nil:
			h.known++
		case c.Kind == CountDown && errors.Is(c.why, lockerr.ErrOutcomeUnknown):
			h.maybe++
		}
	}
}

// runs has the history happen, and reports whether nothing was lost and nothing made, but for what
// callers were told that nobody knows.
func (h *history) runs() bool {
	for range 200 {
		h.step()
		if h.made() || h.sleeps() {
			return false
		}
	}
	h.calm, h.back = true, min(h.back, h.now)
	for n := 0; !h.atRest(); n++ {
		if h.step(); n == 20_000 || h.made() {
			h.t.Errorf("it does not come to rest: %+v, %d late, %d asked", h.counter.View(), len(h.late), len(h.asked))
			return false
		}
	}
	want := supply - h.downs
	for _, cmd := range h.unknown {
		want -= h.lost(cmd)
	}
	if h.server.value != want || h.server.repeated {
		h.t.Errorf("the server has %d and not %d; a command was executed twice: %v", h.server.value, want, h.server.repeated)
		return false
	}
	if downs := supply - h.server.value; h.counter.Kind == Latch && (downs < h.known || downs > h.known+h.maybe) {
		h.t.Errorf("counted down by %d; by what callers were told: %d, and perhaps %d", downs, h.known, h.maybe)
		return false
	}
	return true
}

// made reports whether there are more permits than there were.
func (h *history) made() bool {
	var held int64
	for p := range h.counter.held.All() {
		held += p.N
	}
	if h.counter.Kind == Semaphore && (h.server.value < 0 || h.server.value+held > supply) {
		h.t.Errorf("%d on the server, %d held", h.server.value, held)
		return true
	}
	return false
}

// sleeps reports whether somebody waits for something that will not happen.
func (h *history) sleeps() bool {
	v := h.counter.View()
	if v.Out || h.stalled || h.counter.pauseEnds != 0 {
		return false
	}
	switch {
	case v.Calls+v.Tries > 0 && (!v.Skips || h.counter.alarm == 0):
		h.t.Errorf("nothing is sent, and nothing will be: %+v", v)
	case v.Waiters > 0 && h.counter.alarm == 0:
		h.t.Errorf("a waiter sleeps for ever: %+v", v)
	default:
		return false
	}
	return true
}

func (h *history) atRest() bool {
	return h.counter.Out && len(h.asked) == 0 && len(h.late) == 0
}

// lost is what a command that was given up has taken, or has not given back.
func (h *history) lost(cmd copies) (n int64) {
	answers := h.server.answers[cmd.number]
	for i, what := range cmd.ops {
		switch executed := answers != nil; {
		case what == 'c' && executed:
			n++
		case (what == 'a' || what == 't') && executed && answers[i] == 1, what == 'r' && !executed:
			n += cmd.n[i]
		}
	}
	return n
}

// complete tells histories of each kind, and reports the longest doubt that an answer ended, and how many
// commands were given up.
func tell(t *testing.T, histories int, longest time.Duration) (doubt time.Duration, unknown uint64) {
	t.Helper()
	for kind := range Kind(Kinds) {
		for range histories {
			seed := rand.Uint64()
			h := newHistory(t, kind, seed, longest)
			if !h.runs() {
				t.Fatalf("seed %d of kind %d", seed, kind)
			}
			doubt, unknown = max(doubt, h.doubt), unknown+h.locks.Count.Unknown
		}
	}
	return doubt, unknown
}

// Whatever an outage of less than 50 s has lost or executed late: after it the permits are as many as
// before, each CountDown has counted once, and nobody is told that an outcome is unknown.
func outagesNeitherLoseNorMake(t *testing.T, histories int) {
	doubt, unknown := tell(t, histories, nearly)
	if unknown != 0 {
		t.Errorf("%d commands were given up", unknown)
	}
	if doubt < nearly*9/10 {
		t.Errorf("no command was in doubt for more than %v", doubt)
	}
}

func TestOutagesNeitherLoseNorMakePermits(t *testing.T) {
	t.Parallel()
	outagesNeitherLoseNorMake(t, 500)
}

// In a longer outage commands are given up. Each of them is executed once at most, and nothing but
// what they are about is lost.
func TestALongOutageLosesOnlyWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	if _, unknown := tell(t, 500, 200*time.Second); unknown == 0 {
		t.Error("no command was given up")
	}
}
