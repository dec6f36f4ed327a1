package resp

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// replacement is the end of the connections that a node has: from then on they lead to a
// machine that was replaced.
type replacement struct{ last atomic.Int64 }

// now begins it.
func (r *replacement) now(n *fakenode.Node) {
	last := 0
	for _, c := range n.Conns() {
		last = max(last, c.ID)
	}
	r.last.Store(int64(last))
}

// old matches what comes on the connections from before.
func (r *replacement) old(m fakenode.Match) fakenode.Match {
	return func(c fakenode.Command) bool { return int64(c.Conn) <= r.last.Load() && m(c) }
}

// sendUntil sends commands until one is answered as ok says.
func sendUntil(t *testing.T, c *Client, ok func(r request.Reply) bool) {
	t.Helper()
	eventually(t, "a command is answered so", func() bool {
		call := requesttest.NewCall(0)
		c.Submit(7, call)
		r := call.Await(t)
		if errors.Is(r.Err, ErrOutcomeUnknown) {
			t.Errorf("in doubt: %v", r.Err)
		}
		return ok(r)
	})
}

func answered(r request.Reply) bool { return r.Err == nil }

var questions = fakenode.Is("EVAL")

// A machine is replaced behind its address, and the old one goes on, and refuses. All
// connections are made anew, after one new one has been served.
func TestNode_ReplacedBehindItsAddress_IsConnectedToAnew(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]func(addr, port string) string{
		"moved to itself":                 func(addr, _ string) string { return "MOVED 7 " + addr },
		"moved to itself, by port":        func(_, port string) string { return "MOVED 7 :" + port },
		"moved to itself, by its name":    func(_, port string) string { return "MOVED 7 inside:" + port },
		"asked to come back":              func(addr, _ string) string { return "ASK 7 " + addr },
		"its cluster has forgotten it":    func(string, string) string { return fakenode.ClusterDown },
		"it is a replica without a link":  func(string, string) string { return fakenode.MasterDown },
		"it cannot be written":            func(string, string) string { return fakenode.ReadOnly },
		"it sends everybody nowhere":      func(string, string) string { return "MOVED 7 ?:1" },
		"it is cut off from its replicas": func(string, string) string { return "NOREPLICAS Not enough good replicas to write." },
		"its disk is full":                func(string, string) string { return "MISCONF Redis is configured to save RDB snapshots" },
		"it loads its data, for ever":     func(string, string) string { return fakenode.Loading },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeCluster(t, 1)
			n := f.nodes[0]
			c := f.client(t, func(cfg *Config) {
				cfg.AddrMap = func(addr string) string {
					if host, port, _ := net.SplitHostPort(addr); host == "inside" {
						return net.JoinHostPort("127.0.0.1", port)
					}
					return addr
				}
			})
			rec := requesttest.NewRecorder()
			c.Subscribe(NewChannel("channel", rec))
			rec.Await(t, Subscribed)
			_, port, _ := net.SplitHostPort(n.Addr())
			var r replacement
			n.On(r.old(echoes), fakenode.Error(text(n.Addr(), port)))
			r.now(n)
			sendUntil(t, c, answered)
			rec.Await(t, Disconnected)
			rec.Await(t, Subscribed)
			eventually(t, "all connections are new", func() bool { return allNew(c) })
			if asked := len(n.Commands(questions)); asked != 1 {
				t.Errorf("%d questions", asked)
			}
		})
	}
}

