// Package pubsub keeps channels subscribed. A [Registry] has all those of a client, each
// at the [Endpoint] of the server that serves its slot; an Endpoint outlives its
// connections, and subscribes again on each.
//
// It knows no layout: the Registry asks its owner which endpoint serves a slot.
package pubsub
