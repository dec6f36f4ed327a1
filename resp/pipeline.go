package resp

import (
	"sort"
	"sync"

	"github.com/pawl-lock/pawl/internal/clock"
)

const (
	// defaultInlineDepth is how many commands may be in flight for a caller to
	// write the socket itself. Below it a write by the caller saves the hop to the
	// event loop; above it the loop's one write for many commands costs less. 8 had
	// the best throughput of 4, 8, 16, 24 and 48 at 16, 32 and 64 callers
	// (BenchmarkLane), and made 0.16 writes per command at 64, where 48 made 0.55.
	defaultInlineDepth = 8

	// maxRounds is how often in a row one goroutine writes what others have
	// appended in the meantime, before it passes the work on to the loop: no caller
	// is made the writer of everybody.
	maxRounds = 4

	// batchSize is how many replies are taken off the FIFO under one lock.
	batchSize = 256

	// maxHandOver is how much onWake gives to a write, up to the next end of a
	// command. What gnet has in its buffer counts as sent, though no kernel has
	// seen it; this bounds how many commands are in doubt for that reason alone.
	// And it ends a command, so that a reply comes when the buffer has run empty.
	maxHandOver = 64 << 10

	// keepCap is the capacity up to which an emptied buffer is kept.
	keepCap = 64 << 10
)

// pipeline is one connection of a lane: commands go out, replies come in, in the
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
//     (writing); a wake is under way (armed); the loop is inside onBytes and will
//     drain (draining); or the transport said "not now" to onWake, and
//     the next onBytes drains.
//  4. offered counts the bytes that a write has been given so far. It moves before
//     the write and back after a short one. A reply to a command that ends beyond
//     offered is a surprise.
//  5. The stamp of a write is recorded before the write, under mu. The other order
//     fails: the writer writes, is descheduled, the reply arrives and finds no
//     stamp.
//  6. dead is set once; from then on nothing is appended, and the writer, if any,
//     touches nothing any more.
//
// Life of a command:
//
//	submit            lock: append bytes, push entry
//	                  nobody there to write, few in flight: become the writer
//	                  nobody there to write, many in flight: arm a wake
//	flush (writer)    until out is empty, at most maxRounds:
//	                  lock: stamp, take; unlock: write; lock: account
//	onBytes (loop)    decode up to batchSize; lock: pop as many entries;
//	                  unlock: complete them; become the writer if something has
//	                  been queued meanwhile; again, until all is decoded
//	onClose (loop)    lock: dead, take the whole fifo; unlock: complete all as
//	                  not sent or unknown, by the transport's final count
//
// Ownership of a Request passes to the pipeline in submit and back in Complete.
// Lock order: lane.mu, pipeline.mu. Neither is held over a call of the transport
// or of a Request's Complete.
//
// Rejected: an entry of its own per command with a channel (allocates, and every
// reply pays a lock); two buffers swapped by the writer (a short write then has to
// put its rest back in front); a write per command (one system call each).
type pipeline struct {
	lane   *lane
	t      transport // set in onOpen
	mu     pipelineState
	reader replyReader // of the loop
}

// pipelineState is guarded by its mutex.
type pipelineState struct {
	sync.Mutex
	dead bool

	fifo    ring[entry] // unanswered commands, oldest first
	start   uint64      // offset of the first byte of the oldest entry
	flushes ring[flush] // writes that may hold unanswered commands

	out      []byte // encoded commands; the kernel has taken out[:off]
	off      int
	appended uint64 // bytes ever appended to out
	offered  uint64 // bytes ever given to a write

	writing  bool // a goroutine is the writer
	armed    bool // an onWake will come
	draining bool // onBytes is running and will drain

	heard    clock.Instant // last bytes of the server
	stall    stall
	commands uint64
	resent   uint64
	bytesIn  uint64
}

// entry is a command that waits for its reply. Offsets count the bytes of the
// connection from its start.
type entry struct {
	request Request
	end     uint64 // offset behind its last byte
	form    Form
}

// flush is one write: the stamp taken before it, for every command whose first
// byte lies before end (and not before the end of the flush before).
type flush struct {
	end uint64
	at  clock.Instant
}

func newPipeline(l *lane) *pipeline { return &pipeline{lane: l} }

// onOpen makes the pipeline the lane's current one.
func (p *pipeline) onOpen(t transport) {
	p.t = t
	p.mu.heard = p.lane.cfg.clock.Now()
	if ok, err := p.lane.opened(p); !ok {
		t.close(err)
	}
}

func (p *pipeline) submit(r Request) {
	m := &p.mu
	m.Lock()
	switch {
	case m.dead:
		m.Unlock()
		p.lane.refuse(r, p.lane.refusal())
		return
	case p.fullLocked():
		m.Unlock()
		p.lane.refuse(r, errRefusedFull)
		return
	}
	p.appendLocked(r, Short)
	switch {
	case m.writing || m.armed || m.draining:
		m.Unlock()
	case m.fifo.len() <= p.lane.cfg.inlineDepth:
		m.writing = true
		p.flushLocked(false)
	default:
		m.armed = true
		m.Unlock()
		p.t.wake()
	}
}

