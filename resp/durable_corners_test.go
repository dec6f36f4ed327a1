package resp

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/sockettest"
)

// The connection dies after the first of a group was answered, and the next one is up
// before the rest is sent: a WAIT there would count replicas that have seen nothing.
func TestGroupKeepsTheConnectionThatItBeganWith(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := durableClient(t, n)
	opening := newDurableCall(0, 1)
	c.SubmitDurable(0, opening)
	n.WaitFor(1, waits)
	first, second := newDurableCall(1, 1), newDurableCall(2, 1)
	d := c.nodes()[0].durable[0]
	second.before = func() { // runs between the two
		sockettest.PollUntil(t, "the first is answered", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.mu.group.answered) == 1
		})
		n.ResetAll()
		old := d.mu.group.conn
		sockettest.PollUntil(t, "the next connection is up", func() bool { p := d.lane.Connection(); return p != nil && p != old })
	}
	// The loop must not be the one that sends the group: it has to read the answer.
	d.mu.Lock()
	d.mu.pumping = true
	d.mu.Unlock()
	c.SubmitDurable(0, first)
	c.SubmitDurable(0, second)
	gate.Open()
	opening.Await(t)
	d.mu.Lock()
	d.mu.pumping = false
	d.mu.Unlock()
	d.pump()
	if r := first.Await(t); r.Err != nil || ackOf(r).Err == nil {
		t.Errorf("answered on a connection that is gone: %+v", r)
	}
	if r := second.Await(t); !errors.Is(r.Err, ErrNotSent) {
		t.Errorf("the other: %+v", r)
	}
	eventually(t, "it works on the next connection", func() bool { return ackOf(acked(t, c, 1)).Acked == 1 })
}

func TestRequestThatNobodyWantsIsNotSent(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := durableClient(t, n)
	calls := []*durableCall{newDurableCall(0, 1), newDurableCall(1, 1), newDurableCall(2, 1)}
	for i, call := range calls {
		c.SubmitDurable(0, call)
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	calls[1].dropped.Store(true)
	gate.Open()
	if r := calls[1].Await(t); !errors.Is(r.Err, ErrUnwanted) || !errors.Is(r.Err, ErrNotSent) {
		t.Errorf("unwanted: %+v", r)
	}
	if r := calls[2].Await(t); r.Err != nil || ackOf(r).Acked != 1 {
		t.Errorf("behind it: %+v", r)
	}
	if n := n.Commands(fakenode.Is("ECHO", "1")); len(n) != 0 {
		t.Errorf("it was sent: %v", n)
	}
}

// Whatever a proxy answers to WAIT and ROLE, the next group goes out.
func TestRedirectedWaitIsAnErrorAndNoMore(t *testing.T) {
	t.Parallel()
	for _, question := range []fakenode.Match{waits, roles} {
		f := newFakeCluster(t, 2)
		for _, n := range f.nodes {
			n.On(roles, roleOfPrimary(1))
			n.On(waits, fakenode.Int(1))
			n.On(echoes, fakenode.Int(1))
		}
		f.nodes[0].OnNext(1, question, f.moved(7, 1))
		c := f.client(t, func(cfg *Config) { cfg.Durable = true })
		if r := acked(t, c, AllReplicas); r.Err != nil || ackOf(r).Err == nil {
			t.Errorf("%+v", r)
		}
		if r := acked(t, c, AllReplicas); r.Err != nil || ackOf(r).Err != nil || ackOf(r).Acked != 1 {
			t.Errorf("afterwards: %+v", r)
		}
	}
}

// The limit of commands in flight is that of the queue. What ends a group has room.
func TestSmallestLimitServesDurableRequests(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := ready(t, Config{Addr: n.Addr(), Durable: true, MaxInFlight: 1})
	for range 10 {
		if r := acked(t, c, AllReplicas); r.Err != nil || ackOf(r).Err != nil || ackOf(r).Acked != 1 {
			t.Fatalf("%+v", r)
		}
	}
}

// rankedCall is a durableCall that may wait for room.
type rankedCall struct {
	*durableCall
	rank Rank
}

func (c rankedCall) Rank() Rank { return c.rank }

// A full queue refuses only those that do not wait. The others are served in turn.
func TestWhatWaitsForADurableConnectionIsSentInOrderSoonerBeforeLater(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := ready(t, Config{Addr: n.Addr(), Durable: true, MaxInFlight: 1})
	calls := []rankedCall{
		{newDurableCall(0, 1), Later}, {newDurableCall(1, 1), Later}, {newDurableCall(2, 1), Later},
		{newDurableCall(3, 1), Refuse}, {newDurableCall(4, 1), Sooner}, {newDurableCall(5, 1), Later},
	}
	for i, call := range calls {
		c.SubmitDurable(0, call)
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	if r := calls[3].Await(t); !errors.Is(r.Err, ErrLaneFull) {
		t.Errorf("the one that does not wait: %+v", r)
	}
	gate.Open()
	for _, i := range []int{0, 1, 2, 4, 5} {
		if r := calls[i].Await(t); r.Err != nil || ackOf(r).Acked != 1 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	var order []string
	for _, cmd := range n.Commands(echoes) {
		order = append(order, cmd.Words[1])
	}
	if got := strings.Join(order, " "); got != "0 4 1 2 5" {
		t.Errorf("sent in the order %s", got)
	}
}

// A queue has no limit for those that wait, so it gives back what it has grown by.
func TestDurableQueueGivesItsMemoryBack(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := durableClient(t, n)
	var calls []rankedCall
	for i := range 3000 {
		calls = append(calls, rankedCall{newDurableCall(i, 1), Later + Rank(i%2)})
		c.SubmitDurable(0, calls[i])
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	gate.Open()
	for _, call := range calls {
		call.Await(t)
	}
	d := c.nodes()[0].durable[0]
	d.mu.Lock()
	defer d.mu.Unlock()
	if room := d.mu.queue.Room(); room > 0 {
		t.Errorf("there is room for %d still", room)
	}
}

// A node is in the routes before it is opened: using it then does not make its durable
// connection twice.
func TestDurableLinkOfANewNodeIsStartedOnce(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := ready(t, Config{Addr: n.Addr()})
	fresh := newNode(c, "tcp", n.Addr())
	t.Cleanup(func() { fresh.close(ErrClosed) })
	fresh.durable[0].link.wake()
	fresh.open()
	for _, l := range fresh.links[:len(fresh.links)-1] {
		eventually(t, "every link that was started is up", func() bool { up, _, _ := l.status(); return up })
	}
	if _, connects, _ := fresh.durable[0].link.status(); connects != 1 {
		t.Errorf("it connected %d times", connects)
	}
	conns := len(n.Conns())
	if want := 2*len(fresh.lanes) + 2*2 + 1; conns != want {
		t.Errorf("%d connections, want %d", conns, want)
	}
}
