package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// show renders v with everything in it, for comparing.
func show(v Value) string {
	switch v.Kind {
	case KindInt:
		return fmt.Sprintf("int %d", v.Int)
	case KindBulk:
		return fmt.Sprintf("bulk %q", v.Bytes)
	case KindStatus:
		return fmt.Sprintf("status %q", v.Bytes)
	case KindError:
		return fmt.Sprintf("error %q", v.Bytes)
	case KindNil:
		return "nil"
	case KindArray:
		parts := make([]string, 0, v.Len())
		v.Each(func(i int, e Value) bool {
			parts = append(parts, show(e))
			return i == len(parts)-1
		})
		if len(parts) != v.Len() {
			return fmt.Sprintf("array of %d shows %d elements", v.Len(), len(parts))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return "no value"
}

func TestDecode_EveryKind_IsRead(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		":0\r\n":                    "int 0",
		":7\r\n":                    "int 7",
		":-2\r\n":                   "int -2",
		":29990\r\n":                "int 29990",
		":007\r\n":                  "int 7",
		":-0\r\n":                   "int 0",
		":9223372036854775807\r\n":  "int 9223372036854775807",
		":-9223372036854775808\r\n": "int -9223372036854775808",
		"+OK\r\n":                   `status "OK"`,
		"+\r\n":                     `status ""`,
		"+QUEUED\r\n":               `status "QUEUED"`,
		"+a\rb\r\n":                 `status "a\rb"`,
		"-ERR no\r\n":               `error "ERR no"`,
		"$-1\r\n":                   "nil",
		"*-1\r\n":                   "nil",
		"$0\r\n\r\n":                `bulk ""`,
		"$5\r\nhello\r\n":           `bulk "hello"`,
		"$4\r\n\r\n\r\n\r\n":        `bulk "\r\n\r\n"`,
		"*0\r\n":                    "[]",
		"*1\r\n*0\r\n":              "[[]]",
		"*2\r\n*-1\r\n$-1\r\n":      "[nil, nil]",
		"*3\r\n:1\r\n*2\r\n+a\r\n$1\r\nb\r\n-E\r\n":      `[int 1, [status "a", bulk "b"], error "E"]`,
		"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$1\r\n0\r\n": `[bulk "message", bulk "ch", bulk "0"]`,
		strings.Repeat("*1\r\n", maxDepth) + ":1\r\n":    strings.Repeat("[", maxDepth) + "int 1" + strings.Repeat("]", maxDepth),
	} {
		// What follows a reply must neither be read nor matter.
		for _, rest := range []string{"", "\n", "-garbage", ":1\r\n"} {
			v, n, err := Decode([]byte(in + rest))
			if err != nil || n != len(in) || show(v) != want {
				t.Errorf("Decode(%q + %q) = %s, %d, %v; want %s, %d", in, rest, show(v), n, err, want, len(in))
			}
		}
		for k := range in {
			if v, n, err := Decode([]byte(in[:k])); v.Kind != 0 || n != 0 || err != nil {
				t.Errorf("Decode(%q) = %s, %d, %v; want more bytes", in[:k], show(v), n, err)
			}
		}
	}
}

func TestDecode_NotRESP2_IsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in     string
		reason string
		offset int
	}{
		{"HTTP/1.1 400 Bad Request\r\n", "unknown type byte 'H'", 0},
		{"\r\n", `unknown type byte '\r'`, 0},
		{">3\r\n", "unknown type byte '>'", 0}, // RESP3 push
		{"_\r\n", "unknown type byte '_'", 0},
		{"*1\r\n%1\r\n", "unknown type byte '%'", 4},
		{"+OK\n", "line does not end with CRLF", 0},
		{"-\n", "line does not end with CRLF", 0},
		{":\r\n", "number is malformed", 0},
		{":-\r\n", "number is malformed", 0},
		{":+5\r\n", "number is malformed", 0},
		{":1.5\r\n", "number is malformed", 0},
		{":1\n", "number is malformed", 0},
		{":1\rx", "number does not end with CRLF", 0},
		{":9223372036854775808\r\n", "number is out of range", 0},
		{":-9223372036854775809\r\n", "number is out of range", 0},
		{":" + strings.Repeat("0", maxNumber), "number is too long", 0},
		{"$\r\n", "number is malformed", 0},
		{"$-2\r\n", "length of a bulk string is out of range", 0},
		{"$-20\r\n", "length of a bulk string is out of range", 0},
		{fmt.Sprintf("$%d\r\n", maxBulk+1), "length of a bulk string is out of range", 0},
		{"$9223372036854775807\r\n", "length of a bulk string is out of range", 0}, // redcon panics
		{"*1\r\n$9223372036854775807\r\n", "length of a bulk string is out of range", 4},
		{"$2\r\nabc\r\n", "bulk string does not end with CRLF", 0},
		{"*2\r\n:1\r\n$1\r\na\r\r", "bulk string does not end with CRLF", 8},
		{"*-2\r\n", "length of an array is out of range", 0},
		{fmt.Sprintf("*%d\r\n", maxArray+1), "length of an array is out of range", 0},
		{strings.Repeat("*1\r\n", maxDepth+1), "arrays are nested too deep", 4 * maxDepth},
		{strings.Repeat("*1\r\n", 1<<20), "arrays are nested too deep", 4 * maxDepth},
		{"+" + strings.Repeat("x", maxLine), "line is too long", 0},
	} {
		shown := c.in[:min(len(c.in), 40)]
		v, n, err := Decode([]byte(c.in))
		var perr *ProtocolError
		if !errors.As(err, &perr) || !errors.Is(err, ErrProtocol) || n != 0 || v.Kind != 0 {
			t.Errorf("Decode(%q) = %s, %d, %v; want a protocol error", shown, show(v), n, err)
			continue
		}
		if perr.Reason != c.reason || perr.Offset != c.offset {
			t.Errorf("Decode(%q): %q at %d; want %q at %d", shown, perr.Reason, perr.Offset, c.reason, c.offset)
		}
	}
}

