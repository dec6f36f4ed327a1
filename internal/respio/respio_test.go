package respio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tidwall/redcon"
)

func TestReader_CommandsSplitAnywhere_AreCut(t *testing.T) {
	t.Parallel()
	var stream []byte
	var want []string
	for i := range 300 {
		long := strings.Repeat("x", i*i%70_000)
		stream = redcon.AppendArray(stream, 3)
		for _, w := range []string{"SET", fmt.Sprint(i), long} {
			stream = redcon.AppendBulkString(stream, w)
		}
		want = append(want, fmt.Sprint("SET ", i, " ", len(long)))
	}
	stream = append(stream, "\r\nPING inline\r\n"...)
	for name, src := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "halves": iotest.HalfReader(bytes.NewReader(stream)),
	} {
		r := NewReader(src)
		for i := range want {
			raw, words, err := r.Command()
			if err != nil || len(words) != 3 {
				t.Fatalf("%s, command %d: %q, %v", name, i, words, err)
			}
			if got := fmt.Sprintf("%s %s %d", words[0], words[1], len(words[2])); got != want[i] {
				t.Fatalf("%s, command %d: %s, want %s", name, i, got, want[i])
			}
			if !bytes.HasPrefix(raw, []byte("*3\r\n$3\r\nSET\r\n")) || !bytes.HasSuffix(raw, []byte("\r\n")) {
				t.Fatalf("%s, command %d: raw %.40q", name, i, raw)
			}
		}
		if _, words, err := r.Command(); err != nil || string(bytes.Join(words, []byte(" "))) != "PING inline" {
			t.Fatalf("%s, inline: %q, %v", name, words, err)
		}
		if _, _, err := r.Command(); err != io.EOF {
			t.Fatalf("%s, end: %v", name, err)
		}
	}
}

func TestReader_Replies_AreCut(t *testing.T) {
	t.Parallel()
	frames := []string{":1\r\n", "+OK\r\n", "$-1\r\n", "*2\r\n$1\r\na\r\n*1\r\n:2\r\n", "-ERR x\r\n", "*-1\r\n"}
	r := NewReader(iotest.OneByteReader(strings.NewReader(strings.Join(frames, ""))))
	for _, want := range frames {
		if raw, _, err := r.Reply(); err != nil || string(raw) != want {
			t.Fatalf("%q, %v; want %q", raw, err, want)
		}
	}
	if _, _, err := r.Reply(); err != io.EOF {
		t.Fatalf("end: %v", err)
	}
}

func TestReader_FrameCutShort_IsReported(t *testing.T) {
	t.Parallel()
	if _, _, err := NewReader(strings.NewReader("$5\r\nhel")).Reply(); err != io.ErrUnexpectedEOF {
		t.Errorf("reply: %v", err)
	}
	if _, _, err := NewReader(strings.NewReader("*2\r\n$4\r\nPI")).Command(); err != io.ErrUnexpectedEOF {
		t.Errorf("command: %v", err)
	}
}

func TestReader_EndlessFrame_GivesUp(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader("+"), neverEnding('x'))
	if _, _, err := NewReader(endless).Reply(); !errors.Is(err, ErrTooLong) {
		t.Errorf("%v", err)
	}
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}
