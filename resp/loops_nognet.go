//go:build pawl_nognet || !(linux || darwin || freebsd)

package resp

import "net"

// reactor stands in for the gnet event loops where there are none; it takes no
// connection.
type reactor struct{}

func newReactor(int, *tracker) (*reactor, error) { return nil, nil }

func (*reactor) takes(net.Conn) bool                     { return false }
func (*reactor) adopt(net.Conn, sink) (transport, error) { return nil, ErrClosed }
func (*reactor) stop() error                             { return nil }
