package resp

import (
	"errors"
	"log/slog"

	"github.com/pawl-lock/pawl/resp/internal/pubsub"
	"github.com/pawl-lock/pawl/resp/internal/request"
)

// Channel is one subscription: a name and its handler. It may be embedded; it must not
// be copied after Subscribe. Init(name, handler) prepares an embedded one, which must not be
// subscribed; once Unsubscribe has returned it may be used for another name. Name returns
// the name as the server knows it.
type Channel = pubsub.Channel

// NewChannel returns a Channel that is not subscribed yet.
func NewChannel(name string, h ChannelHandler) *Channel { return pubsub.NewChannel(name, h) }

// ChannelEvent is what happens to a subscribed channel.
type ChannelEvent = request.ChannelEvent

// ChannelHandler receives the events of one Channel, in order, on the event loop of the
// pub/sub connection, without a lock of this package: ChannelEvent(event, payload, err).
// It must not block. The payload is valid only until it returns.
type ChannelHandler = request.ChannelHandler

const (
	// Subscribed: the server confirmed the subscription (the first one, or again
	// after a reconnect). Messages published before it may have been missed.
	Subscribed = request.Subscribed
	// Message: a message arrived; the payload holds it.
	Message = request.Message
	// Disconnected: the connection was lost; messages are missed from now until
	// the next Subscribed. The client subscribes again by itself.
	Disconnected = request.Disconnected
	// Refused: the server denied this channel (ACL); the error says so. The channel is
	// no longer desired; nothing more follows.
	Refused = request.Refused
)

// refusesChannels says once a connection that its server refuses channels: locks work without them, so nobody else
// would. It runs on the housekeeping goroutine.
func (l *link) refusesChannels(err error) {
	text := "resp: the server refuses channels, so who waits for a lock asks now and then, and hears of no release"
	var e *ServerError
	if errors.As(err, &e) && request.RefusalOf(e).Forbidden() {
		text = "resp: the user may not listen to a channel, so who has to wait for a lock fails; see the ACL rules in docs/operations.md"
	}
	l.log(slog.LevelWarn, text, err)
}
