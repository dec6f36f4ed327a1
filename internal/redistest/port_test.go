package redistest

import (
	"net"
	"strconv"
	"testing"
)

// Also while the server is dead: else another test's server could come up in its
// place, and be taken for it.
func TestPorts_Reserved_UntilTheEnd(t *testing.T) {
	t.Parallel()
	s, c := Start(t), StartCluster(t, false)
	node := c.Nodes()[0]
	s.Kill()
	node.Kill()
	for _, port := range []int{s.port, node.port, node.port + busOffset} {
		if l, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			t.Errorf("port %d can be reserved again", port)
		}
	}
	s.Restart()
}
