//go:build pawl_nognet || !(linux || darwin || freebsd)

package socket

import (
	"net"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

// reactor stands in for the gnet event loops where there are none; it takes no
// connection.
type reactor struct{}

func newReactor(int, *tracker) (*reactor, error) { return nil, nil }

func (*reactor) takes(net.Conn) bool                     { return false }
func (*reactor) adopt(net.Conn, Sink) (Transport, error) { return nil, request.ErrClosed }
func (*reactor) stop() error                             { return nil }