func (p *pipeline) fullLocked() bool {
	m := &p.mu
	cfg := &p.lane.cfg
	return m.fifo.len() >= cfg.maxInFlight || len(m.out)-m.off >= cfg.maxQueuedBytes
}

// appendLocked keeps invariant 1.
func (p *pipeline) appendLocked(r Request, form Form) {
	m := &p.mu
	before := len(m.out)
	m.out = r.AppendCommand(m.out, form)
	m.appended += uint64(len(m.out) - before)
	m.fifo.push(entry{request: r, end: m.appended, form: form})
	m.commands++
}

// flushLocked writes what is queued. The caller has made itself the writer; it is
// no longer when flushLocked returns. mu is held at the call and not after it.
// wakened says that the caller is onWake.
func (p *pipeline) flushLocked(wakened bool) {
	m := &p.mu
	for round := 0; ; round++ {
		b := m.out[m.off:]
		if len(b) == 0 || m.dead {
			m.writing = false
			m.Unlock()
			return
		}
		if round == maxRounds {
			p.wakeLocked()
			return
		}
		if wakened && len(b) > maxHandOver {
			b = b[:p.boundaryLocked(maxHandOver)]
		}
		m.offered = p.takenLocked() + uint64(len(b))
		m.flushes.push(flush{end: m.offered, at: p.lane.cfg.clock.Stamp()})
		m.Unlock()

		var n int
		var err error
		if wakened {
			n, err = p.t.write(b)
		} else {
			n, err = p.t.tryWrite(b)
		}

		m.Lock()
		if m.dead {
			continue
		}
		p.tookLocked(n, n == len(b))
		switch {
		case err != nil:
			// Later requests queue up behind and are completed as not sent in
			// onClose, which follows.
			m.writing = false
			m.Unlock()
			p.t.close(err)
			return
		case n == len(b):
		case wakened:
			m.writing = false
			m.Unlock()
			return
		default:
			p.wakeLocked()
			return
		}
	}
}

// wakeLocked passes the work of the writer on to onWake, and unlocks.
func (p *pipeline) wakeLocked() {
	m := &p.mu
	m.writing = false
	wake := !m.armed
	m.armed = true
	m.Unlock()
	if wake {
		p.t.wake()
	}
}

// takenLocked is the number of bytes that writes have taken so far.
func (p *pipeline) takenLocked() uint64 {
	m := &p.mu
	return m.appended - uint64(len(m.out)-m.off)
}

// boundaryLocked returns the length of the shortest run of whole commands at the
// front of what is queued that has at least size bytes.
func (p *pipeline) boundaryLocked(size int) int {
	m := &p.mu
	taken := p.takenLocked()
	i := sort.Search(m.fifo.len(), func(i int) bool { return m.fifo.at(i).end >= taken+uint64(size) })
	return int(m.fifo.at(i).end - taken)
}

// tookLocked accounts for a write that took n bytes; whole: all it was given.
func (p *pipeline) tookLocked(n int, whole bool) {
	m := &p.mu
	m.off += n
	if !whole {
		// The commands that begin in the rest get the stamp of a later write. The
		// flush is still there: no command beyond what was taken has a reply.
		m.offered = p.takenLocked()
		if n == 0 {
			m.flushes.unpush()
		} else {
			m.flushes.back().end = m.offered
		}
	}
	switch {
	case m.off == len(m.out):
		m.out, m.off = m.out[:0], 0
	case m.off >= keepCap:
		// Under steady load out may never be empty, and without this it would grow
		// for ever. What moves is what was appended during one write.
		m.out, m.off = m.out[:copy(m.out, m.out[m.off:])], 0
	}
}

// onWake writes what is queued, on the loop (gnet) or on the writer goroutine
// (std).
func (p *pipeline) onWake() {
	m := &p.mu
	m.Lock()
	m.armed = false
	if m.writing {
		m.Unlock() // it looks again before it leaves
		return
	}
	m.writing = true
	p.flushLocked(true)
}

// drain writes what has been queued while replies were completed, by the loop in
// the main: on gnet one write for all. got bytes had arrived.
func (p *pipeline) drain(now clock.Instant, got int) {
	m := &p.mu
	m.Lock()
	m.draining = false
	m.heard = now
	m.bytesIn += uint64(got)
	if m.writing {
		m.Unlock()
		return
	}
	m.writing = true
	p.flushLocked(false)
}

func (p *pipeline) counters() laneCounters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countersLocked()
}

func (p *pipeline) countersLocked() laneCounters {
	m := &p.mu
	return laneCounters{
		Commands: m.commands,
		Resent:   m.resent,
		BytesOut: p.takenLocked(),
		BytesIn:  m.bytesIn,
		InFlight: m.fifo.len(),
	}
}