// The old machine sends everybody to another address: one that is gone, or its own, by another name
// than the layout has. The layout leads back each time.
func TestNode_ReplacedAndSendsElsewhere_IsConnectedToAnew(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(f *fakeCluster){
		"gone":            func(f *fakeCluster) { f.nodes[1].Down() },
		"the old machine": func(f *fakeCluster) { f.nodes[1].On(echoes, f.moved(7, 1)); f.nodes[1].On(questions, f.moved(7, 1)) },
		"sends back":      func(f *fakeCluster) { f.nodes[1].On(echoes, f.moved(7, 0)); f.nodes[1].On(questions, f.moved(7, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeCluster(t, 2)
			f.serve(0, 0)
			c := f.client(t)
			n := f.nodes[0]
			var r replacement
			n.On(r.old(echoes), f.moved(7, 1))
			other(f)
			r.now(n)
			sendUntil(t, c, answered)
			eventually(t, "all connections are new", func() bool { return allNew(c) })
			if asked := len(n.Commands(questions)); asked != 1 {
				t.Errorf("%d questions", asked)
			}
		})
	}
}

// Slots leave, one by one. That is nothing against the connections.
func TestNode_SlotsMoveAway_KeepsItsConnections(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	f.serve(0, 0)
	fake := clock.NewFake()
	c := f.client(t, func(cfg *Config) { cfg.Clock = fake })
	n := f.nodes[0]
	n.On(echoes, f.moved(7, 1))
	n.On(questions, f.moved(7, 1))
	eventually(t, "it is asked three times", func() bool {
		call := requesttest.NewCall(0)
		c.Submit(9, call) // as if it were another slot each time
		if r := call.Await(t); errors.Is(r.Err, ErrOutcomeUnknown) {
			t.Errorf("in doubt: %v", r.Err)
		}
		fake.Advance(100 * time.Millisecond)
		return len(n.Commands(questions)) == 3
	})
	if st := c.Stats(); st.Reconnects != 0 {
		t.Errorf("stats: %+v", st)
	}
}

// A server that refuses what is written refuses it on new connections, too; one that is short of
// memory is not asked, for it would not refuse the question.
func TestNode_RefusesWrites_KeepsItsConnections(t *testing.T) {
	t.Parallel()
	for setting, asks := range map[string]bool{"min-replicas-to-write": true, "maxmemory": false} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			s.Do("CONFIG", "SET", setting, "1")
			var dials atomic.Int32
			fake := clock.NewFake()
			c := ready(t, Config{Addr: s.Addr(), Clock: fake, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}})
			made := dials.Load()
			refused := 0
			eventually(t, "it has refused for long, and been asked twice", func() bool {
				_, err := c.Do(testContext(t), "EVAL", "return redis.call('set', KEYS[1], '1')", "1", "x")
				if err == nil {
					refused = 40 // before Redis 7 scripts may write
					return true
				}
				refused++
				fake.Advance(100 * time.Millisecond)
				return refused >= 40 && (!asks || dials.Load() >= made+2)
			})
			if st := c.Stats(); st.Reconnects != 0 || !asks && dials.Load() != made {
				t.Errorf("%d dials, stats: %+v", dials.Load()-made, st)
			}
		})
	}
}

// What every connection is told is no reason to make others: it is a failover, or a mistake.
func TestNode_RefusesOnNewConnectionsToo_KeepsItsConnections(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]func(addr string) string{
		"moved to itself": func(addr string) string { return "MOVED 7 " + addr },
		"nobody's slot":   func(string) string { return fakenode.ClusterDown },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeCluster(t, 1)
			n := f.nodes[0]
			fake := clock.NewFake()
			c := f.client(t, func(cfg *Config) { cfg.Clock = fake })
			refuse := fakenode.Error(text(n.Addr()))
			n.On(echoes, refuse)
			n.On(questions, refuse)
			began := fake.Now()
			sendUntil(t, c, func(request.Reply) bool {
				fake.Advance(100 * time.Millisecond)
				return len(n.Commands(questions)) == 3
			})
			if d := fake.Now().Sub(began); d < 2*time.Second {
				t.Errorf("three questions within %v", d)
			}
			if st := c.Stats(); st.Reconnects != 0 || st.Connections != 3 {
				t.Errorf("stats: %+v", st)
			}
		})
	}
}

