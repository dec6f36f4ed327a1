// Package exit says how a command of pawl ends: its exit code, the line that is printed,
// the signal that the process dies of. It also waits for the signals that ask for the end.
//
// It neither prints nor ends the process: package main does that, in one place.
package exit
