package resp

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// scriptedTransport takes as many bytes as the test allows, and lets the test
// play the loop.
type scriptedTransport struct {
	mu     sync.Mutex
	sink   sink
	room   int // bytes that tryWrite and write still take
	err    error
	during func() // runs inside every write, before it returns
	wire   []byte
	wakes  int
	closed error
}

func (t *scriptedTransport) tryWrite(b []byte) (int, error) {
	t.mu.Lock()
	n := min(len(b), t.room)
	t.room -= n
	t.wire = append(t.wire, b[:n]...)
	err, during := t.err, t.during
	t.mu.Unlock()
	if during != nil {
		during()
	}
	return n, err
}

func (t *scriptedTransport) write(b []byte) (int, error) { return t.tryWrite(b) }

func (t *scriptedTransport) sent() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return uint64(len(t.wire))
}

func (t *scriptedTransport) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wakes++
}

func (t *scriptedTransport) close(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = err
	}
}

func (t *scriptedTransport) closeErr() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// scripted returns a lane that is up over a scripted transport with endless
// room, and its clock.
func scripted(change func(*laneConfig)) (*lane, *scriptedTransport, *clock.Fake) {
	fake := clock.NewFake()
	cfg := laneConfig{
		clock:          fake,
		commandTimeout: time.Second,
		maxInFlight:    1000,
		maxQueuedBytes: 1 << 20,
		down:           func(error) {},
	}
	if change != nil {
		change(&cfg)
	}
	l := newLane(cfg)
	p := newPipeline(l)
	t := &scriptedTransport{sink: p, room: 1 << 30}
	p.onOpen(t)
	return l, t, fake
}

// textCall is a Request with a text of its own.
type textCall struct {
	text  string
	reply *Reply
	then  func(Reply)
}

func (p *textCall) AppendCommand(dst []byte, form Form) []byte {
	if form == Whole {
		return append(dst, strings.ToUpper(p.text)...)
	}
	return append(dst, p.text...)
}

func (p *textCall) Complete(r Reply) {
	if p.reply != nil {
		panic("completed twice: " + p.text)
	}
	r.Value = r.Value.Clone()
	p.reply = &r
	if p.then != nil {
		p.then(r)
	}
}

func submitTexts(l *lane, texts ...string) []*textCall {
	all := make([]*textCall, len(texts))
	for i, text := range texts {
		all[i] = &textCall{text: text}
		l.submit(all[i])
	}
	return all
}

func (p *textCall) wants(t *testing.T, class, cause error) {
	t.Helper()
	if p.reply == nil {
		t.Fatalf("%q: not completed", p.text)
	}
	if !errors.Is(p.reply.Err, class) || !errors.Is(p.reply.Err, cause) {
		t.Errorf("%q: got %v, want %v and %v", p.text, p.reply.Err, class, cause)
	}
	if other := ErrNotSent; class == ErrOutcomeUnknown && errors.Is(p.reply.Err, other) {
		t.Errorf("%q: %v is of both classes", p.text, p.reply.Err)
	}
}

func (p *textCall) wantsInt(t *testing.T, n int64) {
	t.Helper()
	if p.reply == nil {
		t.Fatalf("%q: not completed", p.text)
	}
	if p.reply.Err != nil || p.reply.Value.Int != n {
		t.Errorf("%q: got %v, %v, want %d", p.text, p.reply.Value, p.reply.Err, n)
	}
}

func TestPipelineClassesBytesByTheKernelsCount(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room = 9 // "aaaa", "bbbb" and one byte of "cccc"
	p := submitTexts(l, "aaaa", "bbbb", "cccc", "dddd")
	tr.sink.onBytes([]byte(":1\r\n"))
	tr.sink.onClose(io.EOF)
	p[0].wantsInt(t, 1)
	p[1].wants(t, ErrOutcomeUnknown, io.EOF)
	p[2].wants(t, ErrNotSent, io.EOF)
	p[3].wants(t, ErrNotSent, io.EOF)
	if p[1].reply.Sent == 0 || p[2].reply.Sent != 0 {
		t.Errorf("stamps: %v for a command that was sent, %v for one that was not", p[1].reply.Sent, p[2].reply.Sent)
	}
	if l.up() {
		t.Error("still up")
	}
	late := submitTexts(l, "eeee")
	late[0].wants(t, ErrNotSent, ErrDown)
}

