package socket

import (
	"errors"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

// stopTimeout bounds the waits for gnet, which can hang (its Enroll after a
// loop has died, its Stop beside a stuck handler). A healthy loop needs
// microseconds; ten seconds is far beyond a machine that is merely busy.
const stopTimeout = 10 * time.Second

// errStuck means that an event loop did not answer within stopTimeout.
var errStuck = errors.New("resp: event loop does not answer; later connections do without it")

// Loops owns what runs the connections of a client: the gnet event loops and
// the goroutines of the std transports.
//
// Invariants:
//
//  1. A transport is in mu.live from before its OnOpen until after its OnClose,
//     so Close can end and await every one.
//  2. After mu.closed is set nothing enters mu.live, and the reactor is stopped
//     only when mu.live is empty: gnet is never asked to enroll after its Stop
//     (it would hang for ever), and no callback is lost in it.
type Loops struct {
	n      int         // event loops; 0: every connection is std
	failed func(error) // called if the reactor does not start; then all are std
	// start makes the reactor for the first connection that it takes: a client whose
	// connections are all TLS, or all of its dialer's own kind, has no event loop.
	start struct {
		sync.Once
		reactor *reactor // nil: none is needed, or it did not start
	}
	stop struct {
		sync.Once
		err error
	}
	tracker
}

// tracker keeps the transports that live.
type tracker struct {
	limit time.Duration // stopTimeout, less in tests
	mu    struct {
		sync.Mutex
		closed bool
		live   map[Transport]struct{}
		empty  chan struct{} // set by Close; closed when live has run empty
	}
}

// NewLoops prepares n event loops (0: a number that suits the machine), or none if
// forceStd. They start when a connection needs them; failed is called if they do not.
func NewLoops(n int, forceStd bool, failed func(error)) *Loops {
	l := &Loops{n: n, failed: failed}
	l.limit = stopTimeout
	l.mu.live = make(map[Transport]struct{})
	switch {
	case forceStd:
		l.n = 0
	case n <= 0:
		l.n = defaultLoops(runtime.GOMAXPROCS(0))
	}
	return l
}

// defaultLoops is 1 below 8 processors. One loop serves several lanes at the
// full speed of a Redis server, and an idle loop sits in epoll_wait on a
// processor of the scheduler until it is retaken (golang/go#76290).
func defaultLoops(procs int) int { return min(max(procs/4, 1), 4) }

// Adopt takes over c, which must have no unread bytes in any buffer, and starts
// the events of s. c must not be used any more, whatever Adopt returns. An error
// means that s gets no event; otherwise its OnOpen has run. Not to be called by a
// sink: it waits for an event loop.
func (l *Loops) Adopt(c net.Conn, s Sink) (Transport, error) {
	// A dialer may have left one. Connections that have no deadlines at all, such
	// as those of an SSH tunnel, serve just as well.
	_ = c.SetDeadline(time.Time{})
	if l.n > 0 && (*reactor)(nil).takes(c) {
		if r := l.started(); r != nil {
			return r.adopt(c, s)
		}
	}
	return adoptStd(c, s, &l.tracker)
}

// started returns the reactor, made by the first call; nil after Close, or if it
// could not be made.
func (l *Loops) started() *reactor {
	l.start.Do(func() {
		r, err := newReactor(l.n, &l.tracker)
		if err != nil {
			l.failed(err)
			return
		}
		l.start.reactor = r
	})
	return l.start.reactor
}

// Close ends every connection (OnClose(ErrClosed)), waits until the last OnClose
// has returned, and stops the event loops. Not to be called by a sink. After
// errStuck it can be called again.
func (l *Loops) Close() error {
	if !l.waitFor(l.endAll()) {
		return errStuck
	}
	l.stop.Do(func() {
		l.start.Do(func() {}) // after this none starts
		if r := l.start.reactor; r != nil {
			l.stop.err = r.stop()
		}
	})
	return l.stop.err
}

// enter registers t, unless Close has begun.
func (k *tracker) enter(t Transport) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed {
		return request.ErrClosed
	}
	k.mu.live[t] = struct{}{}
	return nil
}

// leave is called after the OnClose of t has returned.
func (k *tracker) leave(t Transport) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.mu.live[t]; !ok {
		return
	}
	delete(k.mu.live, t)
	if k.mu.closed && len(k.mu.live) == 0 {
		close(k.mu.empty)
	}
}

// endAll closes every transport. The channel is closed when the last has left.
func (k *tracker) endAll() (empty <-chan struct{}) {
	k.mu.Lock()
	if k.mu.closed {
		defer k.mu.Unlock()
		return k.mu.empty
	}
	k.mu.closed = true
	k.mu.empty = make(chan struct{})
	all := slices.Collect(maps.Keys(k.mu.live))
	if len(all) == 0 {
		close(k.mu.empty)
	}
	k.mu.Unlock()
	for _, t := range all {
		t.Close(request.ErrClosed)
	}
	return k.mu.empty
}

// waitFor reports whether done was closed within the limit.
func (k *tracker) waitFor(done <-chan struct{}) bool {
	t := time.NewTimer(k.limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
