// Package resp is a RESP2 client for a few pipelined connections. It knows
// nothing of locks: it encodes what a Request appends, matches replies to
// requests in order, and says of every failure whether the command was not
// sent, refused, or is of unknown outcome.
//
// A Client owns, per node, a number of lanes (user commands, picked by hash so
// that commands of one key keep their order), one renewal lane that never
// queues behind them, and one pub/sub connection.
package resp