func TestDecode_ReplyAtTheLimits_IsAccepted(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", maxLine-3)
	if v, n, err := Decode([]byte("+" + text + "\r\n")); err != nil || n != maxLine || string(v.Bytes) != text {
		t.Errorf("longest line: %d, %v", n, err)
	}
	bulk := AppendBulk(nil, strings.Repeat("x", maxBulk))
	if v, n, err := Decode(bulk); err != nil || n != len(bulk) || len(v.Bytes) != maxBulk {
		t.Errorf("longest bulk: %d, %v", n, err)
	}
	many := append(AppendArrayHeader(nil, maxArray), bytes.Repeat([]byte(":1\r\n"), maxArray)...)
	if v, n, err := Decode(many); err != nil || n != len(many) || v.Len() != maxArray {
		t.Errorf("longest array: %d, %v", n, err)
	}
}

func TestDecode_OverTheTotalLimit_IsRefusedAtItsHeader(t *testing.T) {
	t.Parallel()
	// Each bulk is allowed, two of the largest are too much: known as soon as the
	// second one's length is, before its bytes have to be kept.
	b := AppendArrayHeader(nil, 2)
	b = AppendBulk(b, strings.Repeat("x", maxBulk))
	if _, n, err := Decode(b); n != 0 || err != nil {
		t.Fatalf("first bulk: %d, %v", n, err)
	}
	b = fmt.Appendf(b, "$%d\r\n", maxBulk)
	var perr *ProtocolError
	if _, _, err := Decode(b); !errors.As(err, &perr) || perr.Reason != "reply is too long" {
		t.Fatalf("second bulk: %v", err)
	}
}

func TestDecoder_UnfinishedArray_IsScannedOnce(t *testing.T) {
	t.Parallel()
	const elements, chunk = 100_000, 512
	b := AppendArrayHeader(nil, elements)
	for i := range elements {
		b = AppendBulkInt(b, int64(i))
	}
	var d Decoder
	for end := chunk; end < len(b); end += chunk {
		if _, n, err := d.Decode(b[:end]); n != 0 || err != nil {
			t.Fatalf("at %d: %d, %v", end, n, err)
		}
		if rest := end - d.off; rest > 32 {
			t.Fatalf("at %d of %d the next call begins %d bytes back", end, len(b), rest)
		}
	}
	v, n, err := d.Decode(b)
	if err != nil || n != len(b) || v.Len() != elements {
		t.Fatalf("whole: len %d, %d, %v", v.Len(), n, err)
	}
	if d != (Decoder{}) {
		t.Fatalf("after a reply the decoder keeps %+v", d)
	}
}

