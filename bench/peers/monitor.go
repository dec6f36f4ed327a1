package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// monitor counts the commands of clients, one by one, as MONITOR shows them. The server's own
// counters do not tell a plain command of a client, as Redisson sends them, from that of a script.
// It slows the server down, so nothing else is measured meanwhile.
type monitor struct {
	conn  net.Conn
	seen  atomic.Int64
	ended chan struct{}
}

// openMonitor begins to count, on a server without a password.
func openMonitor(ctx context.Context, server string) (*monitor, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, ended: make(chan struct{})}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !lines.Scan() {
		return nil, errors.Join(errors.New("MONITOR"), err, lines.Err(), conn.Close())
	}
	go func() {
		defer close(m.ended)
		for lines.Scan() {
			if line := lines.Text(); !strings.Contains(line, " lua] ") && !strings.Contains(line, `] "PING"`) {
				m.seen.Add(1)
			}
		}
	}()
	return m, nil
}

// count returns how many were seen, when no more come.
func (m *monitor) count() int64 {
	for last := int64(-1); ; {
		n := m.seen.Load()
		if n == last {
			return n
		}
		last = n
		time.Sleep(50 * time.Millisecond)
	}
}

func (m *monitor) Close() error {
	err := m.conn.Close()
	<-m.ended
	return err
}
