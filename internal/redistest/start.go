package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

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
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	l, err := startLife(p.cfg.Binary, p.dir, conf, log, p.cfg.sentinel)
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
	if p.cert == nil {
		line("port", strconv.Itoa(p.port))
	} else {
		line("port", "0")
		line("tls-port", strconv.Itoa(p.port))
		line("tls-cert-file", p.cert.certFile)
		line("tls-key-file", p.cert.keyFile)
		auth := "no"
		if p.cfg.ClientCerts {
			auth = "yes"
		}
		line("tls-auth-clients", auth)
		line("tls-ca-cert-file", p.cert.certFile)
		line("tls-replication", "yes")
		line("tls-cluster", "yes")
	}
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
