package pipeline

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestPipeline_ConnectionEnds_ClassesByBytesTaken(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room = 9 // "aaaa", "bbbb" and one byte of "cccc"
	p := submitTexts(l, "aaaa", "bbbb", "cccc", "dddd")
	tr.sink.OnBytes([]byte(":1\r\n"))
	tr.sink.OnClose(io.EOF)
	p[0].wantsInt(t, 1)
	p[1].wants(t, request.ErrOutcomeUnknown, io.EOF)
	p[2].wants(t, request.ErrNotSent, io.EOF)
	p[3].wants(t, request.ErrNotSent, io.EOF)
	if p[1].reply.Sent == 0 || p[2].reply.Sent != 0 {
		t.Errorf("stamps: %v for a command that was sent, %v for one that was not", p[1].reply.Sent, p[2].reply.Sent)
	}
	if err := l.Err(); err != io.EOF {
		t.Errorf("the connection has ended, because of %v", err)
	}
	late := submitTexts(l, "eeee")
	late[0].wants(t, request.ErrNotSent, request.ErrDown)
}

// gnet counts what it is about to send before it knows that it cannot. What is unknown
// by its count needs the stamp of that write, for a lease may have begun then.
func TestPipeline_WriteFails_StampsWhatMayBeSent(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(func(cfg *Config) { cfg.inlineDepth = -1 })
	p := submitTexts(l, "aaaa", "bbbb", "cccc")
	tr.room, tr.more, tr.err = 4, 4, io.ErrClosedPipe
	tr.sink.OnWake()
	if tr.closed != io.ErrClosedPipe {
		t.Fatalf("closed with %v", tr.closed)
	}
	tr.sink.OnClose(tr.closed)
	p[0].wants(t, request.ErrOutcomeUnknown, io.ErrClosedPipe)
	p[1].wants(t, request.ErrOutcomeUnknown, io.ErrClosedPipe)
	p[2].wants(t, request.ErrNotSent, io.ErrClosedPipe)
	if p[0].reply.Sent == 0 || p[1].reply.Sent == 0 || p[2].reply.Sent != 0 {
		t.Errorf("stamps %v, %v and %v", p[0].reply.Sent, p[1].reply.Sent, p[2].reply.Sent)
	}
}

// look lets time pass, has the lane look at its age, and checks what it makes of it.
func look(t *testing.T, l *Lane, tr *scriptedTransport, fake *clock.Fake, later time.Duration, want error) {
	t.Helper()
	fake.Advance(later)
	l.CheckAge(fake.Now())
	if tr.closed != want {
		t.Fatalf("%v later it is closed with %v, want %v", later, tr.closed, want)
	}
}

// A server, or this process, that is busy is not one that hangs: as long as answers
// come, nobody's turn is too late.
func TestPipeline_SlowServer_IsKept(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := submitTexts(l, "a", "b", "c", "d", "e")
	for i := range p[1:] {
		look(t, l, tr, fake, 900*time.Millisecond, nil) // all are older than the timeout from the second time on
		tr.sink.OnBytes([]byte(":1\r\n"))
		p[i].wantsInt(t, 1)
	}
	look(t, l, tr, fake, time.Second, nil)
	look(t, l, tr, fake, time.Millisecond, request.ErrTimeout)
}

// The loop had no time for this connection, or takes its time over what it has read.
func TestPipeline_ReaderBehind_IsKept(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := submitTexts(l, "a", "b")
	tr.behind = true // an answer lies in the socket
	look(t, l, tr, fake, 2*time.Second, nil)
	tr.behind = false
	p[0].then = func(request.Reply) { look(t, l, tr, fake, 2*time.Second, nil) }
	tr.sink.OnBytes([]byte(":1\r\n"))
	look(t, l, tr, fake, 2*time.Second, request.ErrTimeout)
}

// The loop, or the writer, has been woken to write and has not come to it.
func TestPipeline_WriterBehind_IsKept(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(func(cfg *Config) { cfg.inlineDepth = -1 })
	submitTexts(l, "a")
	look(t, l, tr, fake, 0, nil)
	look(t, l, tr, fake, 2*time.Second, nil)
	look(t, l, tr, fake, 2*time.Second, nil)
	tr.sink.OnWake()
	look(t, l, tr, fake, time.Second, nil)
	look(t, l, tr, fake, time.Millisecond, request.ErrTimeout)
}

