package replication

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestLane_ManyRequests_GroupIsBounded(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLane(t, n)
	var calls []*requesttest.DurableCall
	for i := range 1 + 2*MaxGroup + 1 {
		calls = append(calls, requesttest.NewDurableCall(i, 1))
		l.Submit(calls[i])
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	gate.Open()
	for i, call := range calls {
		if r := call.Await(t); r.Err != nil || requesttest.AckOf(r).Acked != 1 {
			t.Fatalf("call %d: %+v", i, r)
		}
	}
	if got := len(n.Commands(waits)); got != 4 {
		t.Errorf("%d WAITs, want 4", got)
	}
}

// A request that was refused has nothing to wait for.
func TestLane_AnswerNeedsNoAck_ComesAtOnce(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.On(waits, fakenode.Hold(gate, fakenode.Int(1)))
	n.On(fakenode.Is("ECHO", "1"), fakenode.Int(0))
	n.On(fakenode.Is("ECHO", "2"), fakenode.Error("READONLY no"))
	l := newLane(t, n)
	for i := range 3 {
		call := requesttest.NewDurableCall(i, 1)
		l.Submit(call)
		if i == 0 {
			n.WaitFor(1, waits)
			defer call.Await(t)
			gate.Step() // the second group
			continue
		}
		r := call.Await(t)
		if i == 1 && (r.Err != nil || requesttest.AckOf(r).Wanted != 0) || i == 2 && r.Err == nil {
			t.Errorf("call %d: %+v", i, r)
		}
		gate.Step()
	}
	gate.Open()
}

// A script that the server had forgotten is executed behind the WAIT of its group,
// which says nothing of it.
func TestLane_RequestSentAgain_HasAWaitOfItsOwn(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	n.OnNext(1, fakenode.Is("ECHO", "1"), fakenode.Error(fakenode.NoScript))
	n.On(fakenode.Is("WHOLE"), fakenode.Int(1))
	n.OnNext(1, waits, fakenode.Int(1))
	second := n.OnNext(1, waits, fakenode.Int(0))
	second.Remove()
	l := newLane(t, n)
	r := acked(t, l, 1)
	if r.Err != nil || requesttest.AckOf(r).Acked != 1 {
		t.Fatalf("%+v", r)
	}
	var order []string
	for _, cmd := range n.Commands(fakenode.Any) {
		if name := cmd.Name(); name == "ECHO" || name == "WHOLE" || name == "WAIT" {
			order = append(order, name)
		}
	}
	// The first WAIT is missing if the refusal came before the group was closed.
	if got := strings.Join(order, " "); got != "ECHO WAIT WHOLE WAIT" && got != "ECHO WHOLE WAIT" {
		t.Errorf("sent: %s", got)
	}
}

// A replica has been attached since the client looked: "all" means that one, too.
func TestLane_ReplicaAttaches_IsWaitedFor(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	l := newLane(t, n)
	if r := acked(t, l, request.AllReplicas); requesttest.AckOf(r).Acked != 1 || requesttest.AckOf(r).Wanted != 1 {
		t.Fatalf("%+v", r)
	}
	n.On(roles, roleOfPrimary(2))
	n.OnNext(1, waits, fakenode.Int(1)) // the old one was quick
	n.On(fakenode.Is("WAIT", "2"), fakenode.Int(2))
	if r := acked(t, l, request.AllReplicas); requesttest.AckOf(r).Acked != 2 || requesttest.AckOf(r).Wanted != 2 {
		t.Fatalf("%+v", r)
	}
}

// It is not known yet who is there, and a number is worth a try.
func TestLane_FirstWait_AsksForTheWantedNumber(t *testing.T) {
	t.Parallel()
	n := primary(t, 3)
	if r := acked(t, newLane(t, n), 2); r.Err != nil || requesttest.AckOf(r).Acked != 3 {
		t.Errorf("%+v", r)
	}
	if all := n.Commands(waits); len(all) != 1 || all[0].Words[1] != "2" {
		t.Errorf("sent: %v", all)
	}
}

func TestLane_AcksUncountable_Fails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(n *fakenode.Node)
		want  request.Acks
		text  string
	}{
		"WAIT refused":      {func(n *fakenode.Node) { n.On(waits, fakenode.Error("NOPERM no WAIT")) }, 1, "NOPERM"},
		"WAIT no number":    {func(n *fakenode.Node) { n.On(waits, fakenode.Bulk("1")) }, 1, "protocol"},
		"ROLE refused":      {func(n *fakenode.Node) { n.On(roles, fakenode.Error("NOPERM no ROLE")) }, request.AllReplicas, "NOPERM"},
		"ROLE of a replica": {func(n *fakenode.Node) { n.On(roles, fakenode.Raw("*1\r\n$5\r\nslave\r\n")) }, request.AllReplicas, "slave"},
		"connection lost":   {func(n *fakenode.Node) { n.On(waits, fakenode.Reset()) }, 1, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := primary(t, 1)
			test.spoil(n)
			l := newLane(t, n)
			r := acked(t, l, test.want)
			if r.Err != nil || r.Value.Int != 1 {
				t.Fatalf("the answer itself: %+v", r)
			}
			if requesttest.AckOf(r).Err == nil || !strings.Contains(requesttest.AckOf(r).Err.Error(), test.text) {
				t.Errorf("AckErr %v", requesttest.AckOf(r).Err)
			}
		})
	}
	t.Run("ROLE refused, a number asked for", func(t *testing.T) {
		t.Parallel()
		n := primary(t, 1)
		n.On(roles, fakenode.Error("NOPERM no ROLE"))
		if r := acked(t, newLane(t, n), 1); requesttest.AckOf(r).Err != nil || requesttest.AckOf(r).Acked != 1 || requesttest.AckOf(r).Wanted != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// The connection dies with a group out and others behind it: each gets the outcome
// that it has.
func TestLane_ConnectionLost_CompletesEveryMember(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	n.OnNext(1, waits, fakenode.Int(1))
	n.On(fakenode.Is("ECHO", "3"), fakenode.Hold(fakenode.NewGate(), fakenode.Int(1)))
	l := newLane(t, n)
	acked(t, l, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	var group []*requesttest.DurableCall
	first := requesttest.NewDurableCall(1, 1)
	l.Submit(first)
	n.WaitFor(2, waits)
	for i := range 3 {
		group = append(group, requesttest.NewDurableCall(i+2, 1))
		l.Submit(group[i])
	}
	gate.Open()
	first.Await(t)
	n.WaitFor(3, waits)
	late := requesttest.NewDurableCall(5, 1)
	l.Submit(late)
	sockettest.PollUntil(t, "the first of the group is answered", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.mu.group.answered) == 1
	})
	n.ResetAll()
	if r := group[0].Await(t); r.Err != nil || !errors.Is(requesttest.AckOf(r).Err, request.ErrOutcomeUnknown) {
		t.Errorf("answered, not acknowledged: %+v", r)
	}
	for _, call := range group[1:] {
		if r := call.Await(t); !errors.Is(r.Err, request.ErrOutcomeUnknown) {
			t.Errorf("sent, not answered: %+v", r)
		}
	}
	if r := late.Await(t); !errors.Is(r.Err, request.ErrNotSent) {
		t.Errorf("not sent: %+v", r)
	}
	sockettest.PollUntil(t, "it works on the next connection", func() bool { return requesttest.AckOf(acked(t, l, 1)).Acked == 1 })
}

// Requests that submit others from Complete, many at once, on a connection that is
// cut now and then: each is completed once, and the last one, too.
func TestLane_Requests_AreCompletedOnce(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	var groups atomic.Int64
	n.On(waits, fakenode.Func(func(conn *fakenode.Conn, _ fakenode.Command) {
		if groups.Add(1)%7 == 0 {
			conn.Reset()
			return
		}
		conn.Write([]byte(":1\r\n"))
	}))
	l := newLane(t, n)
	const chains, length = 50, 40
	var left atomic.Int64
	left.Store(chains * length)
	over := make(chan struct{})
	var submit func(i int)
	submit = func(i int) {
		call := requesttest.NewDurableCall(i, request.Acks(i%3)-1)
		if call.Want == 0 {
			call.Want = request.MajorityOfReplicas
		}
		call.Then = func(r request.Reply) {
			switch {
			case i%length+1 == length:
			case errors.Is(r.Err, request.ErrNotSent):
				go func() {
					sockettest.PollUntil(t, "it is up again", func() bool { return l.Plain().Err() == nil })
					submit(i + 1)
				}()
			default:
				submit(i + 1)
			}
			if left.Add(-1) == 0 {
				close(over)
			}
		}
		l.Submit(call)
	}
	for i := range chains {
		go submit(i * length)
	}
	sockettest.Receive(t, over, "all requests")
	if groups.Load() < 14 {
		t.Errorf("%d groups: the connection was not lost often enough", groups.Load())
	}
	sockettest.PollUntil(t, "nothing is left inside", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.mu.group == nil && l.mu.queue.Len() == 0
	})
}

