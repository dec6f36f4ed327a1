package embedded

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2/server"
)

// addCommands gives the server the commands that miniredis lacks and a client of
// a standalone Redis may send, and corrects one that misleads.
func (s *Server) addCommands(srv *server.Server) {
	clients := new(clients)
	// miniredis queues its own commands in a transaction; ours would be answered at once,
	// and the client would take that for the answer to another command.
	refused := func(c *server.Peer, cmd string) bool {
		if !clients.inMulti(c) {
			return false
		}
		c.WriteError("ERR the embedded server does not take " + cmd + " inside MULTI")
		return true
	}
	// The hook runs for commands of scripts too, with miniredis's lock held: it only
	// looks at words.
	srv.SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		var answer func()
		switch {
		case cmd == "MULTI" && len(args) == 0:
			clients.setMulti(c, true)
		case cmd == "EXEC" || cmd == "DISCARD" || cmd == "RESET":
			clients.setMulti(c, false)
		case cmd == "CLIENT" && len(args) == 3 && strings.EqualFold(args[0], "SETINFO"):
			answer = c.WriteOK
		case cmd == "CLIENT" && len(args) == 1 && strings.EqualFold(args[0], "ID"):
			answer = func() { c.WriteInt(clients.id(c)) }
		case cmd == "WAIT" && len(args) == 2:
			answer = func() { c.WriteInt(int(s.replicas.Load())) }
		case cmd == "CLUSTER":
			// miniredis describes a cluster of one shard, which would make it look like one.
			answer = func() { c.WriteError("ERR This instance has cluster support disabled") }
		default:
			answer = s.faults.meet(c, cmd)
		}
		if answer == nil {
			return false
		}
		if !refused(c, cmd) {
			answer()
		}
		return true
	})
	shards := &sharded{redis: s.redis, srv: srv}
	for name, cmd := range map[string]server.Cmd{
		"SPUBLISH":     shards.publish,
		"SSUBSCRIBE":   shards.subscribe,
		"SUNSUBSCRIBE": shards.unsubscribe,
		"ROLE":         s.role,
	} {
		outside := func(c *server.Peer, name string, args []string) {
			if !refused(c, name) {
				cmd(c, name, args)
			}
		}
		if err := srv.Register(name, outside); err != nil {
			panic("BUG: embedded: miniredis has learned a command of ours: " + err.Error())
		}
	}
}

// role is a primary's, with the replicas that SetReplicas pretends.
func (s *Server) role(c *server.Peer, _ string, _ []string) {
	c.Block(func(w *server.Writer) {
		n := int(s.replicas.Load())
		w.WriteLen(3)
		w.WriteBulk("master")
		w.WriteInt(0)
		w.WriteLen(n)
		for i := range n {
			w.WriteStrings([]string{"127.0.0.1", strconv.Itoa(i + 1), "0"})
		}
	})
}

// clients is what is known of connections: their numbers, in the order in which they
// ask, and which are in a transaction.
type clients struct {
	last  atomic.Int64
	peers sync.Map // *server.Peer -> *client
}

// client belongs to its connection, whose commands run one after the other.
type client struct {
	id    int
	multi bool
}

func (all *clients) of(c *server.Peer) *client {
	if known, ok := all.peers.Load(c); ok {
		return known.(*client)
	}
	fresh := new(client)
	all.peers.Store(c, fresh)
	c.OnDisconnect(func() { all.peers.Delete(c) })
	return fresh
}

func (all *clients) id(c *server.Peer) int {
	known := all.of(c)
	if known.id == 0 {
		known.id = int(all.last.Add(1))
	}
	return known.id
}

func (all *clients) inMulti(c *server.Peer) bool {
	known, ok := all.peers.Load(c)
	return ok && known.(*client).multi
}

func (all *clients) setMulti(c *server.Peer, multi bool) {
	if multi || all.inMulti(c) {
		all.of(c).multi = multi
	}
}
