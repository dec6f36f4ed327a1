package embedded

import (
	"slices"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// sharded adds sharded pub/sub, as a standalone server has it: channels of a
// namespace of their own, here a prefix of the ordinary one.
type sharded struct {
	redis *miniredis.Miniredis
	srv   *server.Server
	subs  sync.Map // *server.Peer -> *shardSub
}

const shardPrefix = "\x00shard:"

// shardSub is one connection's subscriptions. Commands of a connection run one
// after the other, so channels needs no lock.
type shardSub struct {
	sub      *miniredis.Subscriber
	channels []string
	relayed  sync.WaitGroup
}

// publish goes through PUBLISH, not through the Go API: inside a script the lock
// that the API takes is held.
func (s *sharded) publish(c *server.Peer, _ string, args []string) {
	if len(args) != 2 {
		wrongArgs(c, "spublish")
		return
	}
	s.srv.Dispatch(c, []string{"PUBLISH", shardPrefix + args[0], args[1]})
}

func (s *sharded) subscribe(c *server.Peer, _ string, args []string) {
	if len(args) == 0 {
		wrongArgs(c, "ssubscribe")
		return
	}
	sub := s.of(c)
	for _, ch := range args {
		if !slices.Contains(sub.channels, ch) {
			sub.channels = append(sub.channels, ch)
			sub.sub.Subscribe(shardPrefix + ch)
		}
		confirm(c, "ssubscribe", ch, len(sub.channels))
	}
}

func (s *sharded) unsubscribe(c *server.Peer, _ string, args []string) {
	sub := s.of(c)
	if len(args) == 0 {
		args = slices.Clone(sub.channels)
	}
	if len(args) == 0 {
		c.Block(func(w *server.Writer) {
			w.WritePushLen(3)
			w.WriteBulk("sunsubscribe")
			w.WriteNull()
			w.WriteInt(0)
		})
	}
	for _, ch := range args {
		if i := slices.Index(sub.channels, ch); i >= 0 {
			sub.channels = slices.Delete(sub.channels, i, i+1)
			sub.sub.Unsubscribe(shardPrefix + ch)
		}
		confirm(c, "sunsubscribe", ch, len(sub.channels))
	}
}

// of returns the connection's subscriptions, creating them at the first call.
func (s *sharded) of(c *server.Peer) *shardSub {
	if sub, ok := s.subs.Load(c); ok {
		return sub.(*shardSub)
	}
	sub := &shardSub{sub: s.redis.NewSubscriber()}
	s.subs.Store(c, sub)
	stop := make(chan struct{})
	sub.relayed.Go(func() { relay(c, sub.sub.Messages(), stop) })
	c.OnDisconnect(func() {
		s.subs.Delete(c)
		// The relay reads on while the channels go: a PUBLISH that has found one of
		// them waits for it.
		for _, ch := range sub.channels {
			sub.sub.Unsubscribe(shardPrefix + ch)
		}
		close(stop)
		sub.relayed.Wait()
	})
	return sub
}

// relay writes messages to the client until stop.
func relay(c *server.Peer, messages <-chan miniredis.PubsubMessage, stop <-chan struct{}) {
	for {
		select {
		case m := <-messages:
			c.Block(func(w *server.Writer) {
				w.WritePushLen(3)
				w.WriteBulk("smessage")
				w.WriteBulk(m.Channel[len(shardPrefix):])
				w.WriteBulk(m.Message)
				w.Flush()
			})
		case <-stop:
			return
		}
	}
}

func confirm(c *server.Peer, kind, channel string, n int) {
	c.Block(func(w *server.Writer) {
		w.WritePushLen(3)
		w.WriteBulk(kind)
		w.WriteBulk(channel)
		w.WriteInt(n)
	})
}

func wrongArgs(c *server.Peer, cmd string) {
	c.WriteError("ERR wrong number of arguments for '" + cmd + "' command")
}