func TestLane_QueueFull_Refuses(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLaneOf(t, n, 10)
	calls := []*requesttest.DurableCall{requesttest.NewDurableCall(0, 1)}
	l.Submit(calls[0])
	n.WaitFor(1, waits)
	for i := range 11 {
		calls = append(calls, requesttest.NewDurableCall(i+1, 1))
		l.Submit(calls[i+1])
	}
	if r := calls[11].Await(t); !errors.Is(r.Err, request.ErrLaneFull) || !errors.Is(r.Err, request.ErrNotSent) {
		t.Errorf("%+v", r)
	}
	gate.Open()
	for i, call := range calls[:11] {
		if r := call.Await(t); r.Err != nil {
			t.Errorf("call %d: %+v", i, r)
		}
	}
}

func TestLane_OneRequestPanics_OthersComplete(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLane(t, n)
	before := l.Plain().Connection()
	var calls []*requesttest.DurableCall
	for i := range 4 {
		calls = append(calls, requesttest.NewDurableCall(i, 1))
		if i == 2 {
			calls[i].Then = func(request.Reply) { close(calls[i].Done); panic("on purpose") }
		}
		l.Submit(calls[i])
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	gate.Open()
	for i, call := range calls {
		if r := call.Await(t); r.Err != nil || requesttest.AckOf(r).Acked != 1 {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	sockettest.PollUntil(t, "the connection is a new one", func() bool { p := l.Plain().Connection(); return p != nil && p != before })
	sockettest.PollUntil(t, "it works afterwards", func() bool { return requesttest.AckOf(acked(t, l, 1)).Acked == 1 })
}

// The connection dies after the first of a group was answered, and the next one is up
// before the rest is sent: a WAIT there would count replicas that have seen nothing.
func TestLane_Group_KeepsItsConnection(t *testing.T) {
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

func TestLane_UnwantedRequest_IsNotSent(t *testing.T) {
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
func TestLane_UnwantedGroup_EndsAtOnce(t *testing.T) {
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
func TestLane_Answer_IsKeptUntilItsWait(t *testing.T) {
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
func TestLane_SmallestLimit_Serves(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	l := newLaneOf(t, n, 1)
	for range 10 {
		if r := acked(t, l, request.AllReplicas); r.Err != nil || requesttest.AckOf(r).Err != nil || requesttest.AckOf(r).Acked != 1 {
			t.Fatalf("%+v", r)
		}
	}
}

// prioritizedCall is a durableCall that may wait for room.
type prioritizedCall struct {
	*requesttest.DurableCall
	priority request.Priority
}

func (c prioritizedCall) Priority() request.Priority { return c.priority }

// A full queue refuses only those that do not wait. The others are served in turn.
func TestLane_Queue_KeepsPriorityAndOrder(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLaneOf(t, n, 1)
	calls := []prioritizedCall{
		{requesttest.NewDurableCall(0, 1), request.PriorityNormal}, {requesttest.NewDurableCall(1, 1), request.PriorityNormal}, {requesttest.NewDurableCall(2, 1), request.PriorityNormal},
		{requesttest.NewDurableCall(3, 1), request.PriorityNoWait}, {requesttest.NewDurableCall(4, 1), request.PriorityHigh}, {requesttest.NewDurableCall(5, 1), request.PriorityNormal},
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
func TestLane_QueueEmptied_GivesItsMemoryBack(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	l := newLane(t, n)
	var calls []prioritizedCall
	for i := range 3000 {
		calls = append(calls, prioritizedCall{requesttest.NewDurableCall(i, 1), request.PriorityNormal + request.Priority(i%2)})
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
