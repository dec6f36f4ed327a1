package resp

import "sync"

// Stats are counters since Open, and a few gauges.
type Stats struct {
	// Commands were accepted by the lanes and the renewal connection; of these,
	// Resent were sent again whole, after NOSCRIPT or its like.
	Commands, Resent uint64
	// InFlight are accepted and unanswered.
	InFlight int
	// BytesIn and BytesOut are the payload of all connections, handshakes and TLS
	// not counted.
	BytesIn, BytesOut uint64
	// Messages arrived on subscribed channels.
	Messages uint64
	// Connections are up now; Reconnects counts how often one came back.
	Connections, Reconnects int
	// Redirects counts commands that were sent on, by MOVED or ASK.
	Redirects uint64
	// Nodes are connected to, or being connected to, now.
	Nodes int
	// Channels have a subscriber, or the server has yet to forget them;
	// ChannelsConfirmed are subscribed by the server's latest word.
	Channels, ChannelsConfirmed int
}

// Stats returns a snapshot. Its parts are not taken at the same instant.
func (c *Client) Stats() Stats {
	s := c.retired.sum()
	for _, n := range c.nodes() {
		n.addTo(&s)
		s.Nodes++
	}
	s.Redirects = c.redirects.Load()
	return s
}

// retired sums up the nodes that are gone.
type retired struct {
	mu struct {
		sync.Mutex
		Stats
	}
}

// add takes the counters of a node, without its gauges: it is about to end.
func (r *retired) add(n *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.mu.Stats
	n.addTo(s)
	s.InFlight, s.Connections, s.Channels, s.ChannelsConfirmed = 0, 0, 0, 0
}

func (r *retired) sum() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.Stats
}

func (n *node) addTo(s *Stats) {
	for _, l := range n.allLanes() {
		c := l.Counters()
		s.Commands += c.Commands
		s.Resent += c.Resent
		s.InFlight += c.InFlight
		s.BytesIn += c.BytesIn
		s.BytesOut += c.BytesOut
	}
	p := n.pubsub.Counters()
	s.BytesIn += p.BytesIn
	s.BytesOut += p.BytesOut
	s.Messages += p.Messages
	for _, l := range n.links {
		up, connects, _ := l.status()
		if up {
			s.Connections++
		}
		s.Reconnects += max(0, connects-1)
	}
	s.Channels += p.Channels
	s.ChannelsConfirmed += p.Confirmed
}
