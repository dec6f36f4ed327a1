package pipeline

import (
	"fmt"
	"sync"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp/internal/fifo"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

const (
	// defaultInlineDepth is how many commands may be in flight for a caller to
	// write the socket itself. Below it a write by the caller saves the hop to the
	// event loop; above it the loop's one write for many commands costs less. 8 had
	// the best throughput of 4, 8, 16, 24 and 48 at 16, 32 and 64 callers
	// (BenchmarkLane), and made 0.16 writes per command at 64, where 48 made 0.55.
	defaultInlineDepth = 8

	// batchSize is how many replies are taken off the FIFO under one lock.
	batchSize = 256

	// keepCap is the capacity up to which an emptied buffer is kept.
	keepCap = 64 << 10
)

// Pipeline is one connection of a lane: commands go out, replies come in, in the
// same order.
//
// Invariants:
//
//  1. Bytes and FIFO agree. One critical section appends a command's bytes to out
//     and its entry to fifo; both are only ever consumed from the front. So the
//     k-th reply belongs to the k-th entry, and everything else follows.
//  2. There is one writer at most: the goroutine that set mu.writing. It owns
//     out[off:len(out)] as it was when it took it; others append beyond that,
//     or move out to a larger array, and the writer reads its old one in peace.
//     mu is not held during the write.
//  3. Queued bytes are never forgotten. While out is not empty and the connection
//     lives, one of these holds: a writer is active and will look again
//     (writing); a wake is under way (armed); the loop is inside OnBytes and will
//     drain (draining); or the transport said "not now" to OnWake, and
//     the next OnBytes drains.
//  4. offered counts the bytes that a write has been given so far. It moves before
//     the write and back after a short one. A reply to a command that ends beyond
//     offered is a surprise.
//  5. The stamp of a write is recorded before the write, under mu. The other order
//     fails: the writer writes, is descheduled, the reply arrives and finds no
//     stamp.
//  6. Nobody is forgotten in the backlog. It gets entries only while the connection is
//     full or the backlog is not empty, and the loop lets them in as soon as it has
//     completed replies. Full means that commands are unanswered: so a reply is due,
//     or the end of the connection, which completes the backlog, too.
//  7. dead is set once; from then on nothing is appended, and the writer, if any,
//     touches nothing any more.
//  8. Once leaving is set, the connection takes no commands but those that end what others
//     have begun (Always). It is closed by the first of Leave and OnBytes that finds nothing
//     unanswered, or for its silence, as every connection is.
//
// Life of a command:
//
//	submit            lock: append bytes, push entry
//	                  nobody there to write, few in flight: become the writer
//	                  nobody there to write, many in flight: arm a wake
//	flush (writer)    until out is empty, at most maxRounds:
//	                  lock: stamp, take; unlock: write; lock: account
//	OnBytes (loop)    decode up to batchSize; lock: pop as many entries;
//	                  unlock: complete them; become the writer if something has
//	                  been queued meanwhile; again, until all is decoded
//	OnClose (loop)    lock: dead, take the whole fifo; unlock: complete all as
//	                  not sent or unknown, by the transport's final count
//
// While the connection is full, submit puts the entry into the backlog instead, and
// OnBytes admits it once replies have made room.
//
// Ownership of a Request passes to the pipeline in submit and back in Complete.
// Lock order: Lane.mu, Pipeline.mu. Neither is held over a call of the transport
// or of a Request's Complete.
//
// Rejected: an entry of its own per command with a channel (allocates, and every
// reply pays a lock); two buffers swapped by the writer (a short write then has to
// put its rest back in front); a write per command (one system call each); a
// runtime.Gosched of the loop before it drains, so that the callers it has woken
// submit first (fewer writes, but with every processor busy the loop queues once
// more behind the others, and the slowest percent waited half as long again).
type Pipeline struct {
	lane   *Lane
	t      socket.Transport // set in OnOpen
	mu     pipelineState
	reader replyReader // of the loop
}

// pipelineState is guarded by its mutex.
type pipelineState struct {
	sync.Mutex
	dead    bool
	leaving error // why the connection ends once all is answered

	fifo    fifo.Ring[Entry] // unanswered commands, oldest first
	start   uint64           // offset of the first byte of the oldest entry
	flushes fifo.Ring[flush] // writes that may hold unanswered commands

	backlog fifo.Backlog[Entry] // what waits for room

	out      []byte // encoded commands; the kernel has taken out[:off]
	off      int
	appended uint64 // bytes ever appended to out
	offered  uint64 // bytes ever given to a write

	writing  bool // a goroutine is the writer
	armed    bool // an OnWake will come
	draining bool // OnBytes is running and will drain

	evalOnly bool // the server knows no EVALSHA: scripts are sent whole

	lastRead clock.Instant // last bytes of the server
	stall    stall
	commands uint64
	resent   uint64
	bytesIn  uint64
}

// Entry is a command that waits for its reply. Offsets count the bytes of the
// connection from its start.
type Entry struct {
	Request request.Request
	end     uint64 // offset behind its last byte
	form    request.ScriptForm
	Hops    uint8 // how often it has been sent on
	Asked   bool  // ASKING goes before it
	Always  bool  // it is sent though the lane is full, or being left: it ends what others have begun

	admitted bool // from the backlog: it has waited for its turn
}

// flush is one write: the stamp taken before it, for every command whose first
// byte lies before end (and not before the end of the flush before).
type flush struct {
	end uint64
	at  clock.Instant
}

func newPipeline(l *Lane) *Pipeline { return &Pipeline{lane: l} }

// OnOpen makes the pipeline the lane's current one.
func (p *Pipeline) OnOpen(t socket.Transport) {
	p.t = t
	p.mu.lastRead = p.lane.cfg.Clock.Now()
	if ok, err := p.lane.opened(p); !ok {
		t.Close(err)
	}
}

// submit takes over what is to become an entry: its request, and how it came here.
func (p *Pipeline) submit(e Entry) {
	m := &p.mu
	m.Lock()
	switch {
	case m.dead || m.leaving != nil && !e.Always:
		m.Unlock()
		p.lane.Refuse(e, p.lane.Refusal())
		return
	case !e.Always && !e.admitted && (p.fullLocked() || m.backlog.Len() > 0):
		priority := request.PriorityOf(e.Request)
		if priority != request.PriorityNoWait {
			m.backlog.Push(e, priority)
		}
		m.Unlock()
		if priority == request.PriorityNoWait {
			p.lane.Refuse(e, request.RefusedFull)
		}
		return
	}
	if err := p.appendLocked(e); err != nil {
		m.Unlock()
		p.lane.Refuse(e, err)
		return
	}
	switch {
	case m.writing || m.armed || m.draining:
		m.Unlock()
	case m.fifo.Len() <= p.lane.cfg.inlineDepth:
		m.writing = true
		p.flushLocked(false)
	default:
		m.armed = true
		m.Unlock()
		p.t.Wake()
	}
}

func (p *Pipeline) fullLocked() bool {
	m := &p.mu
	cfg := &p.lane.cfg
	return m.fifo.Len() >= cfg.MaxInFlight || len(m.out)-m.off >= cfg.MaxQueuedBytes
}

// appendLocked keeps invariant 1. An error is a panic of AppendCommand, which
// leaves nothing behind: neither bytes nor an entry, and mu in order.
func (p *Pipeline) appendLocked(e Entry) (err error) {
	defer recoverAppend(&err)
	m := &p.mu
	before := len(m.out)
	if m.evalOnly {
		e.form = request.Eval
	}
	// A panic must leave neither bytes nor entry, so ASKING is not noted before the
	// command has been encoded behind it.
	out := m.out
	if e.Asked {
		out = append(out, askingBytes...)
	}
	out = e.Request.AppendCommand(out, e.form)
	m.out = out
	if e.Asked {
		m.fifo.Push(Entry{Request: asking{}, end: m.appended + uint64(len(askingBytes))})
		m.commands++
	}
	m.appended += uint64(len(m.out) - before)
	e.end = m.appended
	m.fifo.Push(e)
	m.commands++
	invariants.Check(m.start < m.appended && m.offered <= m.appended && p.takenLocked() <= m.appended, "resp: offsets of a pipeline")
	return nil
}

// asking announces the command behind it to a node that is about to take over a slot.
// If it is refused the command is, too.
type asking struct{}

var askingBytes = wire.AppendCommand(nil, "ASKING")

func (asking) AppendCommand(dst []byte, _ request.ScriptForm) []byte {
	return append(dst, askingBytes...)
}

func (asking) Complete(request.Reply) {}

// recoverAppend is deferred around calls of AppendCommand.
func recoverAppend(err *error) {
	if v := recover(); v != nil {
		*err = &request.Failure{Class: request.ErrNotSent, Cause: fmt.Errorf("resp: BUG: panic in AppendCommand: %v", v)}
	}
}

func (p *Pipeline) counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countersLocked()
}

func (p *Pipeline) countersLocked() Counters {
	m := &p.mu
	return Counters{
		Commands: m.commands,
		Resent:   m.resent,
		BytesOut: p.takenLocked(),
		BytesIn:  m.bytesIn,
		InFlight: m.fifo.Len(),
	}
}
