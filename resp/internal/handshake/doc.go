// Package handshake makes the connections to servers: it dials, puts TLS on top, and does the
// handshake, within one deadline. A connection that it returns is ready for its [Purpose],
// and no byte of it is left unread.
//
//	Config       how a server is reached, one attempt at it          connect
//	             TLS on top, and who does not take part in it        tls
//	steps        what is said for which purpose, as one write        steps
//	handshake    sends the steps and judges the answers              handshake
//	hello        what a server is, and whether it is too old         hello
//	AuthBackoff  servers that refuse the credentials are tried ever
//	             more seldom, by all connections together            auth_backoff
//	Lasting      whether an error takes a human                      permanent
//
// It tries once. When to try again, and what the connection carries then, is its caller's.
// It blocks and runs code of the user (the dialer, Credentials), so never on an event loop.
// No password is in what it returns or logs.
package handshake
