package request

// ChannelEvent is what happens to a subscribed channel.
type ChannelEvent uint8

const (
	// Subscribed: the server confirmed the subscription (the first one, or again
	// after a reconnect). Messages published before it may have been missed.
	Subscribed ChannelEvent = iota
	// Message: a message arrived; payload holds it.
	Message
	// Disconnected: the connection was lost; messages are missed from now until
	// the next Subscribed. The client subscribes again by itself.
	Disconnected
	// Refused: the server denied this channel (ACL); err says so. The channel is
	// no longer desired; nothing more follows.
	Refused
)

// ChannelHandler receives the events of one Channel, in order, on the event loop of the
// pub/sub connection, without a lock of this package. It must not block. payload is
// valid only until it returns.
type ChannelHandler interface {
	ChannelEvent(ev ChannelEvent, payload []byte, err error)
}
