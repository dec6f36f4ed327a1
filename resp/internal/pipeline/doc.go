// Package pipeline sends commands and matches replies. A [Lane] is a stream of commands
// to one server that outlives its connections; a [Pipeline] is one of these. It decides
// what is known of a command when its connection dies: not sent, or outcome unknown.
//
// It knows no slots, no nodes and no layout: what a server refuses because the slot is
// elsewhere, it hands to [Config.Redirect].
package pipeline
