package resp

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/exchangetest"
)

var (
	waits = fakenode.Is("WAIT")
	roles = fakenode.Is("ROLE")
)

// roleOfPrimary is the answer to ROLE of a primary with n replicas.
func roleOfPrimary(n int) fakenode.Action {
	var replicas []string
	for i := range n {
		replicas = append(replicas, fmt.Sprint("10.0.0.2:", 7001+i))
	}
	return roleOfPrimaryOf(replicas...)
}

// durableCall is a call that replicas are to acknowledge if its answer is not 0.
type durableCall struct {
	*exchangetest.Call
	want    Acks
	dropped atomic.Bool
	before  func() // called when it is about to be sent
}

func (c *durableCall) Wants() Acks           { return c.want }
func (c *durableCall) NeedsAck(v Value) bool { return v.Int != 0 }

func (c *durableCall) Wanted() bool {
	if c.before != nil {
		c.before()
	}
	return !c.dropped.Load()
}

func newDurableCall(n int, want Acks) *durableCall {
	return &durableCall{Call: exchangetest.NewCall(n), want: want}
}

func ackOf(r Reply) Ack {
	if r.Ack == nil {
		return Ack{}
	}
	return *r.Ack
}

// primary is a fake node with so many replicas, all of which acknowledge, that
// answers commands with 1.
func primary(t *testing.T, replicas int) *fakenode.Node {
	n := fakenode.New(t)
	n.On(echoes, fakenode.Int(1))
	n.On(roles, roleOfPrimary(replicas))
	n.On(waits, fakenode.Int(int64(replicas)))
	return n
}

func durableClient(t *testing.T, n *fakenode.Node) *Client {
	return ready(t, Config{Addr: n.Addr(), Durable: true})
}

// acked sends one call and returns its outcome.
func acked(t *testing.T, c *Client, want Acks) Reply {
	t.Helper()
	call := newDurableCall(1, want)
	c.SubmitDurable(0, call)
	return call.Await(t)
}

func TestReplicasAreCountedAndAskedFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want                  Acks
		attached, acknowledge int
		wanted, asked         int
	}{
		{want: 2, attached: 2, acknowledge: 2, wanted: 2, asked: 2},
		{want: 2, attached: 3, acknowledge: 3, wanted: 2, asked: 2},
		{want: 2, attached: 1, acknowledge: 1, wanted: 2, asked: 1}, // no use in waiting for two
		{want: AllReplicas, attached: 3, acknowledge: 2, wanted: 3, asked: 3},
		{want: AllReplicas, attached: 0, acknowledge: 0, wanted: 1, asked: 0},
		{want: MajorityOfReplicas, attached: 1, acknowledge: 1, wanted: 1, asked: 1},
		{want: MajorityOfReplicas, attached: 2, acknowledge: 1, wanted: 2, asked: 2},
		{want: MajorityOfReplicas, attached: 5, acknowledge: 4, wanted: 3, asked: 3},
		{want: MajorityOfReplicas, attached: 0, acknowledge: 0, wanted: 1, asked: 0},
	} {
		t.Run(fmt.Sprintf("%d of %d", test.want, test.attached), func(t *testing.T) {
			t.Parallel()
			n := primary(t, test.attached)
			n.On(waits, fakenode.Int(int64(test.acknowledge)))
			c := durableClient(t, n)
			acked(t, c, test.want) // the client learns how many there are
			r := acked(t, c, test.want)
			if r.Err != nil || ackOf(r).Err != nil || r.Value.Int != 1 || ackOf(r).Acked != test.acknowledge || ackOf(r).Wanted != test.wanted {
				t.Errorf("%+v", r)
			}
			all := n.Commands(waits)
			last := all[len(all)-1].Words
			if got := last[1] + " " + last[2]; got != fmt.Sprint(test.asked, " 1000") {
				t.Errorf("WAIT %s, want %d replicas", got, test.asked)
			}
		})
	}
}