func TestPipelineStampsTheWriteOfTheFirstByte(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	first := fake.Now()
	tr.room = 5 // all of "aaaa", one byte of "bbbb"
	p := submitTexts(l, "aaaa", "bbbb", "cccc")

	fake.Advance(time.Second)
	second := fake.Now()
	tr.room = 3 // the rest of "bbbb"
	tr.sink.onWake()

	fake.Advance(time.Second)
	tr.room = 0 // nothing: this write must leave no stamp behind
	tr.sink.onWake()

	fake.Advance(time.Second)
	third := fake.Now()
	tr.room = 100
	tr.sink.onBytes([]byte(":1\r\n")) // drains

	fake.Advance(time.Second)
	tr.sink.onBytes([]byte(":2\r\n:3\r\n"))
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

func TestPipelineFindsTheStampOfAWriteThatHasNotReturned(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	want := fake.Now()
	tr.during = func() {
		fake.Advance(time.Second)
		tr.during = nil
		tr.sink.onBytes([]byte(":1\r\n"))
	}
	p := submitTexts(l, "a")
	p[0].wantsInt(t, 1)
	if p[0].reply.Sent != want {
		t.Errorf("sent at %v, want %v", p[0].reply.Sent, want)
	}
}

func TestPipelineAsksForOneWakeWhenTheKernelIsFull(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room = 0
	p := submitTexts(l, "aa", "bb", "cc")
	if tr.wakes != 1 {
		t.Fatalf("%d wakes, want 1", tr.wakes)
	}
	tr.sink.onWake() // still full: the next onBytes is the time
	if tr.wakes != 1 {
		t.Fatalf("onWake asked for another wake")
	}
	tr.room = 100
	tr.sink.onWake()
	tr.sink.onBytes([]byte(":1\r\n:2\r\n:3\r\n"))
	for i := range p {
		p[i].wantsInt(t, int64(i+1))
	}
}

func TestPipelineLeavesWritingToTheLoopAboveTheInlineDepth(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *laneConfig) { c.inlineDepth = 2 })
	submitTexts(l, "a", "b", "c", "d", "e")
	if string(tr.wire) != "ab" || tr.wakes != 1 {
		t.Fatalf("wire %q, %d wakes; want \"ab\" and one wake", tr.wire, tr.wakes)
	}
	tr.sink.onWake()
	if string(tr.wire) != "abcde" {
		t.Fatalf("wire %q after the wake", tr.wire)
	}
}

func TestPipelineWritesWhatCompleteSubmitsWithoutAWake(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	inner := []*textCall{{text: "x"}, {text: "y"}}
	outer := &textCall{text: "a", then: func(Reply) {
		l.submit(inner[0])
		l.submit(inner[1])
	}}
	l.submit(outer)
	writes := 0
	tr.during = func() { writes++ }
	tr.sink.onBytes([]byte(":1\r\n"))
	if string(tr.wire) != "axy" || writes != 1 || tr.wakes != 0 {
		t.Fatalf("wire %q, %d writes, %d wakes; want \"axy\" in one write without a wake", tr.wire, writes, tr.wakes)
	}
	tr.sink.onBytes([]byte(":2\r\n:3\r\n"))
	inner[0].wantsInt(t, 2)
	inner[1].wantsInt(t, 3)
}

func TestPipelineMakesNoCallerTheWriterOfEverybody(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	writes := 0
	tr.during = func() {
		writes++
		if writes > 100 {
			t.Fatal("the caller goes on and on")
		}
		l.submit(&textCall{text: "x"})
	}
	l.submit(&textCall{text: "a"})
	if writes != maxRounds || tr.wakes != 1 {
		t.Fatalf("%d writes, %d wakes; want %d and 1", writes, tr.wakes, maxRounds)
	}
}

