package redistest

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are picked below the ranges from which Linux (32768 up) and macOS (49152
// up) choose the local port of an outgoing connection. Inside them, a client that
// dials a killed server again and again is in the end given the server's own port,
// connects to itself, and the restarted server finds its port in use. A cluster's
// node has a bus, busOffset above.
const (
	portFirst = 10000
	portEnd   = 32000
	busOffset = 10000
)

// reservation keeps ports for one Process, also while its server is dead, from the
// servers that other tests start, in this test process and in others. It is a UDP
// socket of the same number: no server wants those, only one process can have it, and
// it goes with the process.
type reservation []net.PacketConn

// reserve picks a port that is free, and with bus the one of its bus, too. Not ok:
// something is in use; try again.
func reserve(bus bool) (port int, r reservation, ok bool) {
	end := portEnd
	if bus {
		end -= busOffset
	}
	port = portFirst + rand.IntN(end-portFirst)
	numbers := []int{port}
	if bus {
		numbers = append(numbers, port+busOffset)
	}
	for _, n := range numbers {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(n))
		udp, err := net.ListenPacket("udp", addr)
		if err != nil {
			r.release()
			return 0, nil, false
		}
		r = append(r, udp)
		tcp, err := net.Listen("tcp", addr) // another process may not reserve
		if err != nil {
			r.release()
			return 0, nil, false
		}
		tcp.Close()
	}
	return port, r, true
}

func (r reservation) release() {
	for _, c := range r {
		c.Close()
	}
}
