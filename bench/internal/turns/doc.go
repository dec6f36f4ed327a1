// Package turns says how a lock went from process to process. Each process notes its own turns in a
// Log; what they say together is a pure function of all of them. It knows no lock and starts no
// process.
package turns
