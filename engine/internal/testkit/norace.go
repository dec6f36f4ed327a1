//go:build !race

package testkit

// Race says that the race detector is on: then a long test may do a part of its work.
const Race = false
