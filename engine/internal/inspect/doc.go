// Package inspect finds out who holds a lock, who waits for it, and since when.
//
// The server knows the owners of a lock. Everything else is known only to the processes, and these are
// asked: each engine that uses locks listens to one channel, Channel, for questions. The answers come
// over a channel of the asker's own.
//
//	asker                          server             an engine
//	SUBSCRIBE reply channel  --->
//	PUBLISH Channel question --->  ------------->     a Listener takes it
//	                               <-------------     PUBLISH reply channel answer
//	an Asker collects answers until all have come, or its time is over
//
// A question costs an engine one look at its names and one message. Nobody asks: no command.
//
// Answers are claims. Whoever may publish to the channel may lie. So a question and an answer are bounded
// in size and in number, what is read is clamped, and nothing is ever done because of an answer.
//
// The files: message.go has the form of questions and answers, listener.go and asker.go their ways,
// keys.go what the server says of a key, scan.go finds the locks, clients.go the list of its connections, deadlocks.go
// looks for deadlocks, which are cycles of waits (cycles.go). Only the Listener and the asker have state.
package inspect