func TestDecoder_StreamSplitAnywhere_IsRead(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))

	var stream []byte
	var want []string
	for range 2000 {
		at := len(stream)
		stream = appendRandomReply(stream, rnd, 0)
		v, n, err := Decode(stream[at:])
		if err != nil || n != len(stream)-at {
			t.Fatalf("Decode(%q) = %d, %v", stream[at:], n, err)
		}
		want = append(want, show(v))
	}

	// The reader's buffer moves on every read, and its old place is overwritten.
	var d Decoder
	var pending []byte
	got := 0
	for len(stream) > 0 {
		k := min(len(stream), 1+rnd.IntN(40))
		moved := append(bytes.Clone(pending), stream[:k]...)
		for i := range pending {
			pending[i] = 0xff
		}
		pending, stream = moved, stream[k:]
		for {
			v, n, err := d.Decode(pending)
			if err != nil {
				t.Fatalf("reply %d: %v", got, err)
			}
			if n == 0 {
				break
			}
			if s := show(v); s != want[got] {
				t.Fatalf("reply %d: %s, want %s", got, s, want[got])
			}
			pending = pending[n:]
			got++
		}
	}
	if got != len(want) || len(pending) != 0 {
		t.Fatalf("%d replies of %d, %d bytes left", got, len(want), len(pending))
	}
}

func appendRandomReply(dst []byte, rnd *rand.Rand, depth int) []byte {
	text := func() string { return strings.Repeat("t", rnd.IntN(60)) }
	switch k := rnd.IntN(10); {
	case k < 3:
		return fmt.Appendf(dst, ":%d\r\n", int64(rnd.Uint64())>>rnd.IntN(64))
	case k == 3:
		return append(dst, "$-1\r\n"...)
	case k == 4:
		return append(dst, "+OK\r\n"...)
	case k == 5:
		return append(append(append(dst, '-'), text()...), "\r\n"...)
	case k == 6 && depth < maxDepth-1:
		n := rnd.IntN(5)
		dst = AppendArrayHeader(dst, n)
		for range n {
			dst = appendRandomReply(dst, rnd, depth+1)
		}
		return dst
	case k == 7:
		return append(dst, "*-1\r\n"...)
	default:
		return AppendBulk(dst, text())
	}
}

func TestValue_EachReturnsFalse_Stops(t *testing.T) {
	t.Parallel()
	v, _, _ := Decode([]byte("*3\r\n:1\r\n:2\r\n:3\r\n"))
	var seen []int64
	v.Each(func(i int, e Value) bool {
		seen = append(seen, e.Int)
		return i < 1
	})
	if fmt.Sprint(seen) != "[1 2]" {
		t.Errorf("saw %v", seen)
	}
	Value{Kind: KindBulk, Bytes: []byte(":1\r\n")}.Each(func(int, Value) bool {
		t.Error("a bulk has no elements")
		return true
	})
}

func TestValue_Clone_OwnsItsBytes(t *testing.T) {
	t.Parallel()
	b := []byte("*2\r\n$5\r\nfirst\r\n:2\r\n")
	v, _, _ := Decode(b)
	c := v.Clone()
	clear(b)
	if got := show(c); got != `[bulk "first", int 2]` {
		t.Errorf("after the buffer was reused: %s", got)
	}
	if e, _, _ := Decode([]byte("$0\r\n\r\n")); e.Clone().Bytes == nil {
		t.Error("an empty bulk became nil")
	}
}

func TestValue_Append_DoesNotGrowIntoTheBuffer(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"+OK\r\n", "+hi\r\n", "$2\r\nhi\r\n", "*1\r\n:1\r\n"} {
		b := []byte(in + ":5\r\n")
		v, _, _ := Decode(b)
		_ = append(v.Bytes, "XXXXXXXX"...)
		if string(b) != in+":5\r\n" {
			t.Errorf("appending to the value of %q wrote over the next reply: %q", in, b)
		}
	}
}

func TestAppendCommand_Words_AreEncoded(t *testing.T) {
	t.Parallel()
	got := AppendCommand([]byte("before "), "SET", "", "a\r\nb")
	if want := "before *3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	got = AppendArrayHeader(nil, 12)
	got = AppendBulkBytes(got, []byte("x"))
	got = AppendBulkInt(got, math.MinInt64)
	got = AppendBulkInt(got, 0)
	if want := "*12\r\n$1\r\nx\r\n$20\r\n-9223372036854775808\r\n$1\r\n0\r\n"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
}
