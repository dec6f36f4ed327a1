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
	clients := new(clientIDs)
	// The hook runs for commands of scripts too, with miniredis's lock held: it only
	// looks at words.
	srv.SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		switch {
		case cmd == "CLIENT" && len(args) == 3 && strings.EqualFold(args[0], "SETINFO"):
			c.WriteOK()
		case cmd == "CLIENT" && len(args) == 1 && strings.EqualFold(args[0], "ID"):
			c.WriteInt(clients.of(c))
		case cmd == "WAIT" && len(args) == 2:
			c.WriteInt(int(s.replicas.Load()))
		case cmd == "CLUSTER":
			// miniredis describes a cluster of one shard, which would make it look like one.
			c.WriteError("ERR This instance has cluster support disabled")
		default:
			return false
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
		if err := srv.Register(name, cmd); err != nil {
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

// clientIDs numbers connections in the order in which they ask.
type clientIDs struct {
	last atomic.Int64
	ids  sync.Map // *server.Peer -> int
}

func (ids *clientIDs) of(c *server.Peer) int {
	if id, ok := ids.ids.Load(c); ok {
		return id.(int)
	}
	// A connection's commands run one after the other: nobody else stores for c.
	id := int(ids.last.Add(1))
	ids.ids.Store(c, id)
	c.OnDisconnect(func() { ids.ids.Delete(c) })
	return id
}