// Alone, a replica may be what its name does not lead to any more.
func TestNode_DemotedAlone_FollowsItsName(t *testing.T) {
	t.Parallel()
	for name, follows := range map[string]bool{"the name goes with the primary": true, "the name stays": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := redistest.StartReplicated(t, 2)
			before := r.Primary()
			after := r.Servers()[0]
			if after == before {
				after = r.Servers()[1]
			}
			var leadsTo atomic.Pointer[redistest.Server]
			leadsTo.Store(before)
			var dials atomic.Int32
			c := ready(t, Config{Addr: "primary.test:6379", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, leadsTo.Load().Addr())
			}})
			write := func() error {
				_, err := c.Do(testContext(t), "EVAL", "return redis.call('set', KEYS[1], '1')", "1", "x")
				if errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("in doubt: %v", err)
				}
				return err
			}
			r.Promote(after)
			if follows {
				leadsTo.Store(after)
				eventually(t, "a write", func() bool { return write() == nil })
				return
			}
			made := dials.Load()
			eventually(t, "the server is asked twice", func() bool { _ = write(); return dials.Load() == made+2 })
			if st := c.Stats(); st.Reconnects != 0 {
				t.Errorf("stats: %+v", st)
			}
		})
	}
}

// What is in flight is answered before the connection ends; meanwhile nothing is sent, and the
// lane is down.
func TestNode_RefusedConnection_AnswersWhatIsInFlightFirst(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, cfg Config) {
		n := fakenode.New(t)
		both, gate := fakenode.NewGate(), fakenode.NewGate()
		n.On(echoes, fakenode.Int(6)) // the latest rule counts
		n.OnNext(1, echoes, fakenode.Hold(gate, fakenode.Int(5)))
		n.OnNext(1, echoes, fakenode.Hold(both, fakenode.Error(fakenode.NoAuth)))
		log := newStateLog(t)
		cfg.Addr, cfg.Lanes, cfg.OnState = n.Addr(), 1, log.onState
		var handshakes atomic.Int32
		cfg.Password = "secret"
		n.On(fakenode.Is("AUTH"), fakenode.Func(func(c *fakenode.Conn, _ fakenode.Command) { handshakes.Add(1); c.Write([]byte("+OK\r\n")) }))
		c := ready(t, cfg)
		log.setClient(c)
		before := handshakes.Load()

		refused, slow := requesttest.NewCall(1), requesttest.NewCall(2)
		c.Submit(0, refused)
		c.Submit(0, slow)
		n.WaitFor(2, echoes) // else the lane may be left before the second is sent
		both.Open()
		var e *ServerError
		if r := refused.Await(t); !errors.As(r.Err, &e) || e.Code != "NOAUTH" {
			t.Fatalf("refused: %+v", r)
		}
		eventually(t, "the lane takes nothing", func() bool { return !c.LaneOf(0).Up() })
		late := requesttest.NewCall(3)
		c.Submit(0, late)
		if r := late.Await(t); !errors.Is(r.Err, ErrNotSent) || !errors.Is(r.Err, ErrDown) {
			t.Errorf("while the lane is being left: %+v", r)
		}
		if err := c.LaneError(0); !errors.As(err, &e) {
			t.Errorf("the lane's error is %v", err)
		}
		gate.Open()
		if r := slow.Await(t); r.Err != nil || r.Value.Int != 5 {
			t.Errorf("in flight: %+v", r)
		}
		sendUntil(t, c, answered)
		eventually(t, "all have said who they are again", func() bool { return handshakes.Load() >= before+3 })
	})
}

// An idle connection learns of it by its PING, and the one of messages by that, or by its SUBSCRIBE.
func TestNode_IdleConnectionRefused_ConnectsAnew(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]fakenode.Match{
		"PING": fakenode.Is("PING"), "SUBSCRIBE": fakenode.Is("SUBSCRIBE"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			fake := clock.NewFake()
			c := ready(t, Config{Addr: n.Addr(), Lanes: 1, Clock: fake})
			var r replacement
			n.On(r.old(on), fakenode.Error(fakenode.NoAuth))
			r.now(n)
			want := 3
			if name == "SUBSCRIBE" {
				want = 1
				rec := requesttest.NewRecorder()
				c.Subscribe(NewChannel("channel", rec))
				rec.Await(t, Subscribed)
			} else {
				fake.Advance(10*time.Second + 1)
			}
			eventually(t, "they are made anew", func() bool { st := c.Stats(); return st.Connections == 3 && st.Reconnects == want })
		})
	}
}

