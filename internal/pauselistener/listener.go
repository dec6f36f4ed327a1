// Package pauselistener lets the servers of tests and demos go down and come back on the same port.
package pauselistener

import (
	"net"
	"time"
)

// Listener is a listener that can pause without losing its port. To close it and
// listen again would give the port away in between: to another server that asks for
// any, or to a client that dials it and is given the same port as its own, which
// connects it to itself. (A process that asks for the number still gets it.)
type Listener struct {
	net.Listener
	// Ended is closed by the accept loop when it ends. After Pause it is to be waited
	// for: a loop that comes late would take the first connection after Resume.
	Ended chan struct{}
}

// Pause refuses connections from now on, those not yet accepted included.
func (d *Listener) Pause() {
	if !stopListening(d.Listener) {
		d.Close()
	}
}

// Free listens on a free port: addr has port 0. The kernel keeps a port for a socket
// that does not listen only if it was bound to it by number.
func Free(network, addr string) (d *Listener, err error) {
	for range 10 {
		free, err := net.Listen(network, addr)
		if err != nil {
			return nil, err
		}
		number := free.Addr().String()
		free.Close()
		if d, err = Listen(network, number); err == nil { // else somebody took it in between
			return d, nil
		}
	}
	return nil, err
}

// Listen listens on addr.
func Listen(network, addr string) (*Listener, error) {
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	return &Listener{l, make(chan struct{})}, nil
}

// Resume returns a Listener on the same address that accepts again.
//
// Where the port was given up it can be in use for a moment longer: while another
// goroutine starts a process, the child holds a copy of every descriptor from fork to
// exec.
func (d *Listener) Resume() (*Listener, error) {
	if listenAgain(d.Listener) {
		return &Listener{d.Listener, make(chan struct{})}, nil
	}
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		again, err := Listen(d.Addr().Network(), d.Addr().String())
		if err == nil || time.Now().After(deadline) {
			return again, err
		}
	}
}