func TestPipelineSendsAnUnknownScriptAgainWhole(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := submitTexts(l, "a", "b", "c")
	fake.Advance(time.Second)
	tr.sink.onBytes([]byte("-NOSCRIPT No matching script.\r\n:2\r\n-NOSCRIPT x\r\n"))
	p[1].wantsInt(t, 2)
	if p[0].reply != nil || p[2].reply != nil {
		t.Fatal("a requester saw NOSCRIPT")
	}
	if string(tr.wire) != "abcAC" {
		t.Fatalf("wire %q, want the unknown scripts whole at the end", tr.wire)
	}
	sent := fake.Now()
	fake.Advance(time.Second)
	tr.sink.onBytes([]byte(":1\r\n-NOSCRIPT again\r\n"))
	p[0].wantsInt(t, 1)
	if p[0].reply.Sent != sent {
		t.Errorf("stamp %v, want that of the second write, %v", p[0].reply.Sent, sent)
	}
	var se *ServerError
	if p[2].reply == nil || !errors.As(p[2].reply.Err, &se) || se.Code != "NOSCRIPT" {
		t.Errorf("second NOSCRIPT: got %+v, want it as a server error", p[2].reply)
	}
	if c := l.counters(); c.Resent != 2 || c.Commands != 5 || c.InFlight != 0 {
		t.Errorf("counters: %+v", c)
	}
}

func TestPipelineRefusesToMatchSurplusReplies(t *testing.T) {
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
			tr.sink.onBytes([]byte(in))
			if !errors.Is(tr.closed, ErrProtocol) {
				t.Fatalf("closed with %v, want ErrProtocol", tr.closed)
			}
			tr.sink.onClose(tr.closed)
			p[1].wants(t, ErrOutcomeUnknown, ErrProtocol)
		})
	}
}

func TestPipelineTakesNoReplyForACommandThatWasNotWritten(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room = 1
	p := submitTexts(l, "a", "b")
	tr.sink.onBytes([]byte(":1\r\n:2\r\n"))
	if !errors.Is(tr.closed, ErrProtocol) {
		t.Fatalf("closed with %v, want ErrProtocol", tr.closed)
	}
	tr.sink.onClose(tr.closed)
	p[0].wants(t, ErrOutcomeUnknown, ErrProtocol)
	p[1].wants(t, ErrNotSent, ErrProtocol)
}

