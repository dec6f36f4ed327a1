package topology

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/respio"
	"github.com/pawl-lock/pawl/resp/wire"
)

// world is servers behind pipes, for a bubble of testing/synctest. It is their reach, too.
type world struct {
	serving sync.WaitGroup
	mu      struct {
		sync.Mutex
		servers map[string]pipeServer
		asked   []string // addresses, in the order in which they were connected to
	}
}

// pipeServer is a server at this moment.
type pipeServer struct {
	answer func(words []string) string // a reply as it goes on the wire; "": silence
	fails  error                       // of connecting
	slow   time.Duration               // what connecting takes
}

const dialTimeout = 5 * time.Second

// full is what a server says that has too many clients.
var full = &wire.ServerError{Code: "ERR", Message: "ERR max number of clients reached"}

func newWorld() *world {
	w := new(world)
	w.mu.servers = make(map[string]pipeServer)
	return w
}

func (w *world) config(k Kind, addrs ...string) *Config {
	logger := slog.New(slog.DiscardHandler)
	return &Config{Kind: k, Addrs: addrs, Master: "m", Servers: w, Sentinels: w,
		Identity:    NewIdentity(k, addrs, clock.System(), logger),
		DialTimeout: dialTimeout, Clock: clock.System(), Logger: logger}
}

func (w *world) set(addr string, s pipeServer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.servers[addr] = s
}

func (w *world) get(addr string) (s pipeServer, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, known = w.mu.servers[addr]
	return s, known
}

// asked returns the addresses that were connected to since the last time.
func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.mu.asked
	w.mu.asked = nil
	return list
}

// close waits for what serves connections: a bubble's time ends with its test.
func (w *world) close() { w.serving.Wait() }

func (w *world) Connect(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.mu.asked = append(w.mu.asked, addr)
	w.mu.Unlock()
	s, known := w.get(addr)
	if !known {
		return nil, fmt.Errorf("%s refuses connections", addr)
	}
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.fails != nil {
		return nil, s.fails
	}
	here, there := net.Pipe()
	w.serving.Go(func() { w.serve(addr, there) })
	return here, nil
}

func (w *world) MayListen(string) bool { return true }

func (w *world) Listened(string, clock.Instant, error) {}

func (w *world) serve(addr string, conn net.Conn) {
	defer conn.Close()
	in := respio.NewReader(conn)
	for {
		_, args, err := in.Command()
		if err != nil {
			return
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		if s, _ := w.get(addr); s.answer != nil {
			if _, err := conn.Write([]byte(s.answer(words))); err != nil {
				return
			}
		}
	}
}

// saysPrimary is a primary without replicas.
func saysPrimary(words []string) string {
	switch strings.Join(words, " ") {
	case "ROLE":
		return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
	case "INFO replication":
		const info = "role:master\r\nmaster_replid:A\r\n"
		return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
	}
	return "-ERR unknown command\r\n"
}
