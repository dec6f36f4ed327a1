package pipeline

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/socket"
)

// scriptedTransport takes as many bytes as the test allows, and lets the test
// play the loop.
type scriptedTransport struct {
	mu     sync.Mutex
	sink   socket.Sink
	room   int // bytes that TryWrite and write still take
	err    error
	more   int    // bytes that a failing write takes and does not report
	during func() // runs inside every write, before it returns
	wire   []byte
	wakes  int
	closed error
	behind bool // bytes have arrived that the loop has not read
}

func (t *scriptedTransport) Unread() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.behind
}

func (t *scriptedTransport) TryWrite(b []byte) (int, error) {
	t.mu.Lock()
	if t.closed != nil {
		t.mu.Unlock()
		return 0, net.ErrClosed
	}
	n := min(len(b), t.room)
	t.room -= n
	t.wire = append(t.wire, b[:n]...)
	err, during := t.err, t.during
	if err != nil {
		t.wire = append(t.wire, b[n:min(len(b), n+t.more)]...)
	}
	t.mu.Unlock()
	if during != nil {
		during()
	}
	return n, err
}

func (t *scriptedTransport) Write(b []byte) (int, error) { return t.TryWrite(b) }

func (t *scriptedTransport) Sent() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return uint64(len(t.wire))
}

func (t *scriptedTransport) Wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wakes++
}

func (t *scriptedTransport) Close(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = err
	}
}

// scripted returns a lane that is up over a scripted transport with endless
// room, and its clock.
func scripted(change func(*Config)) (*Lane, *scriptedTransport, *clock.Fake) {
	fake := clock.NewFake()
	cfg := Config{
		Clock:          fake,
		CommandTimeout: time.Second,
		MaxInFlight:    1000,
		MaxQueuedBytes: 1 << 20,
		Down:           func(error) {},
	}
	if change != nil {
		change(&cfg)
	}
	l := NewLane(cfg)
	p := newPipeline(l)
	t := &scriptedTransport{sink: p, room: 1 << 30}
	p.OnOpen(t)
	return l, t, fake
}

// textCall is a Request with a text of its own.
type textCall struct {
	text  string
	reply *request.Reply
	then  func(request.Reply)
}

func (p *textCall) AppendCommand(dst []byte, form request.ScriptForm) []byte {
	if form == request.Eval {
		return append(dst, strings.ToUpper(p.text)...)
	}
	return append(dst, p.text...)
}

func (p *textCall) Complete(r request.Reply) {
	if p.reply != nil {
		panic("completed twice: " + p.text)
	}
	r.Value = r.Value.Clone()
	p.reply = &r
	if p.then != nil {
		p.then(r)
	}
}

func submitTexts(l *Lane, texts ...string) []*textCall {
	all := make([]*textCall, len(texts))
	for i, text := range texts {
		all[i] = &textCall{text: text}
		l.Submit(all[i])
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
	if other := request.ErrNotSent; class == request.ErrOutcomeUnknown && errors.Is(p.reply.Err, other) {
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

// testLane is a lane whose down calls can be awaited.
type testLane struct {
	*Lane
	downs chan error
}

func (w *world) newLane(change func(*Config)) *testLane {
	tl := &testLane{downs: make(chan error, 16)}
	cfg := Config{
		Clock:          clock.System(),
		CommandTimeout: 3 * time.Second,
		MaxInFlight:    1 << 14,
		MaxQueuedBytes: 4 << 20,
		inlineDepth:    w.Carrier.InlineDepth,
		Down:           func(err error) { tl.downs <- err },
	}
	if change != nil {
		change(&cfg)
	}
	tl.Lane = NewLane(cfg)
	return tl
}

// attached returns a lane that is up, and the server's end of its connection.
func (w *world) attached(change func(*Config), tune func(client, server net.Conn)) (*testLane, net.Conn) {
	w.t.Helper()
	l := w.newLane(change)
	client, server := w.Connect(tune)
	if err := l.Attach(w.loops, client); err != nil {
		w.t.Fatal(err)
	}
	return l, server
}

// world is the two ends of connections, and loops.
type world struct {
	*sockettest.World
	t     testing.TB
	loops *socket.Loops
}

func newWorld(t testing.TB, c sockettest.Carrier) *world {
	t.Helper()
	w := &world{World: sockettest.NewWorld(t, c), t: t}
	w.loops = socket.NewLoops(1, c.ForceStd, func(err error) { t.Errorf("no event loops: %v", err) })
	t.Cleanup(func() {
		if err := w.loops.Close(); err != nil {
			t.Errorf("closing the loops: %v", err)
		}
	})
	return w
}

// eachCarrier runs test over every carrier, in parallel.
func eachCarrier(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	for _, c := range sockettest.Carriers {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, c))
		})
	}
}