func TestPipelineSurvivesEverySplitOfTheStream(t *testing.T) {
	t.Parallel()
	stream := ":1\r\n$-1\r\n$5\r\nhello\r\n*2\r\n:7\r\n$1\r\nx\r\n-ERR no\r\n+OK\r\n"
	for cut := range len(stream) {
		for _, step := range []int{1, 3, len(stream)} {
			l, tr, _ := scripted(nil)
			p := submitTexts(l, "a", "b", "c", "d", "e", "f")
			tr.sink.onBytes([]byte(stream[:cut]))
			for rest := stream[cut:]; rest != ""; {
				n := min(step, len(rest))
				tr.sink.onBytes([]byte(rest[:n]))
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

func TestPipelineClosesWhenTheOldestCommandIsOverdue(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := submitTexts(l, "a")
	fake.Advance(900 * time.Millisecond)
	p = append(p, submitTexts(l, "b")...)
	l.checkAge(fake.Now())
	if tr.closed != nil {
		t.Fatalf("closed early: %v", tr.closed)
	}
	tr.sink.onBytes([]byte(":1\r\n"))
	fake.Advance(900 * time.Millisecond) // "b" is 0.9 s old
	l.checkAge(fake.Now())
	if tr.closed != nil {
		t.Fatalf("closed early: %v", tr.closed)
	}
	fake.Advance(101 * time.Millisecond)
	l.checkAge(fake.Now())
	if tr.closed != ErrTimeout {
		t.Fatalf("closed with %v, want ErrTimeout", tr.closed)
	}
	tr.sink.onClose(tr.closed)
	p[1].wants(t, ErrOutcomeUnknown, ErrTimeout)
}

func TestPipelineClosesWhenACommandIsNeverWritten(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	tr.room = 0
	p := submitTexts(l, "a")
	l.checkAge(fake.Now())
	fake.Advance(time.Second)
	l.checkAge(fake.Now())
	if tr.closed != nil {
		t.Fatalf("closed early: %v", tr.closed)
	}
	fake.Advance(time.Millisecond)
	l.checkAge(fake.Now())
	if tr.closed != ErrTimeout {
		t.Fatalf("closed with %v, want ErrTimeout", tr.closed)
	}
	tr.sink.onClose(tr.closed)
	p[0].wants(t, ErrNotSent, ErrTimeout)
}

func TestPipelineAsksAnIdleServerWhetherItIsThere(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	fake.Advance(idleAfter - 1)
	l.checkAge(fake.Now())
	if len(tr.wire) != 0 {
		t.Fatalf("wire %q after less than idleAfter", tr.wire)
	}
	fake.Advance(1)
	for range 3 {
		l.checkAge(fake.Now()) // asks once
	}
	if string(tr.wire) != string(pingBytes) {
		t.Fatalf("wire %q, want one PING", tr.wire)
	}
	tr.sink.onBytes([]byte("+PONG\r\n"))
	l.checkAge(fake.Now())
	if len(tr.wire) != len(pingBytes) {
		t.Fatal("asked again at once")
	}
}

func TestPipelineGivesMemoryBackWhenIdle(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := l.current.Load()
	tr.room = 0
	for range 900 {
		l.submit(&textCall{text: strings.Repeat("x", 200)})
	}
	tr.room = 1 << 30
	tr.sink.onWake()
	tr.sink.onBytes([]byte(strings.Repeat(":1\r\n", 900)))
	if len(p.mu.fifo.buf) < 900 || cap(p.mu.out) <= keepCap {
		t.Fatalf("the test is too small: %d entries, %d bytes", len(p.mu.fifo.buf), cap(p.mu.out))
	}
	fake.Advance(idleAfter)
	l.checkAge(fake.Now())
	if len(p.mu.fifo.buf) > ringMin || cap(p.mu.out) > keepCap {
		t.Fatalf("kept %d entries and %d bytes", len(p.mu.fifo.buf), cap(p.mu.out))
	}
}

func TestPipelineRefusesBeyondItsLimits(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(c *laneConfig) { c.maxInFlight, c.maxQueuedBytes = 3, 4 })
	p := submitTexts(l, "a", "b", "c", "d")
	p[3].wants(t, ErrNotSent, ErrLaneFull)
	tr.sink.onBytes([]byte(":1\r\n:2\r\n:3\r\n"))

	tr.room = 0
	p = submitTexts(l, "abc", "d", "e")
	p[2].wants(t, ErrNotSent, ErrLaneFull)
	if p[1].reply != nil {
		t.Errorf("refused below the limit: %v", p[1].reply.Err)
	}
}

func TestPipelineDeliversTheRestAfterAPanicInComplete(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	bad := &textCall{text: "a", then: func(Reply) { panic("boom") }}
	l.submit(bad)
	p := submitTexts(l, "b")
	tr.sink.onBytes([]byte(":1\r\n:2\r\n"))
	p[0].wantsInt(t, 2)
	if tr.closed == nil || !strings.Contains(tr.closed.Error(), "boom") {
		t.Fatalf("closed with %v", tr.closed)
	}
	bad.then = nil
	more := &textCall{text: "c", then: func(Reply) { panic("again") }}
	l.submit(more)
	p = submitTexts(l, "d")
	tr.sink.onClose(tr.closed)
	if p[0].reply == nil {
		t.Fatal("a panic on the way out swallowed the next request")
	}
}

func TestPipelineClosesAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room, tr.err = 0, io.ErrClosedPipe
	p := submitTexts(l, "a")
	if tr.closed != io.ErrClosedPipe {
		t.Fatalf("closed with %v", tr.closed)
	}
	tr.sink.onClose(tr.closed)
	p[0].wants(t, ErrNotSent, io.ErrClosedPipe)
}

func TestPipelineThatDiesUnderItsWriterLeavesItNothingToDo(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	downs := 0
	l.cfg.down = func(error) { downs++ }
	p := &textCall{text: "abcd"}
	tr.room = 2
	tr.during = func() {
		tr.during = nil
		tr.sink.onClose(io.EOF) // in the middle of the write
	}
	l.submit(p)
	p.wants(t, ErrNotSent, io.EOF)
	if downs != 1 || tr.wakes != 0 || string(tr.wire) != "ab" {
		t.Fatalf("%d downs, %d wakes, wire %q", downs, tr.wakes, tr.wire)
	}
}

func TestLaneCompletesEverythingBeforeItSaysDown(t *testing.T) {
	t.Parallel()
	var p []*textCall
	told := false
	l, tr, _ := scripted(nil)
	l.cfg.down = func(error) {
		told = true
		for _, one := range p {
			if one.reply == nil {
				t.Errorf("down before %q was completed", one.text)
			}
		}
		if l.up() {
			t.Error("up while down runs")
		}
	}
	for range 1000 { // several batches
		p = append(p, submitTexts(l, "a")...)
	}
	tr.sink.onClose(io.EOF)
	if !told {
		t.Error("down was not called")
	}
}

func TestLaneCountersOutliveTheConnection(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	submitTexts(l, "abc", "d")
	tr.sink.onBytes([]byte(":1\r\n"))
	before := l.counters()
	if want := (laneCounters{Commands: 2, BytesOut: 4, BytesIn: 4, InFlight: 1}); before != want {
		t.Fatalf("counters %+v, want %+v", before, want)
	}
	tr.sink.onClose(io.EOF)
	before.InFlight = 0
	if after := l.counters(); after != before {
		t.Fatalf("counters %+v after the end, want %+v", after, before)
	}
}

func TestPipelineBufferStaysSmallThoughNeverEmpty(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	p := l.current.Load()
	text := strings.Repeat("x", 1000)
	tr.room = 0
	submitTexts(l, text)
	for range 1000 {
		submitTexts(l, text)
		tr.room = len(text) // one is always left
		tr.sink.onWake()
		tr.sink.onBytes([]byte(":1\r\n"))
	}
	if len(tr.wire) != 1000*len(text) {
		t.Fatalf("%d bytes on the wire", len(tr.wire))
	}
	if got := cap(p.mu.out); got > 4*keepCap {
		t.Errorf("the buffer grew to %d bytes with %d queued", got, len(text))
	}
}

func TestLaneClosedWhileAConnectionOpensStaysDown(t *testing.T) {
	t.Parallel()
	l, _, _ := scripted(nil)
	l.current.Load().onClose(io.EOF)
	p := newPipeline(l)
	l.close(ErrClosed)
	tr := &scriptedTransport{sink: p, room: 1 << 30}
	p.onOpen(tr)
	if l.up() || tr.closed != ErrClosed {
		t.Errorf("up: %v, the connection closed with %v", l.up(), tr.closed)
	}
	c := submitTexts(l, "a")
	c[0].wants(t, ErrNotSent, ErrClosed)
}

func TestPipelineWritesBetweenTheBatchesOfOneRead(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	first := &textCall{text: "a", then: func(Reply) { submitTexts(l, "x") }}
	l.submit(first)
	for range 2*batchSize - 1 {
		submitTexts(l, "b")
	}
	tr.sink.onWake()
	last := &textCall{text: "c", then: func(Reply) {
		if !strings.HasSuffix(string(tr.wire), "x") {
			t.Error("what the first batch had queued was not written before the last one")
		}
	}}
	p := l.current.Load()
	*p.mu.fifo.back() = entry{request: last, end: p.mu.fifo.back().end}
	tr.sink.onBytes([]byte(strings.Repeat(":1\r\n", 2*batchSize)))
	last.wantsInt(t, 1)
}
