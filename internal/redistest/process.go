package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says how to start a server. The zero value is a plain one.
type Config struct {
	// Binary is the server's path; empty: what Binary finds.
	Binary string
	// Password is requirepass; empty: none.
	Password string
	// Users are ACL rules as in redis.conf, without the word "user".
	Users []string
	// Lines go to the end of redis.conf.
	Lines []string
}

// Process is a server process that can be killed, stopped and started again, on
// the same port and socket. Its methods are safe for any goroutine.
type Process struct {
	cfg  Config
	dir  string
	port int

	// lifecycle serialises Kill, Restart and Close.
	lifecycle sync.Mutex

	mu struct {
		sync.Mutex
		life *life // the running server, or the last one
	}
}

// Ports are picked below the ranges from which Linux (32768 up) and macOS (49152
// up) choose the local port of an outgoing connection. Inside them, a client that
// dials a killed server again and again is in the end given the server's own port,
// connects to itself, and the restarted server finds its port in use. The cluster
// bus, 10000 above, still fits.
const (
	portFirst = 10000
	portEnd   = 32000
)

// bindAttempts bounds the search for a free port.
const bindAttempts = 50

// StartProcess starts a server on a free port of 127.0.0.1 and on a unix socket,
// and waits until it answers. ctx bounds the start only. The caller closes it.
func StartProcess(ctx context.Context, cfg Config) (*Process, error) {
	if cfg.Binary == "" {
		path, err := Binary()
		if err != nil {
			return nil, err
		}
		cfg.Binary = path
	}
	// Not a test's own temporary directory: a socket's path must stay under 104 bytes.
	dir, err := os.MkdirTemp("", "pawl-redis-")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	p := &Process{cfg: cfg, dir: dir}
	for range bindAttempts {
		p.port = portFirst + rand.IntN(portEnd-portFirst)
		if !portFree(p.port) {
			continue
		}
		err = p.start(ctx)
		// Somebody else may have taken the port since it was looked at.
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil || p.life() == nil {
		os.RemoveAll(dir)
		if err == nil {
			err = fmt.Errorf("redistest: no free port in %d attempts", bindAttempts)
		}
		return nil, err
	}
	return p, nil
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// Addr is the TCP address, "127.0.0.1:port".
func (p *Process) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Socket is the path of the unix socket.
func (p *Process) Socket() string { return filepath.Join(p.dir, "redis.sock") }

// Dir is the server's working directory.
func (p *Process) Dir() string { return p.dir }

// URL is the redis:// URL of the TCP address, with the password if there is one.
func (p *Process) URL() string {
	u := url.URL{Scheme: "redis", Host: p.Addr()}
	if p.cfg.Password != "" {
		u.User = url.UserPassword("", p.cfg.Password)
	}
	return u.String()
}

// PID is the process id of the running server, or of the last one.
func (p *Process) PID() int { return p.life().process.Pid }

// Kill ends the server at once (SIGKILL) and waits until it is gone. Killing a
// dead one does nothing.
func (p *Process) Kill() error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.life().kill()
	return nil
}

// Restart kills the server if it runs and starts it again on the same port and
// socket. It kept nothing on disk, so it comes back empty, unless Lines say
// otherwise.
func (p *Process) Restart(ctx context.Context) error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.life().kill()
	for {
		err := p.start(ctx)
		if !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return err
		}
		// Whoever passed by is asked to leave the port for as long as ctx lives.
		if !sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// Stop freezes the server (SIGSTOP) and returns when it stands: connections stay
// open and nothing answers.
func (p *Process) Stop() error { return p.life().stop() }

// Cont lets a stopped server go on (SIGCONT).
func (p *Process) Cont() error { return p.life().cont() }

// Close kills the server, waits for it and removes its directory. Closing twice
// does nothing.
func (p *Process) Close() error {
	p.lifecycle.Lock()
	defer p.lifecycle.Unlock()
	p.life().kill()
	return os.RemoveAll(p.dir)
}

// logTail is how much of a server's log is worth printing.
const logTail = 4096

// Log returns the end of the server's log, all its lives included.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	if len(b) > logTail {
		b = b[len(b)-logTail:]
	}
	return string(bytes.TrimSpace(b))
}

func (p *Process) logPath() string { return filepath.Join(p.dir, "log") }

func (p *Process) life() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.life
}

// errPortTaken means that the server could not bind its port.
var errPortTaken = errors.New("redistest: port already in use")

// start begins a life of the server and waits until it answers.
func (p *Process) start(ctx context.Context) error {
	conf := filepath.Join(p.dir, "redis.conf")
	if err := os.WriteFile(conf, []byte(p.config()), 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	defer log.Close() // the child has its own
	before, err := log.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	l, err := startLife(p.cfg.Binary, p.dir, conf, log)
	if err != nil {
		return fmt.Errorf("redistest: starting %s: %w", p.cfg.Binary, err)
	}
	if err := p.awaitReady(ctx, l); err != nil {
		l.kill()
		said := p.logFrom(before)
		if bytes.Contains(said, []byte("ddress already in use")) {
			return errPortTaken
		}
		return fmt.Errorf("redistest: %s is not ready: %w; it said:\n%s", p.cfg.Binary, err, said)
	}
	p.mu.Lock()
	p.mu.life = l
	p.mu.Unlock()
	return nil
}

func (p *Process) logFrom(offset int64) []byte {
	b, err := os.ReadFile(p.logPath())
	if err != nil || int64(len(b)) < offset {
		return nil
	}
	return bytes.TrimSpace(b[offset:])
}

// awaitReady pings through the unix socket: its path is ours alone, while on the
// port a server of somebody else might answer. A server serves nobody before it
// has bound everything.
func (p *Process) awaitReady(ctx context.Context, l *life) error {
	for {
		_, err := p.Do("PING")
		if err == nil {
			return nil
		}
		select {
		case <-l.exited:
			return fmt.Errorf("it exited (%w)", l.err)
		default:
		}
		if !sleep(ctx, 2*time.Millisecond) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// sleep waits for d and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *Process) config() string {
	var b strings.Builder
	line := func(words ...string) { b.WriteString(strings.Join(words, " ") + "\n") }
	line("bind", "127.0.0.1")
	line("port", strconv.Itoa(p.port))
	line("unixsocket", p.Socket())
	line("unixsocketperm", "700")
	line("dir", p.dir)
	line("daemonize", "no")
	line("save", `""`)
	line("appendonly", "no")
	if p.cfg.Password != "" {
		line("requirepass", strconv.Quote(p.cfg.Password))
	}
	for _, rule := range p.cfg.Users {
		line("user", rule)
	}
	if len(p.cfg.Users) > 0 {
		line("user", adminUser, "on", ">"+adminPassword, "~*", "&*", "+@all")
	}
	for _, l := range p.cfg.Lines {
		line(l)
	}
	return b.String()
}
