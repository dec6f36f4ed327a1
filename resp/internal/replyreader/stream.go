package replyreader

import (
	"net"

	"github.com/pawl-lock/pawl/resp/wire"
)

// Stream reads the replies of one connection.
type Stream struct {
	Conn    net.Conn
	buf     []byte // read and not yet decoded
	decoder wire.Decoder
}

// NewStream returns a Stream that has room for size bytes; it makes more as they come.
func NewStream(conn net.Conn, size int) Stream {
	return Stream{Conn: conn, buf: make([]byte, 0, size)}
}

// Next returns the next reply. It borrows the stream's buffer until the next call.
func (s *Stream) Next() (wire.Value, error) {
	for {
		v, n, err := s.decoder.Decode(s.buf)
		if err != nil {
			return wire.Value{}, err
		}
		if n > 0 {
			s.buf = s.buf[n:]
			return v, nil
		}
		if len(s.buf) == cap(s.buf) {
			s.buf = append(s.buf, 0)[:len(s.buf)]
		}
		read, err := s.Conn.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+read]
		if err != nil && read == 0 {
			return wire.Value{}, err
		}
	}
}

// Unread returns how many bytes have been read beyond the latest reply.
func (s *Stream) Unread() int { return len(s.buf) }