// A server that refuses what it has just let in is not connected to again and again.
func TestNode_RefusedAtOnceAgain_IsReplacedOnceASecond(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(echoes, fakenode.Error(fakenode.NoAuth))
	fake := clock.NewFake()
	c := ready(t, Config{Addr: n.Addr(), Lanes: 1, Clock: fake})
	fake.Advance(1)
	refusals := 0
	sendUntil(t, c, func(r request.Reply) bool {
		if errors.As(r.Err, new(*ServerError)) {
			refusals++
		}
		return refusals == 20
	})
	eventually(t, "all are new", func() bool { st := c.Stats(); return st.Connections == 3 && st.Reconnects >= 3 })
	if st := c.Stats(); st.Reconnects != 3 {
		t.Errorf("%d connections came back", st.Reconnects)
	}
}

// The lane was lost, and is back at the new machine; pub/sub, which nobody cut, follows. In a
// cluster, too, an address is not a server.
func TestNode_LaneBackInACluster_SubscribesAnew(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	n := f.nodes[0]
	c := f.client(t, func(cfg *Config) { cfg.Lanes = 1 })
	rec := requesttest.NewRecorder()
	c.Subscribe(NewChannel("channel", rec))
	rec.Await(t, Subscribed)
	n.OnNext(1, echoes, fakenode.Reset())
	call := requesttest.NewCall(0)
	c.Submit(7, call)
	if r := call.Await(t); !errors.Is(r.Err, ErrOutcomeUnknown) {
		t.Fatalf("%+v", r)
	}
	rec.Await(t, Disconnected)
	rec.Await(t, Subscribed)
	sendUntil(t, c, answered)
}

// The address of a single server moves to another one while both live. What was lost on
// the way is made anew with the other one; pub/sub, which nobody cut, follows.
func TestNode_AddressMoves_PubSubFollows(t *testing.T) {
	t.Parallel()
	for name, handshakes := range map[string]bool{"a lane is lost": true, "the renewals are lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := fakenode.New(t), fakenode.New(t)
			var leadsTo atomic.Pointer[fakenode.Node]
			leadsTo.Store(before)
			c := ready(t, Config{Addr: "moving:6379", Lanes: 1, Scripts: []string{"return 1"}, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, leadsTo.Load().Addr())
			}})
			r := requesttest.NewRecorder()
			c.Subscribe(NewChannel("channel", r))
			r.Await(t, Subscribed)

			leadsTo.Store(after)
			for _, conn := range before.Conns() {
				carried := func(words ...string) bool {
					return len(before.Commands(fakenode.OnConn(conn.ID, fakenode.Is(words...)))) > 0
				}
				if carried("SCRIPT") && carried("HELLO") == handshakes { // only lanes say HELLO
					conn.Reset()
				}
			}
			r.Await(t, Disconnected)
			r.Await(t, Subscribed)
			after.WaitFor(1, fakenode.Is("SUBSCRIBE"))
		})
	}
}

