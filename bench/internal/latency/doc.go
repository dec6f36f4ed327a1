// Package latency keeps durations as histograms, so that percentiles over millions of them
// take little memory. It reads no clock: its caller says what took how long.
package latency
