// Package target is which servers the command line and the environment name, how to trust
// them, and the connection to them. What it says of a server that cannot be used tells the
// reader what to do.
//
// It takes no lock. No password comes from the command line, and none is printed.
package target
