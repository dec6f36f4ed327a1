package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/tidwall/redcon"
)

// Limits of one reply. They are far above what a lock client asks for (the
// largest answer is the slot table of a big cluster) and exist so that a broken
// or hostile server costs bounded memory and stack.
const (
	maxBulk  = 8 << 20  // bytes of one bulk string
	maxArray = 1 << 20  // elements of one array
	maxDepth = 8        // arrays inside arrays
	maxLine  = 64 << 10 // bytes of a status or error line, CRLF included
	maxFrame = 16 << 20 // bytes of one whole reply

	// maxNumber bounds an integer or a length, type byte included, CRLF not: an
	// int64 needs 21, the rest allows for leading zeros.
	maxNumber = 32
)

// ErrProtocol means that the server sent bytes that are not RESP2, or a reply
// that nobody asked for; the connection was closed.
var ErrProtocol = errors.New("resp: protocol error")

// ProtocolError says that the server's bytes are no reply of RESP2, or one
// beyond the limits. The connection must be closed: where the next reply begins
// is anybody's guess. It matches ErrProtocol.
type ProtocolError struct {
	// Reason says what is wrong. It quotes at most one byte of the input.
	Reason string
	// Offset is where, in bytes from the start of the reply.
	Offset int
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("%v: %s at byte %d of a reply; check that the address is a Redis server that speaks RESP2",
		ErrProtocol, e.Reason, e.Offset)
}

// Unwrap returns ErrProtocol.
func (e *ProtocolError) Unwrap() error { return ErrProtocol }

// Decode reads the reply at the start of b. It has three answers:
//
//   - n > 0: v is the reply, n bytes long; v borrows from b.
//   - n == 0 and err == nil: b ends before the reply does; read more.
//   - err != nil: b is malformed (always a *ProtocolError); close the connection.
//
// More bytes never change a reply or an error, so it does not matter how the
// network cuts the stream. It allocates nothing unless it fails.
func Decode(b []byte) (v Value, n int, err error) {
	var d Decoder
	return d.Decode(b)
}

// Decoder is Decode for a stream: it remembers how much of an unfinished reply
// has been checked, so that a long array which comes in many reads is scanned
// once and not once per read. The zero Decoder is ready; it serves one
// connection and one goroutine. A caller never has to keep more than 16 MiB and
// one line of an unfinished reply; beyond that Decode fails.
type Decoder struct {
	off   int             // bytes of the unfinished reply that are checked: whole headers and elements
	depth int             // open arrays
	left  [maxDepth]int32 // elements still to come, per open array, all > 0
}

// Decode is as the function Decode. After "read more", the next call must pass
// the same bytes again, followed by new ones; the slice itself may have moved.
// After an error the Decoder is spent.
func (d *Decoder) Decode(b []byte) (v Value, n int, err error) {
	if d.off == 0 {
		if v, n = decodeShort(b); n > 0 {
			return v, n, nil
		}
	}
	return d.decodeLong(b)
}

func (d *Decoder) decodeLong(b []byte) (v Value, n int, err error) {
	if n, err = d.scan(b); n == 0 || err != nil {
		return Value{}, 0, err
	}
	if b[0] == '*' {
		return array(b[:n]), n, nil
	}
	return parse(b[:n])
}

// decodeShort is the fast path for what a lock server answers nearly always: a
// number, nil, OK. n == 0: take the slow path, which decides.
func decodeShort(b []byte) (v Value, n int) {
	if len(b) < 4 {
		return Value{}, 0
	}
	switch {
	case b[0] == ':':
		if d := b[1] - '0'; d <= 9 && b[2] == '\r' && b[3] == '\n' {
			return Value{Kind: KindInt, Int: int64(d)}, 4
		}
		if x, n, reason := number(b); n > 0 && reason == "" {
			return Value{Kind: KindInt, Int: x}, n
		}
	case b[0] == '$' && len(b) >= 5 && string(b[:5]) == "$-1\r\n":
		return Value{Kind: KindNil}, 5
	case b[0] == '+' && len(b) >= 5 && string(b[:5]) == "+OK\r\n":
		return Value{Kind: KindStatus, Bytes: b[1:3:3]}, 5
	}
	return Value{}, 0
}

// scan checks the reply at the start of b without building anything and returns
// its length, or 0 if it is unfinished. It walks arrays with its own stack of
// counters, so depth costs no goroutine stack and the walk can pause anywhere.
func (d *Decoder) scan(b []byte) (n int, err error) {
	for {
		end, elements, reason := element(b[d.off:])
		switch {
		case reason != "":
			return 0, &ProtocolError{Reason: reason, Offset: d.off}
		case d.off+end > maxFrame:
			return 0, &ProtocolError{Reason: "reply is too long", Offset: d.off}
		case end == 0 || d.off+end > len(b):
			return 0, nil
		}
		if elements > 0 {
			if d.depth == maxDepth {
				return 0, &ProtocolError{Reason: "arrays are nested too deep", Offset: d.off}
			}
			d.left[d.depth] = elements
			d.depth++
			d.off += end
			continue
		}
		d.off += end
		// The element is complete, and with it every array whose last it was.
		for d.depth > 0 {
			if d.left[d.depth-1]--; d.left[d.depth-1] > 0 {
				break
			}
			d.depth--
		}
		if d.depth == 0 {
			n = d.off
			*d = Decoder{}
			return n, nil
		}
	}
}

