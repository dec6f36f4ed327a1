package replication

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

var (
	waits  = fakenode.Is("WAIT")
	roles  = fakenode.Is("ROLE")
	echoes = fakenode.Is("ECHO")
)

// primary is a fake node with so many replicas, all of which acknowledge, that
// answers commands with 1.
func primary(t *testing.T, replicas int) *fakenode.Node {
	n := fakenode.New(t)
	n.On(echoes, fakenode.Int(1))
	n.On(roles, roleOfPrimary(replicas))
	n.On(waits, fakenode.Int(int64(replicas)))
	return n
}

// roleOfPrimary is the answer to ROLE of a primary with n replicas.
func roleOfPrimary(n int) fakenode.Action {
	var replicas []string
	for i := range n {
		replicas = append(replicas, fmt.Sprint("10.0.0.2:", 7001+i))
	}
	return fakenode.Raw(primaryReply(replicas...))
}

// primaryReply is the answer to ROLE of a primary with these replicas.
func primaryReply(replicas ...string) string {
	var b strings.Builder
	bulk := func(s string) { fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(s), s) }
	fmt.Fprintf(&b, "*3\r\n$6\r\nmaster\r\n:0\r\n*%d\r\n", len(replicas))
	for _, r := range replicas {
		host, port, _ := net.SplitHostPort(r)
		b.WriteString("*3\r\n")
		bulk(host)
		bulk(port)
		bulk("0")
	}
	return b.String()
}

func newLane(t *testing.T, n *fakenode.Node) *Lane { return newLaneOf(t, n, 1<<14) }

// newLaneOf returns a Lane whose queue has a limit. Its plain lane is up, and is connected
// again whenever its connection has ended, as a link does it. Nobody keeps a list of replicas.
func newLaneOf(t *testing.T, n *fakenode.Node, limit int) *Lane {
	t.Helper()
	loops := socket.NewLoops(1, false, func(err error) { t.Errorf("no event loops: %v", err) })
	lost := make(chan struct{}, 1)
	plain := pipeline.NewLane(pipeline.Config{
		Clock:          clock.System(),
		CommandTimeout: 4 * time.Second,
		MaxInFlight:    2 * MaxGroup,
		MaxQueuedBytes: 4 << 20,
		Down:           func(error) { lost <- struct{}{} },
	})
	var connecting sync.WaitGroup
	connecting.Go(func() {
		for {
			conn, err := net.Dial(n.Network(), n.Addr())
			if err != nil {
				t.Errorf("dial: %v", err)
				return
			}
			if err := plain.Attach(loops, conn); err != nil {
				if !errors.Is(err, request.ErrClosed) {
					t.Errorf("attach: %v", err)
				}
				return
			}
			<-lost
		}
	})
	t.Cleanup(func() {
		plain.Close(request.ErrClosed)
		connecting.Wait()
		if err := loops.Close(); err != nil {
			t.Errorf("closing the loops: %v", err)
		}
	})
	sockettest.PollUntil(t, "the lane is up", func() bool { return plain.Err() == nil })
	return New(Config{
		Plain:     plain,
		Timeout:   time.Second,
		Limit:     limit,
		Addr:      n.Addr(),
		HighWater: &HighWater{Forever: true},
		Wake:      func() {},
		Counted:   func() bool { return true },
		Group:     func(string) (*topology.Group, error) { return new(topology.Group), nil },
	})
}

// acked sends one call and returns its outcome.
func acked(t *testing.T, l *Lane, want request.Acks) request.Reply {
	t.Helper()
	call := requesttest.NewDurableCall(1, want)
	l.Submit(call)
	return call.Await(t)
}
