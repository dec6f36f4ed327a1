// Package fifo has the queues of resp: a ring that grows, and a backlog of two priorities.
// They are not safe for concurrent use.
package fifo