// While a group is out the next one gathers; it takes one WAIT, however many it has.
func TestGroupsShareAWait(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := durableClient(t, n)
	first := newDurableCall(0, 1)
	c.SubmitDurable(0, first)
	n.WaitFor(1, waits)
	const many = 100
	var calls []*durableCall
	for i := range many {
		calls = append(calls, newDurableCall(i+1, AllReplicas))
		c.SubmitDurable(0, calls[i])
	}
	// An ordinary command passes by, and nothing was sent behind the WAIT.
	plain := exchangetest.NewCall(1000)
	c.Submit(0, plain)
	plain.Await(t)
	if got := len(n.Commands(echoes)); got != 2 {
		t.Fatalf("%d commands have been sent, want the first and the ordinary one", got)
	}
	gate.Open()
	for _, call := range append(calls, first) {
		if r := call.Await(t); r.Err != nil || ackOf(r).Err != nil || ackOf(r).Acked != 1 || ackOf(r).Wanted != 1 {
			t.Fatalf("call %d: %+v", call.N, r)
		}
	}
	if got := len(n.Commands(waits)); got != 2 {
		t.Errorf("%d WAITs for two groups", got)
	}
	for _, cmd := range n.Commands(waits) {
		if cmd.Conn == n.Commands(fakenode.Is("ECHO", "1000"))[0].Conn {
			t.Error("a WAIT was sent on the ordinary lane")
		}
	}
}

