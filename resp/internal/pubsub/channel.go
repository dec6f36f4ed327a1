package pubsub

import (
	"fmt"

	"github.com/pawl-lock/pawl/internal/redact"
	"github.com/pawl-lock/pawl/resp/internal/request"
)

// Channel is one subscription: a name and its handler. It may be embedded; it must not
// be copied after Subscribe. The package's fields belong to subs.mu.
type Channel struct {
	name    string
	handler request.ChannelHandler

	topic *topic   // nil: not subscribed by Client.Subscribe
	next  *Channel // of the same topic
	live  uint32   // the connection on which Subscribed was the last word; 0: none
	came  uint8    // topic.wrote when it came

	// Quiet: only the handler learns of a refusal. It is set before Subscribe.
	Quiet bool
}

// NewChannel returns a Channel that is not subscribed yet.
func NewChannel(name string, h request.ChannelHandler) *Channel {
	ch := new(Channel)
	ch.Init(name, h)
	return ch
}

// Init prepares an embedded Channel. It must not be subscribed; once Unsubscribe
// has returned it may be used for another name.
func (ch *Channel) Init(name string, h request.ChannelHandler) { ch.name, ch.handler = name, h }

// Name returns the name as the server knows it.
func (ch *Channel) Name() string { return ch.name }

// Handler returns what receives its events. It is for what takes the place of a Client, such as
// a simulation.
func (ch *Channel) Handler() request.ChannelHandler { return ch.handler }

// String returns the channel's name.
func (ch *Channel) String() string {
	if ch == nil {
		return "Channel(none)"
	}
	return fmt.Sprintf("Channel(%q)", ch.name)
}

// Format implements fmt.Formatter: String, whatever the verb.
func (ch *Channel) Format(f fmt.State, verb rune) { redact.Format(f, verb, ch.String()) }

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String.
func (ch *Channel) MarshalText() ([]byte, error) { return []byte(ch.String()), nil }

// quiet reports whether nobody but the handlers is to learn of a refusal.
func (t *topic) quiet() bool {
	for ch := t.first; ch != nil; ch = ch.next {
		if !ch.Quiet {
			return false
		}
	}
	return t.first != nil
}

// topic is a name that the server knows; all Channels of that name share it. Its wire
// state belongs to one connection and means nothing on any other. So a lost connection
// resets 100,000 topics by incrementing one number.
type topic struct {
	name  string
	first *Channel // nil: nobody wants it any more

	conn     uint32 // the connection that the fields below are about
	sent     verb   // the latest command about this topic: subscribe, unsubscribe, or none
	wrote    uint8  // how many commands, on all connections, modulo 256
	flight   uint8  // how many of its commands are unanswered, at most maxFlight
	known    bool   // the latest answer was that it is subscribed
	queued   bool   // it is in subs.mu.dirty
	alone    bool   // it was in a refused batch: goes in a command of its own
	retrying bool   // it is in subs.mu.retries
	// refusals is how often in a row the server refused, for now; maxRefusals at most.
	refusals uint8
	slot     uint16 // of the name, in a cluster
	subs     *subs  // whose it is
}

// maxFlight lets a topic change its mind once before the first answer arrives (an
// UNSUBSCRIBE under way, a SUBSCRIBE right behind it). It also bounds what a topic that
// changes its mind all the time can pile up on a slow server.
const maxFlight = 2
