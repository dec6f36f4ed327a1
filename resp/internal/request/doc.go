// Package request is one command and what becomes of it: the [Request] that a caller
// submits, the [Reply] that it is completed with, and the classes of failure between
// them. It is the vocabulary of every layer of resp, and sends nothing itself.
//
// # Refusals
//
// What an error reply means stands in one table, [Refusals]. Nothing else compares codes or texts
// (internal/lint). To add a text: a row, and a line in refusal_test.go beside it. The readers of the
// table, and what they do:
//
//	handshake         unauthorized: these credentials are tried less and less often; what a human
//	                  must change is reported at the start
//	redirects         deployment or node: a search for the layout begins; connection, or a node that
//	                  refuses for long: its connections are replaced
//	search            a node that is not ready is neither a primary nor gone
//	sharded channels  everything but "not now" means that the deployment has none
//	pub/sub           forbidden: that channel is refused; connection: it is closed; else SUBSCRIBE is
//	                  repeated less and less often, with one warning for each connection
//	pipeline          a refusal that names EVALSHA: scripts are sent whole on this connection
//	scripts           "not now": the same command again, soon; perhaps executed: an acquire is
//	                  compensated first
//	renewals          "not now": the batch again; else it is split, and a lock that is refused alone is
//	                  renewed every sixth of the lease
//
// "Not now" ([Refusal.NotNow]) is what passes by itself, or what only this connection or node refuses. Package
// wire gives every wording of "a key of this script is elsewhere" one message, which has one row.
package request
