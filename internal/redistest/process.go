package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
	// TLS makes the TCP port speak TLS, and only TLS; the unix socket stays plain.
	TLS bool
	// ClientCerts makes it refuse clients that show no certificate.
	ClientCerts bool
	// Lines go to the end of redis.conf.
	Lines []string

	sentinelPassword string // that its sentinels, if any, ask for

	sentinel bool        // it is a sentinel
	cert     *serverCert // of another server, which it shares
	lone     bool        // all of its cluster
	needs    []Ability
}

// hasBus reports whether the server is a node of a cluster, which has a port for its bus, too.
func (c *Config) hasBus() bool {
	return slices.ContainsFunc(c.Lines, func(l string) bool { return strings.HasPrefix(l, "cluster-enabled yes") })
}

// Process is a server process that can be killed, stopped and started again, on
// the same port and socket. Its methods are safe for any goroutine.
type Process struct {
	cfg  Config
	dir  string
	port int
	// reserved keeps port until Close.
	reserved reservation
	cert     *serverCert // nil without TLS

	// lifecycle serialises Kill, Restart and Close.
	lifecycle sync.Mutex

	mu struct {
		sync.Mutex
		life *life // the running server, or the last one
	}
}

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
	if err := p.setUpTLS(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	for range bindAttempts {
		var ok bool
		if p.port, p.reserved, ok = reserve(cfg.hasBus()); !ok {
			continue
		}
		err = p.start(ctx)
		// Somebody else may have taken the port since it was looked at.
		if !errors.Is(err, errPortTaken) {
			break
		}
		p.reserved.release()
	}
	if err != nil || p.life() == nil {
		p.reserved.release()
		os.RemoveAll(dir)
		if err == nil {
			err = fmt.Errorf("redistest: no free port in %d attempts", bindAttempts)
		}
		return nil, err
	}
	return p, nil
}

// Addr is the TCP address, "127.0.0.1:port".
func (p *Process) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Socket is the path of the unix socket.
func (p *Process) Socket() string { return filepath.Join(p.dir, "redis.sock") }

// Dir is the server's working directory.
func (p *Process) Dir() string { return p.dir }

// URL is the redis:// URL of the TCP address (rediss:// with TLS, redis+cluster:// after
// StartLone), with the password if there is one.
func (p *Process) URL() string {
	u := url.URL{Scheme: "redis", Host: p.Addr()}
	if p.cert != nil {
		u.Scheme = "rediss"
	}
	if p.cfg.lone {
		u.Scheme += "+cluster"
	}
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
		// Another process may have the port for a moment: it is tried for as long as ctx lives.
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
	p.reserved.release()
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

// Running reports whether the server has not exited.
func (p *Process) Running() bool {
	select {
	case <-p.life().exited:
		return false
	default:
		return true
	}
}

func (p *Process) logPath() string { return filepath.Join(p.dir, "log") }

func (p *Process) life() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.life
}
