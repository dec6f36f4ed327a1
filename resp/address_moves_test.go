package resp

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// The address of a single server moves to another one while both live. What was lost on
// the way is made anew with the other one; pub/sub, which nobody cut, follows.
func TestPubSubFollowsAnAddressThatMoves(t *testing.T) {
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
func TestPubSubThatIsOnItsWayWhenAnAddressMovesFollows(t *testing.T) {
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

// All connections are lost, and come back in any order: pub/sub is made anew once.
func TestPubSubThatWasLostWithTheOthersIsMadeAnewOnce(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	c := ready(t, Config{Addr: n.Addr(), Lanes: 4})
	r := requesttest.NewRecorder()
	c.Subscribe(NewChannel("channel", r))
	r.Await(t, Subscribed)
	n.Down()
	r.Await(t, Disconnected)
	eventually(t, "all are lost", func() bool { return c.Stats().Connections == 0 })
	n.Up()
	r.Await(t, Subscribed)
	eventually(t, "all are back", func() bool { return c.Stats().Connections == 6 })
	if got := c.Stats().Reconnects; got != 6 {
		t.Errorf("%d connections came back", got)
	}
	if got := len(r.Events); got != 0 {
		t.Errorf("%d more events", got)
	}
}

// connects is how often a connection of the one node was made.
func connects(c *Client, role Role) int {
	_, n, _ := c.routes.Of(0).link(role, 0).status()
	return n
}
