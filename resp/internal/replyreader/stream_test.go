package replyreader

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/pawl-lock/pawl/resp/wire"
)

func TestStream_RepliesSplitAnywhere_AreRead(t *testing.T) {
	t.Parallel()
	const sent = "+OK\r\n*4\r\n$2\r\nip\r\n$1\r\nh\r\n$4\r\nport\r\n:1\r\n-ERR no\r\n+more"
	for size := 1; size <= len(sent); size++ {
		here, there := net.Pipe()
		go func() {
			for rest := sent; rest != ""; {
				n := min(size, len(rest))
				there.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			there.Close()
		}()
		s := NewStream(here, 0)
		if v, err := s.Next(); err != nil || string(v.Bytes) != "OK" {
			t.Fatalf("in pieces of %d: %q, %v", size, v.Bytes, err)
		}
		v, err := s.Next()
		if err != nil || len(Elements(v)) != 4 || Field(v, "ip") != "h" || Field(v, "h") != "" || Field(v, "name") != "" {
			t.Fatalf("in pieces of %d: %v, %v", size, Elements(v), err)
		}
		if v, err := s.Next(); err != nil || v.Kind != wire.KindError {
			t.Fatalf("in pieces of %d: %v, %v", size, v, err)
		}
		if _, err := s.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("in pieces of %d: %v", size, err)
		}
		if n := s.Unread(); n != len("+more") {
			t.Errorf("in pieces of %d: %d bytes are unread", size, n)
		}
		here.Close()
	}
}