// element looks at the element at the start of b, for an array only at its
// header. end is its length, which may lie beyond b, or 0 if not even that is
// known yet; elements is how many follow the header of an array. A reason means
// malformed; it depends only on bytes that are there, so it stays when more come.
func element(b []byte) (end int, elements int32, reason string) {
	if len(b) == 0 {
		return 0, 0, ""
	}
	switch b[0] {
	case ':':
		_, end, reason = number(b)
		return end, 0, reason
	case '+', '-':
		end, reason = line(b)
		return end, 0, reason
	case '$':
		size, end, reason := number(b)
		switch {
		case end == 0 || reason != "" || size == -1:
			return end, 0, reason
		case size < 0 || size > maxBulk:
			return 0, 0, "length of a bulk string is out of range"
		}
		n := end + int(size) + 2
		if len(b) >= n && string(b[n-2:n]) != "\r\n" {
			return 0, 0, "bulk string does not end with CRLF"
		}
		return n, 0, ""
	case '*':
		count, end, reason := number(b)
		switch {
		case end == 0 || reason != "" || count == -1:
			return end, 0, reason
		case count < 0 || count > maxArray:
			return 0, 0, "length of an array is out of range"
		}
		return end, int32(count), ""
	default:
		return 0, 0, fmt.Sprintf("unknown type byte %q", b[0])
	}
}

// line returns the length of the status or error line at the start of b,
// 0 if it is unfinished.
func line(b []byte) (n int, reason string) {
	n = 1 + bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	switch {
	case n == 0 && len(b) >= maxLine:
		return 0, "line is too long"
	case n > 0 && b[n-2] != '\r': // n >= 2: b[0] is the type byte
		return 0, "line does not end with CRLF"
	}
	return n, ""
}

// number reads a type byte, a decimal int64 and CRLF. n is their length, 0 if b
// ends before.
func number(b []byte) (x int64, n int, reason string) {
	i, digits := 1, 0
	negative := len(b) > 1 && b[1] == '-'
	if negative {
		i = 2
	}
	// Counted below zero, where the range is one larger.
	for ; i < len(b) && i < maxNumber; i++ {
		c := b[i] - '0'
		if c > 9 {
			break
		}
		if x < math.MinInt64/10 || x*10 < math.MinInt64+int64(c) {
			return 0, 0, "number is out of range"
		}
		x = x*10 - int64(c)
		digits++
	}
	switch {
	case i >= maxNumber:
		return 0, 0, "number is too long"
	case i == len(b):
		return 0, 0, ""
	case digits == 0 || b[i] != '\r':
		return 0, 0, "number is malformed"
	case i+1 == len(b):
		return 0, 0, ""
	case b[i+1] != '\n':
		return 0, 0, "number does not end with CRLF"
	}
	if !negative {
		if x == math.MinInt64 {
			return 0, 0, "number is out of range"
		}
		x = -x
	}
	return x, i + 2, ""
}

// array builds the value of a checked array; its elements stay encoded.
func array(b []byte) Value {
	count, header, _ := number(b)
	if count < 0 {
		return Value{Kind: KindNil}
	}
	return Value{Kind: KindArray, len: int32(count), Bytes: b[header:len(b):len(b)]}
}

// parse builds the value at the start of b with redcon's parser. It is
// given nothing but whole, checked replies: it cannot tell unfinished from
// malformed, has no limits, and panics on a length near the top of int64. The
// recover is a second fence, for inputs of that kind that nobody has found yet.
func parse(b []byte) (v Value, n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, n, err = Value{}, 0, &ProtocolError{Reason: "parser failed"}
		}
	}()
	n, r := redcon.ReadNextRESP(b)
	if n == 0 {
		return Value{}, 0, &ProtocolError{Reason: "parser disagrees"}
	}
	switch r.Type {
	case redcon.Integer:
		x, _, _ := number(b)
		return Value{Kind: KindInt, Int: x}, n, nil
	case redcon.String:
		v.Kind = KindStatus
	case redcon.Error:
		v.Kind = KindError
	case redcon.Bulk:
		if r.Data == nil {
			return Value{Kind: KindNil}, n, nil
		}
		v.Kind = KindBulk
	case redcon.Array:
		return array(b[:n]), n, nil
	}
	v.Bytes = r.Data[:len(r.Data):len(r.Data)]
	return v, n, nil
}