func TestPipeline_ServerSilent_Closes(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := submitTexts(l, "a")
	fake.Advance(900 * time.Millisecond)
	p = append(p, submitTexts(l, "b")...)
	l.CheckAge(fake.Now())
	if tr.closed != nil {
		t.Fatalf("closed early: %v", tr.closed)
	}
	tr.sink.OnBytes([]byte(":1\r\n"))
	look(t, l, tr, fake, 900*time.Millisecond, nil) // "b" is 0.9 s old
	look(t, l, tr, fake, 101*time.Millisecond, request.ErrTimeout)
	tr.sink.OnClose(tr.closed)
	p[1].wants(t, request.ErrOutcomeUnknown, request.ErrTimeout)
}

func TestPipeline_CommandNeverWritten_Closes(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	tr.room = 0
	p := submitTexts(l, "a")
	tr.sink.OnWake()
	l.CheckAge(fake.Now())
	look(t, l, tr, fake, time.Second, nil)
	look(t, l, tr, fake, time.Millisecond, request.ErrTimeout)
	tr.sink.OnClose(tr.closed)
	p[0].wants(t, request.ErrNotSent, request.ErrTimeout)
}

func TestPipeline_Idle_Pings(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	fake.Advance(idleAfter - 1)
	l.CheckAge(fake.Now())
	if len(tr.wire) != 0 {
		t.Fatalf("wire %q after less than idleAfter", tr.wire)
	}
	fake.Advance(1)
	for range 3 {
		l.CheckAge(fake.Now()) // asks once
	}
	if string(tr.wire) != string(pingBytes) {
		t.Fatalf("wire %q, want one PING", tr.wire)
	}
	tr.sink.OnBytes([]byte("+PONG\r\n"))
	l.CheckAge(fake.Now())
	if len(tr.wire) != len(pingBytes) {
		t.Fatal("asked again at once")
	}
}

func TestPipeline_Idle_GivesMemoryBack(t *testing.T) {
	t.Parallel()
	l, tr, fake := scripted(nil)
	p := l.current.Load()
	tr.room = 0
	for range 900 {
		l.Submit(&textCall{text: strings.Repeat("x", 200)})
	}
	tr.room = 1 << 30
	tr.sink.OnWake()
	tr.sink.OnBytes([]byte(strings.Repeat(":1\r\n", 900)))
	if p.mu.fifo.Room() < 900 || cap(p.mu.out) <= keepCap {
		t.Fatalf("the test is too small: %d entries, %d bytes", p.mu.fifo.Room(), cap(p.mu.out))
	}
	fake.Advance(idleAfter)
	l.CheckAge(fake.Now())
	if p.mu.fifo.Room() > 64 || cap(p.mu.out) > keepCap {
		t.Fatalf("kept %d entries and %d bytes", p.mu.fifo.Room(), cap(p.mu.out))
	}
}

func TestPipeline_CompletePanics_DeliversTheRest(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	bad := &textCall{text: "a", then: func(request.Reply) { panic("boom") }}
	l.Submit(bad)
	p := submitTexts(l, "b")
	tr.sink.OnBytes([]byte(":1\r\n:2\r\n"))
	p[0].wantsInt(t, 2)
	if tr.closed == nil || !strings.Contains(tr.closed.Error(), "boom") {
		t.Fatalf("closed with %v", tr.closed)
	}
	bad.then = nil
	more := &textCall{text: "c", then: func(request.Reply) { panic("again") }}
	l.Submit(more)
	p = submitTexts(l, "d")
	tr.sink.OnClose(tr.closed)
	if p[0].reply == nil {
		t.Fatal("a panic on the way out swallowed the next request")
	}
}

// panicky is a Request whose AppendCommand panics for one form.
type panicky struct {
	textCall
	form request.ScriptForm
}

