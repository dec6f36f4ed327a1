// Package pubsub keeps channels subscribed. A [Registry] has all those of a client, each
// at the [Endpoint] of the server that serves its slot; an Endpoint outlives its
// connections, and subscribes again on each.
//
// It knows no layout: the Registry asks its owner which endpoint serves a slot.
//
// # Not obvious
//
//   - SUNSUBSCRIBE may seem to have two answers: the unasked end of the subscription, and an
//     error, which names no slot perhaps. So a PING goes behind it (fence.go).
//   - The number of confirmations that the server sends along with SUBSCRIBE does not help: it
//     counts all channels and says nothing of one.
package pubsub
