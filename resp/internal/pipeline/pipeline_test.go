package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestPipeline_Stamp_IsOfTheFirstByte(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	first := fake.Now()
	tr.room = 5 // all of "aaaa", one byte of "bbbb"
	p := submitTexts(l, "aaaa", "bbbb", "cccc")

	fake.Advance(time.Second)
	second := fake.Now()
	tr.room = 3 // the rest of "bbbb"
	tr.sink.OnWake()

	fake.Advance(time.Second)
	tr.room = 0 // nothing: this write must leave no stamp behind
	tr.sink.OnWake()

	fake.Advance(time.Second)
	third := fake.Now()
	tr.room = 100
	tr.sink.OnBytes([]byte(":1\r\n")) // drains

	fake.Advance(time.Second)
	tr.sink.OnBytes([]byte(":2\r\n:3\r\n"))
	for i, want := range []clock.Instant{first, second, third} {
		p[i].wantsInt(t, int64(i+1))
		if i == 1 {
			want = first // one byte of it went with the first write
		}
		if got := p[i].reply.Sent; got != want {
			t.Errorf("%q: sent at %v, want %v", p[i].text, got, want)
		}
	}
	if string(tr.wire) != "aaaabbbbcccc" {
		t.Errorf("wire: %q", tr.wire)
	}
	_ = second
}

func TestPipeline_ReplyBeforeTheWriteReturns_HasAStamp(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	want := fake.Now()
	tr.during = func() {
		fake.Advance(time.Second)
		tr.during = nil
		tr.sink.OnBytes([]byte(":1\r\n"))
	}
	p := submitTexts(l, "a")
	p[0].wantsInt(t, 1)
	if p[0].reply.Sent != want {
		t.Errorf("sent at %v, want %v", p[0].reply.Sent, want)
	}
}

func TestPipeline_KernelFull_AsksForOneWake(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room = 0
	p := submitTexts(l, "aa", "bb", "cc")
	if tr.wakes != 1 {
		t.Fatalf("%d wakes, want 1", tr.wakes)
	}
	tr.sink.OnWake() // still full: the next OnBytes is the time
	if tr.wakes != 1 {
		t.Fatalf("OnWake asked for another wake")
	}
	tr.room = 100
	tr.sink.OnWake()
	tr.sink.OnBytes([]byte(":1\r\n:2\r\n:3\r\n"))
	for i := range p {
		p[i].wantsInt(t, int64(i+1))
	}
}

func TestPipeline_AboveTheInlineDepth_LoopWrites(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *Config) { c.inlineDepth = 2 })
	submitTexts(l, "a", "b", "c", "d", "e")
	if string(tr.wire) != "ab" || tr.wakes != 1 {
		t.Fatalf("wire %q, %d wakes; want \"ab\" and one wake", tr.wire, tr.wakes)
	}
	tr.sink.OnWake()
	if string(tr.wire) != "abcde" {
		t.Fatalf("wire %q after the wake", tr.wire)
	}
}

func TestPipeline_CompleteSubmits_WritesWithoutAWake(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	inner := []*textCall{{text: "x"}, {text: "y"}}
	outer := &textCall{text: "a", then: func(request.Reply) {
		l.Submit(inner[0])
		l.Submit(inner[1])
	}}
	l.Submit(outer)
	writes := 0
	tr.during = func() { writes++ }
	tr.sink.OnBytes([]byte(":1\r\n"))
	if string(tr.wire) != "axy" || writes != 1 || tr.wakes != 0 {
		t.Fatalf("wire %q, %d writes, %d wakes; want \"axy\" in one write without a wake", tr.wire, writes, tr.wakes)
	}
	tr.sink.OnBytes([]byte(":2\r\n:3\r\n"))
	inner[0].wantsInt(t, 2)
	inner[1].wantsInt(t, 3)
}

