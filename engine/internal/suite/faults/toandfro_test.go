package faults

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/fakenode"
)

// swayingSlots is a cluster of two nodes, whose slots are moved atomically from the first to the
// second: from the first command for a name on, each node sends it to the other for some time.
type swayingSlots struct {
	nodes [2]*fakenode.Node
	mu    sync.Mutex
	until map[string]time.Time // by key
}

func newSwayingSlots(t *testing.T, sways time.Duration) *swayingSlots {
	s := &swayingSlots{until: make(map[string]time.Time)}
	for i := range s.nodes {
		s.nodes[i] = fakenode.New(t)
	}
	host, port, _ := net.SplitHostPort(s.nodes[0].Addr())
	for i, n := range s.nodes {
		n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Raw(fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)))
		other := s.nodes[1-i].Addr()
		n.On(fakenode.Is("EVALSHA"), fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) {
			key := cmd.Words[3]
			s.mu.Lock()
			until, known := s.until[key]
			if !known {
				until = time.Now().Add(sways)
				s.until[key] = until
			}
			s.mu.Unlock()
			if i == 0 || time.Now().Before(until) {
				c.Write([]byte("-MOVED 7 " + other + "\r\n"))
			} else {
				c.Write([]byte(fmt.Sprintf(":%d\r\n", script.Granted)))
			}
		}))
	}
	return s
}

// A slot that is moved atomically is each node's and the other's for some milliseconds. A command
// goes there and back once at a time, and then pauses: it gets through soon, and not by a storm.
func TestMutex_SlotMovedToAndFro_GetsThroughAfterPauses(t *testing.T) {
	t.Parallel()
	// Three commands for the first try, as for those after pauses of 10, 20 and 40 ms at least.
	for sways, tries := range map[time.Duration]int{0: 1, 5 * time.Millisecond: 2, 50 * time.Millisecond: 5} {
		t.Run(sways.String(), func(t *testing.T) {
			t.Parallel()
			s := newSwayingSlots(t, sways)
			e := testkit.Open(t, "redis+cluster://"+s.nodes[0].Addr()+"?sharded_pubsub=off&close_timeout=100ms")
			const names = 10
			for i := range names {
				testkit.MustLock(t, e.Mutex(fmt.Sprint("x", i)))
			}
			sent := len(s.nodes[0].Commands(testkit.Calls(script.Acquire))) + len(s.nodes[1].Commands(testkit.Calls(script.Acquire)))
			if most := names * 3 * tries; sent > most {
				t.Errorf("%d locks took %d commands, want %d at most", names, sent, most)
			}
		})
	}
}
