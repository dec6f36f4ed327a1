package tally

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// copies is a copy of a command that a server may execute.
type copies struct {
	number uint64
	ops    []byte // letters
	n      []int64
}

// count is the server: the count, and the mark of one engine.
type count struct {
	value    int64
	number   uint64
	said     []int64
	executed map[uint64]int
}

func (c *count) execute(cmd copies) (answers []int64, superseded bool) {
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
		case 'v':
			code = c.value
		}
		answers = append(answers, code)
	}
	if cmd.number != 0 {
		c.number, c.said = cmd.number, answers
		c.executed[cmd.number]++
	}
	return answers, false
}

// Whatever is lost, executed late or given up: as long as no doubt lasts too long, the permits
// of the server and those that are held are as many as there were.
func TestPermitsAreConserved(t *testing.T) {
	t.Parallel()
	for range 3000 {
		seed := rand.Uint64()
		if !conserves(t, seed) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func conserves(t *testing.T, seed uint64) bool {
	random := rand.New(rand.NewPCG(seed, 3))
	l := newLab(t, Semaphore)
	const permits = 5
	server := &count{value: permits, executed: make(map[uint64]int)}
	var late []copies // that are in a buffer
	var asked []*caller
	written := func() copies {
		c := &l.tally.Cmd
		cmd := copies{number: c.Number}
		for _, op := range c.Ops {
			cmd.ops, cmd.n = append(cmd.ops, op.Letter()), append(cmd.n, op.N)
		}
		return cmd
	}
	reply := func(calm bool) {
		cmd := written()
		switch random.IntN(6) {
		case 0:
			if !calm {
				l.fail(machine.NotSent)
				return
			}
		case 1:
			if !calm { // never executed
				l.fail(machine.Unknown)
				return
			}
		case 2:
			if !calm { // executed later
				late = append(late, cmd)
				l.fail(machine.Unknown)
				return
			}
		case 3:
			if !calm { // executed, and the answer is lost
				server.execute(cmd)
				l.fail(machine.Unknown)
				return
			}
		case 4:
			if !calm {
				l.fail(machine.Busy)
				return
			}
		}
		answers, superseded := server.execute(cmd)
		l.reply(Outcome{Answers: answers, Superseded: superseded})
	}
	held := func() (n int64) {
		for p := range l.tally.held.All() {
			n += p.N
		}
		return n
	}
	step := func(calm bool) bool {
		l.now = l.now.Add(time.Duration(random.IntN(5)) * time.Millisecond)
		switch what := random.IntN(10); {
		case what < 3 && l.tally.Cmd.out:
			reply(calm)
		case what == 3 && l.stalled:
			l.resume()
		case what == 4 && l.pauses != 0:
			l.pauses = 0
			l.do(l.tally.PauseOver)
		case what == 5 && l.rings != 0:
			l.ring()
		case what == 6 && l.listens:
			events := []func(){l.subscribed, l.announce, func() { l.do(l.tally.Cut) }, func() { l.do(func(fx *Effects) { l.tally.Forbidden(errLab, fx) }) }}
			events[random.IntN(len(events))]()
		case what == 7 && len(late) > 0:
			server.execute(late[0])
			late = late[1:]
		case what == 8 && len(asked) > 0:
			i := random.IntN(len(asked))
			c := asked[i]
			switch {
			case c.permits != nil && c.permits.Err() == nil && (calm || random.IntN(2) == 0):
				asked = append(asked, l.release(c))
			case c.settled == 0 && (calm && c.waits() || random.IntN(4) == 0):
				l.do(func(fx *Effects) { c.Cancel(reason.Stop{Cause: reason.ErrAbandoned}, fx) })
			case c.settled > 0 && (c.permits == nil || c.permits.Err() != nil):
				asked = append(asked[:i], asked[i+1:]...)
			}
		case what == 9 && !calm:
			if l.tally.Out {
				fresh := &Tally{Port: l, Name: "n"}
				l.tally, l.idle = fresh, 0
			}
			asked = append(asked, l.ask("x", []string{"a1", "a2", "a5", "t1", "t3", "v"}[random.IntN(6)]))
		}
		return !l.tally.Cmd.out && l.tally.held.Len() == 0 && len(asked) == 0 && len(late) == 0
	}
	for range 200 {
		step(false)
		if server.value < 0 || server.value+held() > permits {
			t.Errorf("%d on the server, %d held", server.value, held())
			return false
		}
		if v := l.tally.View(); !v.Out && !l.stalled && l.pauses == 0 && v.Calls+v.Tries > 0 && (!v.Skips || l.rings == 0) {
			t.Errorf("nothing is sent, and nothing will be: %+v", v)
			return false
		}
		if v := l.tally.View(); v.Waiters > 0 && !v.Out && !l.stalled && l.pauses == 0 && l.rings == 0 {
			t.Errorf("a waiter sleeps for ever: %+v", v)
			return false
		}
	}
	for range 20_000 {
		if step(true) && l.tally.Out {
			break
		}
	}
	if !l.tally.Out && l.sent != nil || server.value != permits {
		t.Errorf("at rest the server has %d, %d are held, %+v, %d late, %d asked", server.value, held(), l.tally.View(), len(late), len(asked))
		return false
	}
	for number, n := range server.executed {
		if n != 1 {
			t.Errorf("command %d was executed %d times", number, n)
			return false
		}
	}
	return true
}
