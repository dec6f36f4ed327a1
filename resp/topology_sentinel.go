package resp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// sentinelTopology asks sentinels who the primary is, and hears from one of them
// when that changes.
type sentinelTopology struct {
	cfg       *Config
	sentinels Config // how to reach a sentinel
	mu        struct {
		sync.Mutex
		good  string   // the sentinel that answered last
		known []string // what it said of the others
	}
}

func newSentinelTopology(c *Config) *sentinelTopology {
	t := &sentinelTopology{cfg: c, sentinels: *c}
	s := &t.sentinels
	s.Username, s.Password, s.Credentials = c.SentinelUsername, c.SentinelPassword, nil
	s.DB = 0
	return t
}

// candidates lists sentinels, the one that answered last first.
func (t *sentinelTopology) candidates() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return candidates(t.mu.good, t.mu.known, t.cfg.Addrs)
}

// find believes a sentinel only if the server that it names agrees: right after a
// failover some sentinels have not heard yet.
func (t *sentinelTopology) find(ctx context.Context, _ string) (*layout, error) {
	var failed []error
	for _, addr := range t.candidates() {
		primary, err := t.ask(ctx, addr)
		if err == nil {
			return &layout{shards: []Shard{{Last: slotCount - 1, Primary: primary}}}, nil
		}
		if failed = append(failed, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failed...)
}

func (t *sentinelTopology) ask(ctx context.Context, sentinel string) (primary string, err error) {
	v, err := t.sentinels.scout(ctx, sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", t.cfg.Master)
	if err != nil {
		return "", refusedBySentinel(err)
	}
	e := elements(v)
	if len(e) != 2 {
		return "", fmt.Errorf("resp: sentinel %s: %w", sentinel, &ServerError{Code: "ERR", Message: "ERR No such master with that name: " + t.cfg.Master})
	}
	primary = t.cfg.announced(string(e[0].Bytes), string(e[1].Bytes), sentinel)
	role, err := t.cfg.scout(ctx, primary, "ROLE")
	if err == nil {
		err = isPrimary(role)
	}
	if err != nil {
		return "", fmt.Errorf("resp: sentinel %s names %s: %w", sentinel, primary, err)
	}
	others, err := t.sentinels.scout(ctx, sentinel, "SENTINEL", "SENTINELS", t.cfg.Master)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.good = sentinel
	if err == nil { // it is a matter of luck, not of need
		t.mu.known = t.others(others, sentinel)
	}
	return primary, nil
}

// refusedBySentinel says whose credentials are meant, if that is the trouble.
func refusedBySentinel(err error) error {
	var e *ServerError
	if errors.As(err, &e) && (e.Code == "NOAUTH" || e.Code == "WRONGPASS") {
		return fmt.Errorf("%w: %w", ErrSentinelAuth, err)
	}
	return err
}

// others reads the answer to SENTINEL SENTINELS: for each a flat list of fields.
func (t *sentinelTopology) others(v Value, asked string) []string {
	var addrs []string
	for _, s := range elements(v) {
		var host, port string
		fields := elements(s)
		for i := 0; i+1 < len(fields); i += 2 {
			switch string(fields[i].Bytes) {
			case "ip":
				host = string(fields[i+1].Bytes)
			case "port":
				port = string(fields[i+1].Bytes)
			}
		}
		if port != "" {
			addrs = append(addrs, t.cfg.announced(host, port, asked))
		}
	}
	return addrs
}

// watch listens to one sentinel, or to the next one when that is gone; whenever it
// begins to listen, something may have happened before.
func (t *sentinelTopology) watch(ctx context.Context, changed func()) {
	for pause := backoffMin; ctx.Err() == nil; pause = min(2*pause, backoffMax) {
		for _, addr := range t.candidates() {
			begun := t.cfg.Clock.Now()
			if t.listen(ctx, addr, changed) {
				if t.cfg.Clock.Now().Sub(begun) > backoffMax {
					pause = backoffMin
				}
				break // begin with the best one again
			}
		}
		sleep(ctx, pause)
	}
}

// listen follows one sentinel until it is gone; false if it could not be reached.
func (t *sentinelTopology) listen(ctx context.Context, addr string, changed func()) bool {
	cfg := t.sentinels
	cfg.Network, cfg.Addr = networkOf(addr), addr
	conn, err := cfg.connect(ctx, roleScout)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err = conn.Write(AppendCommand(nil, "SUBSCRIBE", "+switch-master"))
	in := replyStream{conn: conn}
	for err == nil {
		// A sentinel whose machine is gone says nothing; TCP's keep-alive finds out.
		var v Value
		if v, err = in.next(); err != nil {
			break
		}
		e := elements(v)
		switch {
		case v.Kind == KindError:
			return false
		case len(e) == 3 && string(e[0].Bytes) == "subscribe":
			changed()
		case len(e) == 3 && string(e[0].Bytes) == "message" && strings.HasPrefix(string(e[2].Bytes), t.cfg.Master+" "):
			changed()
		}
	}
	return !errors.Is(err, net.ErrClosed)
}

// sleep pauses; false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
