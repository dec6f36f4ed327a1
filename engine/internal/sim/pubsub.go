package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// pubsub is the subscriptions of a site. Messages come in order, and are lost with
// the connection.
type pubsub struct {
	p      *site
	server *server
	up     bool
	life   int
	wanted []*subscription
	lastIn clock.Instant
}

// subscription is one of a channel, from Subscribe to Unsubscribe.
type subscription struct {
	channel *resp.Channel
	name    string
	life    int  // of the connection on which the server knows it; 0: it does not
	live    bool // Subscribed was the last word
	over    bool
}

func newPubsub(p *site, v *server) *pubsub { return &pubsub{p: p, server: v, life: 1} }

func (x *site) subscribe(ch *resp.Channel) {
	x.sim.checkQuiet(ch.Name())
	if !x.closed {
		x.place(&subscription{channel: ch, name: ch.Name()})
	}
}

// place asks for a subscription where its slot is, as far as the site knows.
func (x *site) place(sub *subscription) {
	b := x.nodeOf(resp.SlotOf(nameOf(sub.name))).pubsub
	b.wanted = append(b.wanted, sub)
	if b.up {
		b.ask(sub)
	}
}

func (x *site) unsubscribe(ch *resp.Channel) {
	for _, n := range x.nodes {
		n.pubsub.wanted = slices.DeleteFunc(n.pubsub.wanted, func(sub *subscription) bool {
			if sub.channel == ch {
				sub.over = true
			}
			return sub.over
		})
	}
}

// ask sends SUBSCRIBE, or SSUBSCRIBE, which only the node takes that has the slot.
func (b *pubsub) ask(sub *subscription) {
	s, life := b.p.sim, b.life
	s.after(s.latency(), nil, func() {
		if b.life != life || b.p.dead || sub.over {
			return
		}
		if c := s.cluster; c != nil && c.sharded {
			if at := c.slots[resp.SlotOf(nameOf(sub.name))].at; at != b.server {
				s.after(s.latency(), b.p.process, func() { b.moved(sub, at, life) })
				return
			}
		}
		sub.life = life
		b.deliver(sub, resp.Subscribed, "")
	})
}

// moved asks for a subscription at another node.
func (b *pubsub) moved(sub *subscription, at *server, life int) {
	if b.life != life || sub.over || b.p.closed || !slices.Contains(b.wanted, sub) {
		return
	}
	b.wanted = slices.DeleteFunc(b.wanted, func(one *subscription) bool { return one == sub })
	b.p.learn(resp.SlotOf(nameOf(sub.name)), at)
	b.p.place(sub)
}

// drop ends the subscriptions to a name on the server's side: its slot has left. The site asks
// again when it hears of that.
func (b *pubsub) drop(name string) {
	s, life := b.p.sim, b.life
	for _, sub := range b.wanted {
		if nameOf(sub.name) != name || sub.life != life {
			continue
		}
		sub.life = 0
		b.lastIn = max(b.lastIn, s.now.Add(s.latency()))
		s.at(b.lastIn, b.p.process, func() {
			if b.life != life || sub.over || !slices.Contains(b.wanted, sub) {
				return
			}
			if sub.live {
				sub.live = false
				sub.channel.Handler().ChannelEvent(resp.Disconnected, nil, nil)
			}
			if sub.over { // it was not wanted any more
				return
			}
			b.wanted = slices.DeleteFunc(b.wanted, func(one *subscription) bool { return one == sub })
			b.p.place(sub)
		})
	}
}

// deliver has an event come to a channel, behind what is under way.
func (b *pubsub) deliver(sub *subscription, event resp.ChannelEvent, message string) {
	s, life := b.p.sim, b.life
	b.lastIn = max(b.lastIn, s.now.Add(s.latency()))
	s.at(b.lastIn, b.p.process, func() {
		if b.life != life || sub.over && !s.chance(3) { // one event may still come
			return
		}
		sub.live = sub.live || event == resp.Subscribed
		sub.channel.Handler().ChannelEvent(event, []byte(message), nil)
	})
}

// published sends a message to those that the server knows, and counts them.
func (b *pubsub) published(channel, message string) (heard int) {
	for _, sub := range b.wanted {
		if sub.name == channel && sub.life == b.life && b.up {
			b.deliver(sub, resp.Message, message)
			heard++
		}
	}
	return heard
}

func (b *pubsub) connect() {
	if b.p.closed {
		return
	}
	if again, ok := b.p.mayConnect(b.server); !ok {
		b.p.sim.at(again, b.p.process, b.connect)
		return
	}
	b.up = true
	b.lastIn = b.p.sim.now
	b.p.events.Connection(resp.State{Role: resp.RolePubSub, Up: true}, nil)
	for _, sub := range slices.Clone(b.wanted) {
		b.ask(sub)
	}
}

// cut ends the connection. The server may notice later; what it sends is lost.
func (b *pubsub) cut() {
	s := b.p.sim
	if !b.up {
		return
	}
	s.tell("%s pubsub is cut", b.p.name)
	b.up = false
	b.life++
	for _, sub := range slices.Clone(b.wanted) {
		if sub.live && !sub.over {
			sub.live = false
			sub.channel.Handler().ChannelEvent(resp.Disconnected, nil, nil)
		}
	}
	b.p.events.Connection(resp.State{Role: resp.RolePubSub, Err: errCut}, nil)
	s.after(s.between(5*time.Millisecond, 4*time.Second)+b.p.away, b.p.process, b.connect)
}

// looks sends a command that is no script, if it is one: it reads, or it publishes a question or an answer. It may be lost with
// its connection.
func (c *conn) looks(r resp.Request) bool {
	words := model.Words(r.AppendCommand(nil, resp.EvalSHA))
	if words[0] == "EVALSHA" {
		return false
	}
	s, life, sent, ended := c.p.sim, c.life, c.p.sim.now, false
	end := func(v resp.Value, err error) {
		if !ended {
			ended = true
			r.Complete(resp.Reply{Value: v, Err: err, Sent: sent, Now: s.now})
		}
	}
	s.after(s.latency(), nil, func() {
		if c.life != life {
			return
		}
		var reply []byte
		if words[0] == "PUBLISH" {
			reply = fmt.Appendf(nil, ":%d\r\n", s.say(c.server, words[1], words[0], words[2]))
		} else {
			reply = c.server.Look(words)
		}
		v, _, err := wire.Decode(reply)
		if err != nil {
			panic("BUG: sim: " + err.Error())
		}
		s.after(s.latency(), c.p.process, func() { end(v, nil) })
	})
	lost := func(why error) {
		if !c.p.dead {
			end(resp.Value{}, resp.OutcomeUnknown(why))
		}
	}
	c.breaks = append(c.breaks, lost)
	s.after(commandTimeout, c.p.process, func() { lost(errCut) })
	return true
}
