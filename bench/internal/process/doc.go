// Package process measures this process for a benchmark: time, CPU, allocations, memory
// and goroutines. It knows nothing of locks and servers.
//
// Reading the allocations stops the world for a moment, so it is done before and after
// what is measured, never meanwhile.
package process
