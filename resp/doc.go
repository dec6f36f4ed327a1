// Package resp is a RESP2 client for a few pipelined connections. It knows
// nothing about locks. It encodes what a Request appends, matches replies to
// requests in order, and classifies every failure: the command was not sent, was
// refused, or has an unknown outcome.
//
// For each node, a Client has
//
//   - a number of lanes for user commands, picked by hash so that the commands of
//     one key keep their order,
//   - one renewal lane that never queues behind them,
//   - one pub/sub connection,
//   - two durable lanes for requests that replicas must acknowledge, connected at
//     first use, or at once with Config.Durable.
//
// Routes say which node serves a name. An explorer keeps them up to date.
//
// # Layers
//
// From the top down. Each layer knows only those below it. What has a package of its own
// can be read and tested alone; internal/lint holds the arrows.
//
//	Client       owns the rest; one ticker for ages and pings       client, housekeeping, config, stats, do
//	layout       makes the routes those of a layout                 layout, deployment, replicas
//	routes       which node serves a name, without a lock           routes, redirect
//	node         the connections to one server                      node
//	link         keeps one endpoint connected, and tries again      link, dial
//	names        whether a server's name leads elsewhere by now     names
//	suspicion    whether the server behind an address was replaced  internal/suspicion
//	handshake    one attempt: dial, TLS, handshake; refusals        internal/handshake
//	replication  requests in groups, each with a WAIT               internal/replication
//	pipeline     a lane, which outlives its connections, and
//	             one connection: FIFO, writes, replies              internal/pipeline
//	pubsub       an endpoint that outlives its connections, and
//	             channels wanted, sent, confirmed                   internal/pubsub
//	topology     an explorer, which finds the layout, on
//	             connections of its own                             internal/topology
//	socket       moves the bytes of one connection; event loops     internal/socket
//	fifo         queues                                             internal/fifo
//	request      requests, replies, classes of failure, the table
//	             of refusals                                        internal/request
//	replyreader  replies of a connection that nobody else reads     internal/replyreader
//	slot         the slot of a key                                  internal/slot
//	wire         bytes to values and back; no socket, no time       wire
//
// A goroutine of the link dials a connection and does the handshake on a plain net.Conn
// (package handshake). Then Loops.Adopt makes it a transport, whose events go to a sink (a
// pipeline or a connection of pubsub) until OnClose. The sink ends with its connection and the
// next connection gets a new one, so a late event never meets new state.
//
// # Goroutines
//
//   - The event loops of gnet, one or a few for all connections. With the std
//     transport, a reader and a writer per connection instead. They run sinks: replies,
//     Complete, ChannelHandler, OnState(down). Nothing on them blocks.
//   - One ticker per Client, and one goroutine that looks the name of a single server up.
//   - Unless there is only one server: the explorer and the topology's watch, which run
//     OnRoutes. While the explorer searches, also one for each server that it asks and
//     one for each that it connects to. AddrMap runs on the explorer and on those that ask.
//   - At most one asking goroutine per node, while a new connection is asked whether it is
//     served where the others are not. It runs the dialer and Credentials.
//   - One connecting goroutine per link, only while it has no connection. It runs
//     OnState(up), the dialer and Credentials.
//   - The callers' goroutines. Submit may write the socket (never blocking). If the lane
//     is down, or is full and the request will not wait, it completes the request before it
//     returns.
//
// Close waits for all but the callers.
//
// # Locks
//
// The lock on the right of an arrow may be taken while the left one is held:
//
//	pipeline.Lane.mu → Pipeline.mu → (Request.AppendCommand, Priority)
//	gnetTransport.mu → (write, wake and close of gnet)
//	reactor.enrolling → tracker.mu, gnetTransport.mu; it is held while a loop answers
//	retired.mu → pipeline.Lane.mu, link.mu, subs.mu
//	sentinelSearch.asking → probes.mu
//	all others: none under them. subs.mu is one for all nodes of a Client: Registry.lock
//
// No lock is held while Complete, a ChannelHandler, OnState or a transport is called.
// Times come from Config.Clock; time.NewTimer and NewTicker only wake goroutines.
//
// Each concurrent part (lane, durable lane, pipeline, registry, subs, link, loops, both
// transports, probes) lists its promises as numbered invariants at the top of its file.
package resp