func TestGroupIsBounded(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := durableClient(t, n)
	var calls []*durableCall
	for i := range 1 + 2*maxGroup + 1 {
		calls = append(calls, newDurableCall(i, 1))
		c.SubmitDurable(0, calls[i])
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	gate.Open()
	for i, call := range calls {
		if r := call.Await(t); r.Err != nil || ackOf(r).Acked != 1 {
			t.Fatalf("call %d: %+v", i, r)
		}
	}
	if got := len(n.Commands(waits)); got != 4 {
		t.Errorf("%d WAITs, want 4", got)
	}
}

// A request that was refused has nothing to wait for.
func TestAnswerThatNeedsNoAcknowledgementComesAtOnce(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.On(waits, fakenode.Hold(gate, fakenode.Int(1)))
	n.On(fakenode.Is("ECHO", "1"), fakenode.Int(0))
	n.On(fakenode.Is("ECHO", "2"), fakenode.Error("READONLY no"))
	c := durableClient(t, n)
	for i := range 3 {
		call := newDurableCall(i, 1)
		c.SubmitDurable(0, call)
		if i == 0 {
			n.WaitFor(1, waits)
			defer call.Await(t)
			gate.Step() // the second group
			continue
		}
		r := call.Await(t)
		if i == 1 && (r.Err != nil || ackOf(r).Wanted != 0) || i == 2 && r.Err == nil {
			t.Errorf("call %d: %+v", i, r)
		}
		gate.Step()
	}
	gate.Open()
}

// A script that the server had forgotten is executed behind the WAIT of its group,
// which says nothing of it.
func TestWhatWasSentAgainHasAWaitOfItsOwn(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	n.OnNext(1, fakenode.Is("ECHO", "1"), fakenode.Error(fakenode.NoScript))
	n.On(fakenode.Is("WHOLE"), fakenode.Int(1))
	n.OnNext(1, waits, fakenode.Int(1))
	second := n.OnNext(1, waits, fakenode.Int(0))
	second.Remove()
	c := durableClient(t, n)
	r := acked(t, c, 1)
	if r.Err != nil || ackOf(r).Acked != 1 {
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
func TestReplicaThatCameIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := durableClient(t, n)
	if r := acked(t, c, AllReplicas); ackOf(r).Acked != 1 || ackOf(r).Wanted != 1 {
		t.Fatalf("%+v", r)
	}
	n.On(roles, roleOfPrimary(2))
	n.OnNext(1, waits, fakenode.Int(1)) // the old one was quick
	n.On(fakenode.Is("WAIT", "2"), fakenode.Int(2))
	if r := acked(t, c, AllReplicas); ackOf(r).Acked != 2 || ackOf(r).Wanted != 2 {
		t.Fatalf("%+v", r)
	}
}

func TestAcknowledgementsThatCannotBeCountedAreAnError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(n *fakenode.Node)
		want  Acks
		text  string
	}{
		"WAIT refused":      {func(n *fakenode.Node) { n.On(waits, fakenode.Error("NOPERM no WAIT")) }, 1, "NOPERM"},
		"WAIT no number":    {func(n *fakenode.Node) { n.On(waits, fakenode.Bulk("1")) }, 1, "protocol"},
		"ROLE refused":      {func(n *fakenode.Node) { n.On(roles, fakenode.Error("NOPERM no ROLE")) }, AllReplicas, "NOPERM"},
		"ROLE of a replica": {func(n *fakenode.Node) { n.On(roles, fakenode.Raw("*1\r\n$5\r\nslave\r\n")) }, AllReplicas, "slave"},
		"connection lost":   {func(n *fakenode.Node) { n.On(waits, fakenode.Reset()) }, 1, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := primary(t, 1)
			test.spoil(n)
			c := durableClient(t, n)
			r := acked(t, c, test.want)
			if r.Err != nil || r.Value.Int != 1 {
				t.Fatalf("the answer itself: %+v", r)
			}
			if ackOf(r).Err == nil || !strings.Contains(ackOf(r).Err.Error(), test.text) {
				t.Errorf("AckErr %v", ackOf(r).Err)
			}
		})
	}
	t.Run("ROLE refused, a number asked for", func(t *testing.T) {
		t.Parallel()
		n := primary(t, 1)
		n.On(roles, fakenode.Error("NOPERM no ROLE"))
		if r := acked(t, durableClient(t, n), 1); ackOf(r).Err != nil || ackOf(r).Acked != 1 || ackOf(r).Wanted != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// The connection dies with a group out and others behind it: each gets the outcome
// that it has.
func TestEveryMemberHearsOfALostConnection(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	n.OnNext(1, waits, fakenode.Int(1))
	n.On(fakenode.Is("ECHO", "3"), fakenode.Hold(fakenode.NewGate(), fakenode.Int(1)))
	c := durableClient(t, n)
	acked(t, c, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	var group []*durableCall
	first := newDurableCall(1, 1)
	c.SubmitDurable(0, first)
	n.WaitFor(2, waits)
	for i := range 3 {
		group = append(group, newDurableCall(i+2, 1))
		c.SubmitDurable(0, group[i])
	}
	gate.Open()
	first.Await(t)
	n.WaitFor(3, waits)
	late := newDurableCall(5, 1)
	c.SubmitDurable(0, late)
	sockettest.PollUntil(t, "the first of the group is answered", func() bool {
		d := c.nodes()[0].durable[0]
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.mu.group.answered) == 1
	})
	n.ResetAll()
	if r := group[0].Await(t); r.Err != nil || !errors.Is(ackOf(r).Err, ErrOutcomeUnknown) {
		t.Errorf("answered, not acknowledged: %+v", r)
	}
	for _, call := range group[1:] {
		if r := call.Await(t); !errors.Is(r.Err, ErrOutcomeUnknown) {
			t.Errorf("sent, not answered: %+v", r)
		}
	}
	if r := late.Await(t); !errors.Is(r.Err, ErrNotSent) {
		t.Errorf("not sent: %+v", r)
	}
	eventually(t, "it works on the next connection", func() bool { return ackOf(acked(t, c, 1)).Acked == 1 })
}

// A deployment that is asked for nothing durable has no connection for it.
func TestDurableConnectionsAreMadeWhenTheyAreUsed(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := ready(t, Config{Addr: n.Addr(), Lanes: 1})
	if got := c.Stats().Connections; got != 3 {
		t.Fatalf("%d connections", got)
	}
	first := newDurableCall(0, 1)
	c.SubmitDurable(0, first)
	if r := first.Await(t); r.Err != nil && !errors.Is(r.Err, ErrNotSent) {
		t.Errorf("the first, most likely before there is a connection: %+v", r)
	}
	eventually(t, "the connection is up", func() bool { return c.Up(RoleDurable, 0) })
	if r := acked(t, c, 1); r.Err != nil || ackOf(r).Acked != 1 {
		t.Errorf("%+v", r)
	}
	if c.Up(RoleDurableRenewal, 0) || c.Stats().Connections != 4 {
		t.Error("the other durable connection was made, too")
	}
	renewal := newDurableCall(1, 1)
	c.SubmitDurableRenewal(0, renewal)
	renewal.Await(t)
	eventually(t, "both are up", func() bool { return c.Up(RoleDurableRenewal, 0) && c.Stats().Connections == 5 })
}

// MOVED leads to the durable connection of the other node, and its replicas.
func TestDurableCommandIsSentOnIntoAGroupOfTheOtherNode(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	for i, n := range f.nodes {
		n.On(roles, roleOfPrimary(i))
		n.On(waits, fakenode.Int(int64(i)))
	}
	c := f.client(t, func(cfg *Config) { cfg.Durable = true })
	f.serve(1, 0) // the look that MOVED causes must not lead back
	f.nodes[0].On(echoes, f.moved(7, 1))
	f.nodes[1].On(echoes, fakenode.Int(5))
	call := newDurableCall(1, AllReplicas)
	c.SubmitDurable(7, call)
	if r := call.Await(t); r.Err != nil || r.Value.Int != 5 || ackOf(r).Acked != 1 || ackOf(r).Wanted != 1 {
		t.Fatalf("%+v", r)
	}
	// ASK: announced, and acknowledged over there.
	f.nodes[1].On(echoes, fakenode.Error("ASK 7 "+f.nodes[0].Addr()))
	f.nodes[0].On(echoes, fakenode.Int(6))
	f.nodes[0].On(roles, roleOfPrimary(2))
	f.nodes[0].On(waits, fakenode.Int(2))
	call = newDurableCall(2, AllReplicas)
	c.SubmitDurable(7, call)
	if r := call.Await(t); r.Err != nil || r.Value.Int != 6 || ackOf(r).Acked != 2 || !r.Moving {
		t.Fatalf("%+v", r)
	}
	all := f.nodes[0].Commands(fakenode.Any)
	for i, cmd := range all {
		if cmd.Name() == "ECHO" && cmd.Words[1] == "2" && all[i-1].Name() != "ASKING" {
			t.Errorf("before it went %v", all[i-1].Words)
		}
	}
	// Nodes that send each other everything do so in vain.
	f.nodes[0].On(echoes, f.moved(9, 1))
	f.nodes[1].On(echoes, f.moved(9, 0))
	call = newDurableCall(3, 1)
	c.SubmitDurable(9, call)
	var refused *ServerError
	if r := call.Await(t); !errors.As(r.Err, &refused) || refused.Code != "MOVED" {
		t.Fatalf("%+v", r)
	}
}

// Requests that submit others from Complete, many at once, on a connection that is
// cut now and then: each is completed once, and the last one, too.
func TestEveryDurableRequestIsCompletedOnce(t *testing.T) {
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
	c := durableClient(t, n)
	const chains, length = 50, 40
	var left atomic.Int64
	left.Store(chains * length)
	over := make(chan struct{})
	var submit func(i int)
	submit = func(i int) {
		call := newDurableCall(i, Acks(i%3)-1)
		if call.want == 0 {
			call.want = MajorityOfReplicas
		}
		call.Then = func(r Reply) {
			switch {
			case i%length+1 == length:
			case errors.Is(r.Err, ErrNotSent):
				go func() {
					eventually(t, "it is up again", func() bool { return c.Up(RoleDurable, 0) })
					submit(i + 1)
				}()
			default:
				submit(i + 1)
			}
			if left.Add(-1) == 0 {
				close(over)
			}
		}
		c.SubmitDurable(0, call)
	}
	for i := range chains {
		go submit(i * length)
	}
	sockettest.Receive(t, over, "all requests")
	if groups.Load() < 14 {
		t.Errorf("%d groups: the connection was not lost often enough", groups.Load())
	}
	d := c.nodes()[0].durable[0]
	eventually(t, "nothing is left inside", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.mu.group == nil && d.mu.queue.Len() == 0
	})
}

func TestFullDurableQueueRefuses(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := ready(t, Config{Addr: n.Addr(), Durable: true, MaxInFlight: 10})
	calls := []*durableCall{newDurableCall(0, 1)}
	c.SubmitDurable(0, calls[0])
	n.WaitFor(1, waits)
	for i := range 11 {
		calls = append(calls, newDurableCall(i+1, 1))
		c.SubmitDurable(0, calls[i+1])
	}
	if r := calls[11].Await(t); !errors.Is(r.Err, ErrLaneFull) || !errors.Is(r.Err, ErrNotSent) {
		t.Errorf("%+v", r)
	}
	gate.Open()
	for i, call := range calls[:11] {
		if r := call.Await(t); r.Err != nil {
			t.Errorf("call %d: %+v", i, r)
		}
	}
}

func TestClosedClientRefusesDurableRequests(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	n.On(waits, fakenode.Drop())
	c := durableClient(t, n)
	out := newDurableCall(0, 1)
	c.SubmitDurable(0, out)
	n.WaitFor(1, waits)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if r := out.Await(t); !errors.Is(cmp.Or(r.Err, ackOf(r).Err), ErrClosed) { // its answer had come, or not
		t.Errorf("out: %+v", r)
	}
	if r := acked(t, c, 1); !errors.Is(r.Err, ErrClosed) {
		t.Errorf("later: %+v", r)
	}
}

func TestPanicOfOneDurableRequestSparesTheOthers(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := durableClient(t, n)
	var calls []*durableCall
	for i := range 4 {
		calls = append(calls, newDurableCall(i, 1))
		if i == 2 {
			calls[i].Then = func(Reply) { close(calls[i].Done); panic("on purpose") }
		}
		c.SubmitDurable(0, calls[i])
		if i == 0 {
			n.WaitFor(1, waits)
		}
	}
	gate.Open()
	for i, call := range calls {
		if r := call.Await(t); r.Err != nil || ackOf(r).Acked != 1 {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	eventually(t, "the connection is a new one", func() bool { return c.Stats().Reconnects > 0 })
	eventually(t, "it works afterwards", func() bool { return ackOf(acked(t, c, 1)).Acked == 1 })
}