func TestPipeline_ManyRounds_WriterHandsOver(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	writes := 0
	tr.during = func() {
		writes++
		if writes > 100 {
			t.Fatal("the caller goes on and on")
		}
		l.Submit(&textCall{text: "x"})
	}
	l.Submit(&textCall{text: "a"})
	if writes != maxRounds || tr.wakes != 1 {
		t.Fatalf("%d writes, %d wakes; want %d and 1", writes, tr.wakes, maxRounds)
	}
}

func TestPipeline_NoScript_SendsTheScriptWhole(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := submitTexts(l, "a", "b", "c")
	fake.Advance(time.Second)
	tr.sink.OnBytes([]byte("-NOSCRIPT No matching script.\r\n:2\r\n-NOSCRIPT x\r\n"))
	p[1].wantsInt(t, 2)
	if p[0].reply != nil || p[2].reply != nil {
		t.Fatal("a requester saw NOSCRIPT")
	}
	if string(tr.wire) != "abcAC" {
		t.Fatalf("wire %q, want the unknown scripts whole at the end", tr.wire)
	}
	sent := fake.Now()
	fake.Advance(time.Second)
	tr.sink.OnBytes([]byte(":1\r\n-NOSCRIPT again\r\n"))
	p[0].wantsInt(t, 1)
	if p[0].reply.Sent != sent {
		t.Errorf("stamp %v, want that of the second write, %v", p[0].reply.Sent, sent)
	}
	var se *wire.ServerError
	if p[2].reply == nil || !errors.As(p[2].reply.Err, &se) || se.Code != "NOSCRIPT" {
		t.Errorf("second NOSCRIPT: got %+v, want it as a server error", p[2].reply)
	}
	if c := l.Counters(); c.Resent != 2 || c.Commands != 5 || c.InFlight != 0 {
		t.Errorf("counters: %+v", c)
	}
}

func TestPipeline_SurplusReplies_CloseTheConnection(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		":1\r\n:2\r\n:3\r\n", // one more than asked for
		"?\r\n",
		":1\r\n$9999999999\r\n",
	} {
		t.Run(fmt.Sprintf("%q", in), func(t *testing.T) {
			t.Parallel()
			l, tr, _ := scripted(nil)
			p := submitTexts(l, "a", "b")
			tr.sink.OnBytes([]byte(in))
			if !errors.Is(tr.closed, wire.ErrProtocol) {
				t.Fatalf("closed with %v, want ErrProtocol", tr.closed)
			}
			tr.sink.OnClose(tr.closed)
			p[1].wants(t, request.ErrOutcomeUnknown, wire.ErrProtocol)
		})
	}
}

// Who asked for a reply that cannot be read knows it. The others ask again.
func TestPipeline_ReplyTooLong_IsThatOfTheOldest(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	p := submitTexts(l, "a", "b", "c")
	tr.sink.OnBytes([]byte(":1\r\n$9999999999\r\n"))
	tr.sink.OnClose(tr.closed)
	p[0].wantsInt(t, 1)
	for i, want := range map[int]bool{1: true, 2: false} {
		p[i].wants(t, request.ErrOutcomeUnknown, wire.ErrProtocol)
		_, cause := request.Outcome(p[i].reply.Err)
		if _, is := cause.(*wire.ProtocolError); is != want {
			t.Errorf("%d: %v", i, cause)
		}
	}
}

// A server that answers what it cannot have received yet: the replies come while
// the write is under way that would have carried the commands.
func TestPipeline_ReplyToTheRestOfAWrite_IsRefused(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *Config) { c.inlineDepth = 1 })
	p := submitTexts(l, "a", "bb", "cc", "dd") // the first is written, the others wait for the loop
	tr.room = 3
	tr.during = func() {
		tr.during = nil
		tr.sink.OnBytes([]byte(":1\r\n:2\r\n:3\r\n:4\r\n"))
		p = append(p, submitTexts(l, "ee")...)
	}
	tr.sink.OnWake()
	if !errors.Is(tr.closed, wire.ErrProtocol) {
		t.Fatalf("closed with %v, want ErrProtocol", tr.closed)
	}
	tr.sink.OnClose(tr.closed)
	for i := range 4 {
		p[i].wantsInt(t, int64(i+1)) // a lie, but nobody could know
	}
	p[4].wants(t, request.ErrNotSent, wire.ErrProtocol)
}

