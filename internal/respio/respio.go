// Package respio cuts a byte stream into RESP2 frames for the test servers of
// this module: commands on the way in, replies on the way out. It is redcon's
// parser over a buffer that shrinks back, and it trusts its peer: it is for
// loopback only. The client's own decoder is in package resp, which these tools
// test and therefore must not import.
package respio

import (
	"errors"
	"io"

	"github.com/tidwall/redcon"
)

// maxFrame bounds one frame; a stream that is no RESP2 reaches it, because
// redcon cannot tell malformed from unfinished.
const maxFrame = 16 << 20

// ErrTooLong means that no frame ended within 16 MiB.
var ErrTooLong = errors.New("respio: frame too long or malformed; is the peer speaking RESP2?")

// Reader reads frames. It serves one goroutine.
type Reader struct {
	src  io.Reader
	buf  []byte // buf[:cap] is the storage
	args [][]byte
}

// NewReader returns a Reader of src.
func NewReader(src io.Reader) *Reader { return &Reader{src: src} }

// Command returns the next command: its bytes as they came, which stay valid,
// and its words, which are valid until the next call. Inline commands are
// understood too.
func (r *Reader) Command() (raw []byte, words [][]byte, err error) {
	for {
		complete, args, _, rest, err := redcon.ReadNextCommand(r.buf, r.args[:0])
		if err != nil {
			return nil, nil, err
		}
		if complete {
			raw = r.buf[:len(r.buf)-len(rest)]
			r.buf, r.args = rest, args
			if len(args) == 0 {
				continue // an empty line
			}
			return raw, args, nil
		}
		if err := r.fill(); err != nil {
			return nil, nil, err
		}
	}
}

// Reply returns the next reply: its bytes and redcon's view of it, which both
// stay valid.
func (r *Reader) Reply() (raw []byte, reply redcon.RESP, err error) {
	for {
		if n, reply := redcon.ReadNextRESP(r.buf); n > 0 {
			raw, r.buf = r.buf[:n], r.buf[n:]
			return raw, reply, nil
		}
		if err := r.fill(); err != nil {
			return nil, redcon.RESP{}, err
		}
	}
}

// fill reads once, behind what is left over. Storage is never reused: it is
// replaced when it is full, so frames handed out before stay what they were.
func (r *Reader) fill() error {
	const chunk = 16 << 10
	if len(r.buf) > maxFrame {
		return ErrTooLong
	}
	if cap(r.buf)-len(r.buf) < chunk/2 {
		r.buf = append(make([]byte, 0, 2*len(r.buf)+chunk), r.buf...)
	}
	n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	if err == io.EOF && len(r.buf) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
