package enginetest

import (
	"context"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/serverconfig"
	"github.com/pawl-lock/pawl/resp"
)

// NewOn is New on a real server that runs already, redis://127.0.0.1:6379 for instance: for load, and
// for what the embedded server cannot do. It must be one plain server, without TLS. Clients reach
// it through a proxy, at the Env's URL, so that all faults of an Env can be had; Down is a
// network that is away.
//
// The data of the server stays as it is: use names of your own, or a database of your own.
func NewOn(t testing.TB, url string, change ...func(*engine.Config)) *Env {
	t.Helper()
	cfg, err := engine.ParseURL(url)
	if err != nil {
		t.Fatalf("enginetest: %v", err)
	}
	direct := serverconfig.Config(cfg)
	if direct.Topology != resp.Standalone || cfg.TLS != nil {
		t.Fatal("enginetest: NewOn needs the URL of one plain server: redis://host:port")
	}
	s := &remote{t: t, direct: direct, proxy: faultproxy.New(t, direct.Network, direct.Addr), up: true}
	cfg.Addrs = []string{s.proxy.Addr()}
	if cfg.Lease == 0 {
		cfg.Lease = Lease
	}
	return start(t, &Env{URL: s.url(), server: s, config: cfg}, change)
}

// remote is a server outside of the test's process, with a proxy before it.
type remote struct {
	t      testing.TB
	direct resp.Config
	proxy  *faultproxy.Proxy

	mu      sync.Mutex
	up      bool
	clients map[int]*resp.Client // by database; not through the proxy
	drops   []*faultproxy.Trap
	refuses *faultproxy.Trap
}

func (s *remote) url() string {
	u := url.URL{Scheme: "redis", Host: s.proxy.Addr()}
	if s.direct.Password != "" {
		u.User = url.UserPassword(s.direct.Username, s.direct.Password)
	}
	if s.direct.DB != 0 {
		u.Path = "/" + strconv.Itoa(s.direct.DB)
	}
	return u.String()
}

func (s *remote) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up {
		s.up = false
		s.proxy.Down()
	}
}

func (s *remote) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		s.up = true
		s.proxy.Up()
	}
	return nil
}

func (s *remote) Delay(d time.Duration) { s.proxy.Delay(faultproxy.All, 0, d) }

// isScript matches the commands of locks.
func isScript(c faultproxy.Command) bool {
	return faultproxy.Is("EVALSHA")(c) || faultproxy.Is("EVAL")(c)
}

func (s *remote) DropReplies(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, trap := range s.drops {
		trap.Remove()
	}
	s.drops = nil
	for range n {
		s.drops = append(s.drops, s.proxy.CutAfterRequest(isScript))
	}
}

func (s *remote) Refuse(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses != nil {
		s.refuses.Remove()
		s.refuses = nil
	}
	if text != "" {
		s.refuses = s.proxy.ReplaceReply(isScript, []byte("-"+text+"\r\n"), -1)
	}
}

func (s *remote) Heal() {
	s.Delay(0)
	s.DropReplies(0)
	s.Refuse("")
}

func (s *remote) SetReplicas(int) {
	s.t.Error("enginetest: Replicas: the server of NewOn has the replicas that it has")
}

func (s *remote) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		_ = c.Close()
	}
}

// do sends a command past the proxy.
func (s *remote) do(db int, words ...string) resp.Value {
	s.t.Helper()
	s.mu.Lock()
	c := s.clients[db]
	if c == nil {
		cfg := s.direct
		cfg.DB = db
		c = resp.Open(cfg)
		if s.clients == nil {
			s.clients = make(map[int]*resp.Client)
		}
		s.clients[db] = c
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	var v resp.Value
	err := c.WaitReady(ctx)
	if err == nil {
		v, err = c.Do(ctx, words...)
	}
	if err != nil {
		s.t.Errorf("enginetest: %s: %v", words[0], err)
	}
	return v
}

func texts(list resp.Value) (all []string) {
	for _, v := range list.Each {
		all = append(all, string(v.Bytes))
	}
	return all
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (s *remote) Type(db int, key string) string { return string(s.do(db, "TYPE", key).Bytes) }

func (s *remote) Keys(db int) []string { return texts(s.do(db, "KEYS", "*")) }

func (s *remote) Owners(db int, key string) []string {
	if s.Type(db, key) != "hash" {
		return nil
	}
	return texts(s.do(db, "HKEYS", key))
}

func (s *remote) Queued(db int, key string) []string {
	if s.Type(db, key) != "list" {
		return nil
	}
	return texts(s.do(db, "LRANGE", key, "0", "-1"))
}

func (s *remote) Own(db int, key, owner string, lease time.Duration) {
	s.do(db, "HSET", key, owner, "1")
	for _, other := range s.Owners(db, key) {
		if other != owner {
			s.do(db, "HDEL", key, other)
		}
	}
	s.do(db, "PEXPIRE", key, milliseconds(lease))
}

func (s *remote) Overwrite(db int, key, text string, lease time.Duration) {
	s.do(db, "SET", key, text, "PX", milliseconds(lease))
}

func (s *remote) Delete(db int, key string) { s.do(db, "DEL", key) }

func (s *remote) Publish(channel, message string) { s.do(s.direct.DB, "PUBLISH", channel, message) }
