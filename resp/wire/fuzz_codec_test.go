package wire

import (
	"bytes"
	"errors"
	"strconv"
	"testing"

	"github.com/tidwall/redcon"
)

// FuzzDecode states what Decode owes to any input: no panic; the same answer
// however the stream is cut; agreement with redcon's parser wherever that one
// has an opinion; and a value that encodes back to the bytes it came from.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"", ":1\r\n", ":-2\r\n:3\r\n", "+OK\r\n", "$-1\r\n", "*-1\r\n", "-ERR x\r\n",
		"$5\r\nhello\r\n", "*3\r\n:1\r\n*2\r\n+a\r\n$1\r\nb\r\n-E\r\n",
		"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$1\r\n0\r\n",
		"$9223372036854775807\r\n", "*1\r\n$9223372036854775807\r\n", "$-20\r\n", "+OK\n",
		"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "*1048577\r\n", ":-9223372036854775808\r\n",
		">1\r\n+x\r\n", "*2\r\n$2\r\nab\r\nx\r\n", ":00000000000000000000000000000000000000001\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, n, err := Decode(b)
		if n < 0 || n > len(b) || (n > 0) != (v.Kind != 0) || (n > 0 && err != nil) {
			t.Fatalf("Decode(%q) = %s, %d, %v", b, show(v), n, err)
		}
		checkCuts(t, b, v, n, err)
		if err == nil {
			checkRedcon(t, b, v, n)
		}
		if n > 0 {
			checkRoundTrip(t, v)
		}
	})
}

// checkCuts feeds b byte by byte, to one Decoder and to Decode afresh.
func checkCuts(t *testing.T, b []byte, v Value, n int, err error) {
	b = b[:min(len(b), 4096)] // byte by byte is quadratic
	if n > len(b) {
		return
	}
	var d Decoder
	for k := 0; k <= len(b); k++ {
		v1, n1, err1 := Decode(b[:k])
		v2, n2, err2 := d.Decode(b[:k])
		if show(v1) != show(v2) || n1 != n2 || !sameError(err1, err2) {
			t.Fatalf("%q: afresh %s, %d, %v; resumed %s, %d, %v", b[:k], show(v1), n1, err1, show(v2), n2, err2)
		}
		if n1 == 0 && err1 == nil {
			continue
		}
		// The first answer is final.
		if n1 != n || show(v1) != show(v) || !sameError(err1, err) {
			t.Fatalf("%q: answer at %d bytes: %s, %d, %v; later %s, %d, %v", b, k, show(v1), n1, err1, show(v), n, err)
		}
		return
	}
}

func sameError(a, b error) bool {
	var x, y *ProtocolError
	if !errors.As(a, &x) || !errors.As(b, &y) {
		return a == nil && b == nil
	}
	return *x == *y
}

// checkRedcon compares a reply, or the wish for more bytes, with redcon's
// opinion: what we take it takes, and what we want more of it has not found
// complete. (What we refuse it may take: it has no limits.)
func checkRedcon(t *testing.T, b []byte, v Value, n int) {
	rn, r := redcon.ReadNextRESP(b)
	if rn != n {
		t.Fatalf("%q: %d bytes, redcon says %d", b, n, rn)
	}
	switch v.Kind {
	case KindInt:
		if r.Type != redcon.Integer || r.Int() != v.Int {
			t.Fatalf("%q: %d, redcon says %q", b, v.Int, r.Data)
		}
	case KindBulk, KindStatus, KindError:
		if !bytes.Equal(r.Data, v.Bytes) || r.Data == nil {
			t.Fatalf("%q: %q, redcon says %q", b, v.Bytes, r.Data)
		}
	case KindArray:
		if r.Type != redcon.Array || r.Count != v.Len() || !bytes.Equal(r.Data, v.Bytes) {
			t.Fatalf("%q: array of %d, redcon says %d", b, v.Len(), r.Count)
		}
	case KindNil:
		if r.Type == redcon.Bulk && r.Data != nil || r.Type == redcon.Array && r.Count >= 0 {
			t.Fatalf("%q: nil, redcon says %q", b, r.Data)
		}
	}
}

// checkRoundTrip encodes v again, canonically, and expects the same value.
func checkRoundTrip(t *testing.T, v Value) {
	b := encode(nil, v)
	again, n, err := Decode(b)
	if err != nil || n != len(b) || show(again) != show(v) {
		t.Fatalf("%s encodes to %q, which is %s, %d, %v", show(v), b, show(again), n, err)
	}
}

func encode(dst []byte, v Value) []byte {
	switch v.Kind {
	case KindInt:
		return redcon.AppendInt(dst, v.Int)
	case KindBulk:
		return AppendBulkBytes(dst, v.Bytes)
	case KindStatus:
		return append(append(append(dst, '+'), v.Bytes...), "\r\n"...)
	case KindError:
		return append(append(append(dst, '-'), v.Bytes...), "\r\n"...)
	case KindArray:
		dst = AppendArrayHeader(dst, v.Len())
		v.Each(func(_ int, e Value) bool {
			dst = encode(dst, e)
			return true
		})
		return dst
	default:
		return append(dst, "$-1\r\n"...)
	}
}

// FuzzAppendCommand: what is appended is what a server's parser reads.
func FuzzAppendCommand(f *testing.F) {
	f.Add("EVALSHA", "", int64(0))
	f.Add("a\r\nb", "$-1\r\n", int64(-1<<63))
	f.Fuzz(func(t *testing.T, a, b string, x int64) {
		cmd := AppendArrayHeader(nil, 3)
		cmd = AppendBulk(cmd, a)
		cmd = AppendBulkBytes(cmd, []byte(b))
		cmd = AppendBulkInt(cmd, x)
		digits := strconv.FormatInt(x, 10)
		if whole := AppendCommand(nil, a, b, digits); !bytes.Equal(cmd, whole) {
			t.Fatalf("in parts %q, whole %q", cmd, whole)
		}
		complete, args, _, rest, err := redcon.ReadNextCommand(cmd, nil)
		if !complete || err != nil || len(rest) != 0 || len(args) != 3 ||
			string(args[0]) != a || string(args[1]) != b || string(args[2]) != digits {
			t.Fatalf("%q: %q, %q, %v", cmd, args, rest, err)
		}
	})
}