func (p *panicky) AppendCommand(dst []byte, form request.ScriptForm) []byte {
	if form == p.form {
		panic("oops")
	}
	return p.textCall.AppendCommand(dst, form)
}

func TestPipeline_AppendCommandPanics_GoesOn(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	bad := &panicky{textCall{text: "x"}, request.EvalSHA}
	l.Submit(bad)
	if err := bad.reply.Err; !errors.Is(err, request.ErrNotSent) || !strings.Contains(err.Error(), "oops") {
		t.Errorf("panic in submit: %v, want not sent", err)
	}
	worse := &panicky{textCall{text: "y"}, request.Eval}
	l.Submit(worse)
	after := submitTexts(l, "a")
	tr.sink.OnBytes([]byte("-NOSCRIPT x\r\n:1\r\n"))
	if se := (*wire.ServerError)(nil); !errors.As(worse.reply.Err, &se) || se.Code != "NOSCRIPT" {
		t.Errorf("panic while sending again: %v, want the server's answer", worse.reply.Err)
	}
	after[0].wantsInt(t, 1)
	if string(tr.wire) != "ya" || tr.closed != nil {
		t.Errorf("wire %q, closed with %v", tr.wire, tr.closed)
	}
}

func TestPipeline_WriteFails_Closes(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	tr.room, tr.err = 0, io.ErrClosedPipe
	p := submitTexts(l, "a")
	if tr.closed != io.ErrClosedPipe {
		t.Fatalf("closed with %v", tr.closed)
	}
	tr.sink.OnClose(tr.closed)
	p[0].wants(t, request.ErrNotSent, io.ErrClosedPipe)
}

func TestPipeline_EndsDuringAWrite_WriterStops(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	downs := 0
	l.cfg.Down = func(error) { downs++ }
	p := &textCall{text: "abcd"}
	tr.room = 2
	tr.during = func() {
		tr.during = nil
		tr.sink.OnClose(io.EOF) // in the middle of the write
	}
	l.Submit(p)
	p.wants(t, request.ErrNotSent, io.EOF)
	if downs != 1 || tr.wakes != 0 || string(tr.wire) != "ab" {
		t.Fatalf("%d downs, %d wakes, wire %q", downs, tr.wakes, tr.wire)
	}
}

func TestLane_ConnectionEnds_CompletesBeforeDown(t *testing.T) {
	t.Parallel()
	var p []*textCall
	down := false
	l, tr, _ := scripted(nil)
	l.cfg.Down = func(error) {
		down = true
		for _, one := range p {
			if one.reply == nil {
				t.Errorf("down before %q was completed", one.text)
			}
		}
		if l.Err() == nil {
			t.Error("up while down runs")
		}
	}
	for range 1000 { // several batches
		p = append(p, submitTexts(l, "a")...)
	}
	tr.sink.OnClose(io.EOF)
	if !down {
		t.Error("down was not called")
	}
}

func TestLane_Counters_OutliveTheConnection(t *testing.T) {
	t.Parallel()
	l, tr, _ := scripted(nil)
	submitTexts(l, "abc", "d")
	tr.sink.OnBytes([]byte(":1\r\n"))
	before := l.Counters()
	if want := (Counters{Commands: 2, BytesOut: 4, BytesIn: 4, InFlight: 1}); before != want {
		t.Fatalf("counters %+v, want %+v", before, want)
	}
	tr.sink.OnClose(io.EOF)
	before.InFlight = 0
	if after := l.Counters(); after != before {
		t.Fatalf("counters %+v after the end, want %+v", after, before)
	}
}

func TestLane_ClosedWhileAConnectionOpens_StaysDown(t *testing.T) {
	t.Parallel()
	l, _, _ := scripted(nil)
	l.current.Load().OnClose(io.EOF)
	p := newPipeline(l)
	l.Close(request.ErrClosed)
	tr := &scriptedTransport{sink: p, room: 1 << 30}
	p.OnOpen(tr)
	if l.Err() == nil || tr.closed != request.ErrClosed {
		t.Errorf("up: %v, the connection closed with %v", l.Err() == nil, tr.closed)
	}
	c := submitTexts(l, "a")
	c[0].wants(t, request.ErrNotSent, request.ErrClosed)
}
