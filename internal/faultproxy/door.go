package faultproxy

import "net"

// door is a listener that can be shut without losing its port. To close it and
// listen again would give the port away in between: to another test's server, or
// to a client that dials it and is given the same port as its own, which connects
// it to itself.
type door struct {
	net.Listener
	done chan struct{} // closed when the accept loop has ended
}

// close refuses connections from now on, those not yet accepted included.
func (d *door) close() {
	if !shut(d.Listener) {
		d.Close()
	}
}

// newDoor listens on a free port. The kernel keeps a port for a socket that does not
// listen only if it was bound to it by number.
func newDoor(network, addr string) (d *door, err error) {
	for range 10 {
		free, err := net.Listen(network, addr)
		if err != nil {
			return nil, err
		}
		number := free.Addr().String()
		free.Close()
		if d, err = listen(network, number); err == nil { // else somebody took it in between
			return d, nil
		}
	}
	return nil, err
}

func listen(network, addr string) (*door, error) {
	l, err := net.Listen(network, addr)
	return &door{l, make(chan struct{})}, err
}

// reopen returns a door on the same address that accepts again.
func (d *door) reopen() (*door, error) {
	if listenAgain(d.Listener) {
		return &door{d.Listener, make(chan struct{})}, nil
	}
	return listen(d.Addr().Network(), d.Addr().String())
}
