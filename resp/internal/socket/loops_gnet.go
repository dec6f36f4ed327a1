//go:build (linux || darwin || freebsd) && !pawl_nognet

package socket

import (
	"context"
	"errors"
	"net"
	"runtime/pprof"
	"sync"
	"syscall"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// reactor is a gnet client: a few event loops that all connections share.
//
// gnet needs care on the way in and out: Enroll blocks until the loop has opened
// the connection, for ever if the loop is gone; a second Stop closes descriptors
// that are somebody else's by then. So enrolling is serialised (which also lets
// gnet's count of connections per loop see the one before), both wait on a
// goroutine of their own with a time limit, and loops calls stop once, after the
// last connection has ended.
type reactor struct {
	gnet.BuiltinEventEngine
	client  *gnet.Client
	tracker *tracker

	enrolling struct {
		sync.Mutex
		stuck bool // a loop did not answer: later connections do without it
	}
}

func newReactor(n int, k *tracker) (*reactor, error) {
	r := &reactor{tracker: k}
	client, err := gnet.NewClient(r,
		gnet.WithNumEventLoop(n),
		gnet.WithReadBufferCap(readBufferSize),
		gnet.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	r.client = client
	// The loops' goroutines inherit the label.
	pprof.Do(context.Background(), pprof.Labels("role", "resp event loop"), func(context.Context) {
		err = client.Start()
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// takes reports whether gnet can serve c. It reads the descriptor itself, so TLS
// and wrapped connections are out; with an IPv6 zone it would corrupt the zone
// names that Go's net package shares.
func (*reactor) takes(c net.Conn) bool {
	switch c.(type) {
	case *net.UnixConn:
		return true
	case *net.TCPConn:
		return !hasZone(c.LocalAddr()) && !hasZone(c.RemoteAddr())
	}
	return false
}

func hasZone(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.Zone != ""
}

func (r *reactor) adopt(c net.Conn, s Sink) (Transport, error) {
	r.enrolling.Lock()
	defer r.enrolling.Unlock()
	if r.enrolling.stuck {
		return adoptStd(c, s, r.tracker)
	}
	urgentInline(c)
	t := &gnetTransport{sink: s, tracker: r.tracker}
	if err := r.tracker.enter(t); err != nil {
		c.Close()
		return nil, err
	}
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err = r.client.EnrollContext(c, t)
	}()
	if !r.tracker.waitFor(done) && t.giveUp() {
		r.enrolling.stuck = true
		r.tracker.leave(t)
		return nil, errStuck
	}
	if t.isOpen() {
		return t, nil
	}
	if err == nil {
		// gnet does not report when the poller refuses the descriptor.
		err = errors.New("resp: event loop cannot watch the connection; check the limit on open files")
	}
	r.tracker.leave(t)
	return nil, err
}

// urgentInline has TCP's urgent data come with the rest, where it is a surprise like any
// other. Left aside, a byte of it would keep the descriptor ready, with nothing to read,
// and the loop in circles.
func urgentInline(c net.Conn) {
	socket, err := c.(syscall.Conn).SyscallConn()
	if err == nil { // else it has ended
		_ = socket.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
	}
}

// stop ends the event loops. It is called once, when no connection is left.
func (r *reactor) stop() error {
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = r.client.Stop()
	}()
	if !r.tracker.waitFor(done) {
		return errStuck
	}
	return err
}

// quiet drops what gnet logs: it comes from a library deep below the user's
// lock, goes to stdout by default, and says nothing that OnClose does not.
type quiet struct{}

func (quiet) Debugf(string, ...any) {}
func (quiet) Infof(string, ...any)  {}
func (quiet) Warnf(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}
