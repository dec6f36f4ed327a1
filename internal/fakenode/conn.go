package fakenode

import (
	"net"
	"sync"

	"github.com/pawl-lock/pawl/internal/respio"
)

// Conn is one connection, as an Action sees it. Its methods may be called from
// any goroutine.
//
// One goroutine reads: it records each command, picks its action, and queues
// both. Another runs the actions in order. So a held answer holds back those
// behind it, but not the record of what the client sends meanwhile.
type Conn struct {
	ID    int
	node  *Node
	net   net.Conn
	ended chan struct{} // closed when the connection is over, no matter which side ended it
	once  sync.Once

	queue struct {
		sync.Mutex
		steps []step
		ready chan struct{} // capacity 1: steps is not empty
	}

	// Lock order: write, then Node.mu. write orders answers and messages, so that
	// no message of a channel comes before the confirmation of its SUBSCRIBE.
	write struct {
		sync.Mutex
		channels map[string]bool
	}
}

type step struct {
	cmd    Command
	action Action
}

func newConn(n *Node, id int, nc net.Conn) *Conn {
	c := &Conn{ID: id, node: n, net: nc, ended: make(chan struct{})}
	c.queue.ready = make(chan struct{}, 1)
	c.write.channels = make(map[string]bool)
	return c
}

func (c *Conn) read() {
	defer c.node.wg.Done()
	defer c.Close()
	r := respio.NewReader(c.net)
	if !c.take(Command{Conn: c.ID}) {
		return
	}
	for {
		_, args, err := r.Command()
		if err != nil {
			return
		}
		words := make([]string, len(args))
		for i, a := range args {
			words[i] = string(a)
		}
		if !c.take(Command{Conn: c.ID, Words: words}) {
			return
		}
	}
}

// take queues one command for its action; false: the connection ended.
func (c *Conn) take(cmd Command) bool {
	action, ok := c.node.take(cmd)
	if !ok {
		if Connect(cmd) {
			return true
		}
		action = Default()
	}
	c.queue.Lock()
	c.queue.steps = append(c.queue.steps, step{cmd, action})
	c.queue.Unlock()
	select {
	case c.queue.ready <- struct{}{}:
	default:
	}
	return action.stop == nil || action.stop.pass(c.ended)
}

func (c *Conn) reply() {
	defer c.node.wg.Done()
	defer c.node.forget(c)
	for {
		select {
		case <-c.ended:
			return
		case <-c.queue.ready:
		}
		c.queue.Lock()
		steps := c.queue.steps
		c.queue.steps = nil
		c.queue.Unlock()
		for _, s := range steps {
			select {
			case <-c.ended:
				return
			default:
				s.action.run(c, s.cmd)
			}
		}
	}
}

// Write sends bytes as they are. A failure ends the connection.
func (c *Conn) Write(b []byte) {
	c.write.Lock()
	defer c.write.Unlock()
	c.writeLocked(b)
}

func (c *Conn) writeLocked(b []byte) {
	if _, err := c.net.Write(b); err != nil {
		c.Close()
	}
}

// Close ends the connection in order.
func (c *Conn) Close() {
	c.once.Do(func() {
		close(c.ended)
		c.net.Close()
	})
}

// Reset ends the connection with RST; over a unix socket it is Close.
func (c *Conn) Reset() {
	c.once.Do(func() {
		close(c.ended)
		if tcp, ok := c.net.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.net.Close()
	})
}
