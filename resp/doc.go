// Package resp is a RESP2 client for a few pipelined connections. It knows
// nothing of locks: it encodes what a Request appends, matches replies to
// requests in order, and says of every failure whether the command was not
// sent, refused, or is of unknown outcome.
//
// A Client has, per node, a number of lanes (user commands, picked by hash so
// that commands of one key keep their order), one renewal lane that never
// queues behind them, and one pub/sub connection; for requests that replicas shall
// acknowledge, two durable lanes, connected when they are first used. Routes say which node serves a
// name; an explorer keeps them true.
//
// # Layers
//
// From the user down; each knows only those below it.
//
//	Client     owns the rest; one ticker for ages and pings       client, housekeeping, config, stats, do
//	explorer   finds the layout, has the Client follow it         explorer, follow, topology, topology_*, scout
//	routes     which node serves a name, without a lock           routes, slot, redirect
//	node       the connections to one server                      node
//	link       keeps one endpoint connected: dial, greet, retry   link, dial, handshake
//	lane       outlives its connections                           lane, request, errors, failure
//	durable    requests in groups, each with a WAIT                durable, acks
//	  pipeline one connection of a lane: FIFO, writes, replies    pipeline, pipeline_*, ring
//	pubsub     outlives its connections                           sub_conn, channel
//	  subs     what is wanted, told, confirmed; no socket         sub, sub_channel, sub_reply, sub_wire
//	transport  moves the bytes of one connection                  transport, transport_gnet, transport_std
//	loops      own the transports                                 loops, loops_gnet, loops_nognet
//	codec      bytes to values and back; no socket, no time       codec, value, append
//
// A connection is dialled and greeted as a plain net.Conn, by a goroutine of its
// link; then loops.adopt makes it a transport, whose events go to a sink, a
// pipeline or a subConn, until onClose. That is the end of the sink, too: the next
// connection gets a fresh one, so no late event meets new state.
//
// # Goroutines
//
//   - the event loops of gnet, one or a few for all connections; or, with the std
//     transport, a reader and a writer per connection. They run sinks: replies,
//     Complete, ChannelHandler, OnState(down). Nothing on them blocks;
//   - one ticker per Client;
//   - unless there is only one server: the explorer, which dials, and the topology's
//     watch. OnRoutes runs there;
//   - one connecting goroutine per link, only while it has no connection.
//     OnState(up), the dialer and Credentials run there;
//   - those of the callers. Submit may write the socket (never blocking) and, if
//     the lane is down or full, completes the request before it returns.
//
// Close waits for all but the callers.
//
// # Locks
//
// In the order in which they may be taken; right of an arrow, under the left:
//
//	lane.mu → pipeline.mu → (Request.AppendCommand)
//	gnetTransport.mu → (write, wake and close of gnet)
//	durable.mu,
//	link.mu, Client.mu, node.mu, explorer.mu, subs.mu, tracker.mu: none under them;
//	subs.mu is one for all nodes of a Client
//	reactor.enrolling → tracker.mu, gnetTransport.mu; it is held while a loop answers
//
// No lock is held over a call of Complete, a ChannelHandler or OnState, nor over a
// call of a transport. Times come from Config.Clock; time.NewTimer and NewTicker
// wake goroutines and decide nothing.
//
// What each concurrent part promises stands at the top of its file, as numbered
// invariants: lane, pipeline, subs, link, loops and both transports.
package resp
