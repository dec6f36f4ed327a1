package resp

// Stats are counters since Open, and a few gauges.
type Stats struct {
	// Commands were accepted by the lanes and the renewal connection; of these,
	// Resent were sent again whole, after NOSCRIPT.
	Commands, Resent uint64
	// InFlight are accepted and unanswered.
	InFlight int
	// BytesIn and BytesOut are the payload of all connections, handshakes and TLS
	// not counted.
	BytesIn, BytesOut uint64
	// Connections are up now; Reconnects counts how often one came back.
	Connections, Reconnects int
	// Channels have a subscriber, or the server has yet to forget them;
	// ChannelsConfirmed are subscribed by the server's latest word.
	Channels, ChannelsConfirmed int
}

// Stats returns a snapshot; its parts are not taken at one instant.
func (c *Client) Stats() Stats {
	var s Stats
	for _, l := range append(c.lanes[:len(c.lanes):len(c.lanes)], c.renewal) {
		n := l.counters()
		s.Commands += n.Commands
		s.Resent += n.Resent
		s.InFlight += n.InFlight
		s.BytesIn += n.BytesIn
		s.BytesOut += n.BytesOut
	}
	s.BytesIn += c.pubsub.bytesIn.Load()
	s.BytesOut += c.pubsub.bytesOut.Load()
	for _, l := range c.links {
		up, connects, _ := l.status()
		if up {
			s.Connections++
		}
		s.Reconnects += max(0, connects-1)
	}
	s.Channels, s.ChannelsConfirmed = c.pubsub.subs.counts()
	return s
}
