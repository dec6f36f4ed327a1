package replication

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The connection dies after the first of a group was answered, and the next one is up
// before the rest is sent: a WAIT there would count replicas that have seen nothing.
func TestGroupKeepsTheConnectionThatItBeganWith(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLane(t, n)
	opening := requesttest.NewDurableCall(0, 1)
	l.Submit(opening)
	n.WaitFor(1, waits)
	first, second := requesttest.NewDurableCall(1, 1), requesttest.NewDurableCall(2, 1)
	second.Before = func() { // runs between the two
		sockettest.PollUntil(t, "the first is answered", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.mu.group.answered) == 1
		})
		n.ResetAll()
		old := l.mu.group.conn
		sockettest.PollUntil(t, "the next connection is up", func() bool { p := l.Plain().Connection(); return p != nil && p != old })
	}
	// The loop must not be the one that sends the group: it has to read the answer.
	l.mu.Lock()
	l.mu.pumping = true
	l.mu.Unlock()
	l.Submit(first)
	l.Submit(second)
	gate.Open()
	opening.Await(t)
	l.mu.Lock()
	l.mu.pumping = false
	l.mu.Unlock()
	l.pump()
	if r := first.Await(t); r.Err != nil || requesttest.AckOf(r).Err == nil {
		t.Errorf("answered on a connection that is gone: %+v", r)
	}
	if r := second.Await(t); !errors.Is(r.Err, request.ErrNotSent) {
		t.Errorf("the other: %+v", r)
	}
	sockettest.PollUntil(t, "it works on the next connection", func() bool { return requesttest.AckOf(acked(t, l, 1)).Acked == 1 })
}

func TestRequestThatNobodyWantsIsNotSent(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLane(t, n)
	calls := []*requesttest.DurableCall{requesttest.NewDurableCall(0, 1), requesttest.NewDurableCall(1, 1), requesttest.NewDurableCall(2, 1)}
	for i, call := range calls {
		l.Submit(call)
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	calls[1].Dropped.Store(true)
	gate.Open()
	if r := calls[1].Await(t); !errors.Is(r.Err, request.ErrUnwanted) || !errors.Is(r.Err, request.ErrNotSent) {
		t.Errorf("unwanted: %+v", r)
	}
	if r := calls[2].Await(t); r.Err != nil || requesttest.AckOf(r).Acked != 1 {
		t.Errorf("behind it: %+v", r)
	}
	if n := n.Commands(fakenode.Is("ECHO", "1")); len(n) != 0 {
		t.Errorf("it was sent: %v", n)
	}
}

// Nothing of a group is sent, so no answer will say that it is over.
func TestGroupThatNobodyWantsIsOverAtOnce(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	l := newLane(t, n)
	for range 3 {
		call := requesttest.NewDurableCall(1, 1)
		call.Dropped.Store(true)
		l.Submit(call)
		if r := call.Await(t); !errors.Is(r.Err, request.ErrUnwanted) {
			t.Errorf("%+v", r)
		}
	}
	if r := acked(t, l, 1); r.Err != nil || requesttest.AckOf(r).Acked != 1 {
		t.Errorf("the next: %+v", r)
	}
	if got := len(n.Commands(waits)); got != 1 {
		t.Errorf("%d WAITs for one command", got)
	}
}

// textCall is answered with a text.
type textCall struct{ *requesttest.DurableCall }

func (textCall) NeedsAck(wire.Value) bool { return true }

// The bytes of an answer are the connection's, which reads on before WAIT is answered.
func TestAnswerIsKeptUntilItsWaitIsAnswered(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.On(echoes, fakenode.Bulk("kept"))
	n.On(roles, fakenode.Hold(gate, roleOfPrimary(1)))
	l := newLane(t, n)
	call := textCall{requesttest.NewDurableCall(1, 1)}
	l.Submit(call)
	sockettest.PollUntil(t, "it is answered", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.mu.group.answered) == 1
	})
	gate.Open()
	if r := call.Await(t); string(r.Value.Bytes) != "kept" {
		t.Errorf("%+v", r)
	}
}

// The limit of commands in flight is that of the queue. What ends a group has room.
func TestSmallestLimitServesDurableRequests(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	l := newLaneOf(t, n, 1)
	for range 10 {
		if r := acked(t, l, request.AllReplicas); r.Err != nil || requesttest.AckOf(r).Err != nil || requesttest.AckOf(r).Acked != 1 {
			t.Fatalf("%+v", r)
		}
	}
}

// rankedCall is a durableCall that may wait for room.
type rankedCall struct {
	*requesttest.DurableCall
	rank request.Rank
}

func (c rankedCall) Rank() request.Rank { return c.rank }

// A full queue refuses only those that do not wait. The others are served in turn.
func TestWhatWaitsForADurableConnectionIsSentInOrderSoonerBeforeLater(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLaneOf(t, n, 1)
	calls := []rankedCall{
		{requesttest.NewDurableCall(0, 1), request.Later}, {requesttest.NewDurableCall(1, 1), request.Later}, {requesttest.NewDurableCall(2, 1), request.Later},
		{requesttest.NewDurableCall(3, 1), request.Refuse}, {requesttest.NewDurableCall(4, 1), request.Sooner}, {requesttest.NewDurableCall(5, 1), request.Later},
	}
	for i, call := range calls {
		l.Submit(call)
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	if r := calls[3].Await(t); !errors.Is(r.Err, request.ErrLaneFull) {
		t.Errorf("the one that does not wait: %+v", r)
	}
	gate.Open()
	for _, i := range []int{0, 1, 2, 4, 5} {
		if r := calls[i].Await(t); r.Err != nil || requesttest.AckOf(r).Acked != 1 {
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
	l := newLane(t, n)
	var calls []rankedCall
	for i := range 3000 {
		calls = append(calls, rankedCall{requesttest.NewDurableCall(i, 1), request.Later + request.Rank(i%2)})
		l.Submit(calls[i])
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	gate.Open()
	for _, call := range calls {
		call.Await(t)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := l.mu.queue.Room(); room > 0 {
		t.Errorf("there is room for %d still", room)
	}
}