func TestPipeline_ReplyToAnUnwrittenCommand_IsRefused(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room = 1
	p := submitTexts(l, "a", "b")
	tr.sink.OnBytes([]byte(":1\r\n:2\r\n"))
	if !errors.Is(tr.closed, wire.ErrProtocol) {
		t.Fatalf("closed with %v, want ErrProtocol", tr.closed)
	}
	tr.sink.OnClose(tr.closed)
	p[0].wants(t, request.ErrOutcomeUnknown, wire.ErrProtocol)
	p[1].wants(t, request.ErrNotSent, wire.ErrProtocol)
}

func TestPipeline_StreamSplitAnywhere_MatchesReplies(t *testing.T) {
	t.Parallel()
	stream := ":1\r\n$-1\r\n$5\r\nhello\r\n*2\r\n:7\r\n$1\r\nx\r\n-ERR no\r\n+OK\r\n"
	for cut := range len(stream) {
		for _, step := range []int{1, 3, len(stream)} {
			l, tr, _ := scripted(nil)
			p := submitTexts(l, "a", "b", "c", "d", "e", "f")
			tr.sink.OnBytes([]byte(stream[:cut]))
			for rest := stream[cut:]; rest != ""; {
				n := min(step, len(rest))
				tr.sink.OnBytes([]byte(rest[:n]))
				rest = rest[n:]
			}
			p[0].wantsInt(t, 1)
			p[5].wantsInt(t, 0)
			if string(p[2].reply.Value.Bytes) != "hello" || p[3].reply.Value.Len() != 2 || p[4].reply.Err == nil {
				t.Fatalf("cut %d, step %d: %v %v %v", cut, step, p[2].reply, p[3].reply, p[4].reply)
			}
		}
	}
}

func TestPipeline_BeyondItsLimits_Refuses(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *Config) { c.MaxInFlight, c.MaxQueuedBytes = 3, 4 })
	p := submitTexts(l, "a", "b", "c", "d")
	p[3].wants(t, request.ErrNotSent, request.ErrLaneFull)
	tr.sink.OnBytes([]byte(":1\r\n:2\r\n:3\r\n"))

	tr.room = 0
	p = submitTexts(l, "abc", "d", "e")
	p[2].wants(t, request.ErrNotSent, request.ErrLaneFull)
	if p[1].reply != nil {
		t.Errorf("refused below the limit: %v", p[1].reply.Err)
	}
}

func TestPipeline_BufferNeverEmpty_StaysSmall(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	p := l.current.Load()
	text := strings.Repeat("x", 1000)
	tr.room = 0
	submitTexts(l, text)
	for range 1000 {
		submitTexts(l, text)
		tr.room = len(text) // one is always left
		tr.sink.OnWake()
		tr.sink.OnBytes([]byte(":1\r\n"))
	}
	if len(tr.wire) != 1000*len(text) {
		t.Fatalf("%d bytes on the wire", len(tr.wire))
	}
	if got := cap(p.mu.out); got > 4*keepCap {
		t.Errorf("the buffer grew to %d bytes with %d queued", got, len(text))
	}
}

func TestPipeline_ManyBatchesOfOneRead_WritesBetween(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	first := &textCall{text: "a", then: func(request.Reply) { submitTexts(l, "x") }}
	l.Submit(first)
	for range 2*batchSize - 1 {
		submitTexts(l, "b")
	}
	tr.sink.OnWake()
	last := &textCall{text: "c", then: func(request.Reply) {
		if !strings.HasSuffix(string(tr.wire), "x") {
			t.Error("what the first batch had queued was not written before the last one")
		}
	}}
	p := l.current.Load()
	*p.mu.fifo.Back() = Entry{Request: last, end: p.mu.fifo.Back().end}
	tr.sink.OnBytes([]byte(strings.Repeat(":1\r\n", 2*batchSize)))
	last.wantsInt(t, 1)
}