// The pub/sub connection is made, or being made, while the address moves: its dial led to
// the old server, and those of the lane lead to the new one.
func TestNode_AddressMovesWhilePubSubConnects_PubSubFollows(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]string{
		"the lane arrives first":                  {"pub/sub is lost", "the lane is lost", "the lane arrives", "pub/sub arrives"},
		"pub/sub arrives first":                   {"pub/sub is lost", "the lane is lost", "pub/sub arrives", "the lane arrives"},
		"pub/sub arrives before the lane's dials": {"the lane is lost", "pub/sub is lost", "pub/sub arrives", "the lane fails", "the lane fails", "the lane arrives"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := fakenode.New(t), fakenode.New(t)
			dials := make(chan chan *fakenode.Node) // those that somebody steers
			var steered atomic.Bool
			c := ready(t, Config{Addr: "moving:6379", Lanes: 1, Scripts: []string{"return 1"}, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				to := before
				if steered.Load() {
					leadsTo := make(chan *fakenode.Node, 1)
					select {
					case dials <- leadsTo:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					select {
					case to = <-leadsTo:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				if to == nil {
					return nil, errors.New("refused")
				}
				return new(net.Dialer).DialContext(ctx, network, to.Addr())
			}})
			r := requesttest.NewRecorder()
			c.Subscribe(NewChannel("channel", r))
			r.Await(t, Subscribed)
			steered.Store(true)
			reset := func(want ...string) (leadsTo chan *fakenode.Node) {
				for _, conn := range before.Conns() {
					if len(before.Commands(fakenode.OnConn(conn.ID, fakenode.Is(want...)))) > 0 {
						conn.Reset()
					}
				}
				return sockettest.Receive(t, dials, "a dial")
			}
			var pubsub, lane chan *fakenode.Node
			step := map[string]func(){
				"pub/sub is lost": func() {
					pubsub = reset("SUBSCRIBE")
					r.Await(t, Disconnected)
				},
				"the lane is lost": func() { lane = reset("HELLO") },
				"the lane fails": func() {
					lane <- nil
					lane = sockettest.Receive(t, dials, "the lane's next dial")
				},
				"the lane arrives": func() {
					lane <- after
					eventually(t, "the lane is back", func() bool { return c.Up(RoleLane, 0) })
				},
				"pub/sub arrives": func() {
					pubsub <- before
					eventually(t, "pub/sub is back", func() bool { return connects(c, RolePubSub) == 2 })
				},
			}
			for _, s := range steps {
				step[s]()
			}
			sockettest.Receive(t, dials, "pub/sub to be made anew") <- after
			after.WaitFor(1, fakenode.Is("SUBSCRIBE"))
		})
	}
}

// All connections are lost, and come back in any order: pub/sub is made anew once, for its dial began after
// all losses and failures.
func TestNode_AllConnectionsLost_PubSubConnectsOnce(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	dials := make(chan chan error) // those that somebody steers
	var steered atomic.Bool
	c := ready(t, Config{Addr: n.Addr(), Lanes: 4, DialTimeout: 2 * clientPatience, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if steered.Load() {
			goOn := make(chan error, 1)
			select {
			case dials <- goOn:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			select {
			case err := <-goOn:
				if err != nil {
					return nil, err
				}
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	r := requesttest.NewRecorder()
	c.Subscribe(NewChannel("channel", r))
	r.Await(t, Subscribed)
	steered.Store(true)
	n.ResetAll()
	for _, outcome := range []error{errors.New("refused"), nil} {
		var all []chan error // one of each connection
		for range 6 {
			all = append(all, sockettest.Receive(t, dials, "a dial"))
		}
		for _, goOn := range all {
			goOn <- outcome
		}
	}
	r.Await(t, Disconnected)
	r.Await(t, Subscribed)
	eventually(t, "all are back", func() bool { return c.Stats().Connections == 6 })
	if got := c.Stats().Reconnects; got != 6 {
		t.Errorf("%d connections came back", got)
	}
	if got := len(r.Events); got != 0 {
		t.Errorf("%d more events", got)
	}
}

// allNew reports whether each connection of the one node was made anew, and is up. Pub/sub may have been so twice:
// if a lane was lost only when pub/sub was being made anew already (see resubscribe).
func allNew(c *Client) bool {
	for _, role := range []Role{RoleLane, RoleRenewal, RolePubSub} {
		if up, n, _ := c.routes.Of(0).link(role, 0).status(); !up || n < 2 {
			return false
		}
	}
	return true
}

// connects is how often a connection of the one node was made.
func connects(c *Client, role Role) int {
	_, n, _ := c.routes.Of(0).link(role, 0).status()
	return n
}
