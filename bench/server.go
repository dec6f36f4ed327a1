package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/process"
	"github.com/pawl-lock/pawl/bench/internal/redisadmin"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// Server is the server that a run measures on, with a connection to ask it how it
// is. It belongs to one goroutine.
type Server struct {
	url        string
	parse      func(url string) (engine.Config, error)
	name       string // with its version
	comparable bool
	// prefix begins every lock's name of this run, so that runs on one server, and
	// the data of its owner, do not meet.
	prefix string
	fleet  *redisadmin.Fleet
	stop   func()
	// named: the connections of what is measured are called by prefix, so all others are
	// somebody else's.
	named bool
	// started: here, so that it is there if it does not answer.
	started bool
	// shared: somebody else was connected when the run began, or when it ended.
	shared bool
	// cleanWithin is how long a client may take to tidy up when everything is
	// released: subscriptions linger for a second.
	cleanWithin time.Duration
}

// startedTimeout bounds connecting to a server that was started here. In a process that is busy
// with 60 goroutines, and on busy processors, the embedded one took 3.5 s.
const startedTimeout = 30 * time.Second

// OpenServer connects to the server of url, or starts a redis-server on a free TCP
// port if url is empty: TCP, because that is how servers are reached. With embedded
// it starts the one inside this process. It must be closed.
func OpenServer(ctx context.Context, url string, inProcess bool) (*Server, error) {
	return connectServer(ctx, Config{URL: url, Embedded: inProcess})
}

func connectServer(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{url: cfg.URL, parse: cfg.Parse, comparable: !cfg.Embedded, stop: func() {}, cleanWithin: 5 * time.Second}
	if s.parse == nil {
		s.parse = engine.ParseURL
	}
	s.prefix = "pawl-bench:" + strconv.FormatUint(rand.Uint64(), 36) + ":"
	switch {
	case cfg.Embedded:
		server, err := embedded.Start("")
		if err != nil {
			return nil, err
		}
		s.url, s.stop, s.started = server.URL(), server.Close, true
	case cfg.URL == "":
		server, err := redistest.StartProcess(ctx, redistest.Config{})
		if err != nil {
			return nil, err
		}
		s.url, s.stop, s.started = server.URL(), func() { _ = server.Close() }, true
	}
	if err := s.connect(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) connect(ctx context.Context) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	if s.fleet, err = redisadmin.DialFleet(ctx, cfg); err != nil {
		return err
	}
	if _, err := s.fleet.First().Do("PING"); err != nil {
		s.fleet.Close()
		return fmt.Errorf("%w: PING: %w", engine.ErrUnavailable, err)
	}
	if !s.comparable {
		s.name = "embedded"
		return nil
	}
	// Without the right to ask, or on something else than a Redis, the run has its
	// figures, but none to compare them with.
	fields, err := s.fleet.First().Info("server")
	var refused *resp.ServerError
	if err != nil && !errors.As(err, &refused) {
		s.fleet.Close()
		return fmt.Errorf("%w: INFO: %w", engine.ErrUnavailable, err)
	}
	switch {
	case fields["valkey_version"] != "":
		s.name = "valkey " + fields["valkey_version"]
	case fields["redis_version"] != "":
		s.name = "redis " + fields["redis_version"]
	default:
		s.name, s.comparable = "unknown", false
	}
	s.lookForOthers()
	if cfg.Topology != "standalone" && cfg.Topology != "" {
		s.name = fmt.Sprintf("%s, %s of %d primaries", s.name, cfg.Topology, len(s.fleet.Conns))
	}
	return nil
}

// config is what the URL says.
func (s *Server) config() (engine.Config, error) {
	cfg, err := s.parse(s.url)
	if s.started {
		cfg.DialTimeout = startedTimeout
	}
	return cfg, err
}

// Close ends the connection, and the server if it was started here.
func (s *Server) Close() {
	s.fleet.Close()
	s.stop()
}

// URL is the server's URL, the password included.
func (s *Server) URL() string { return s.url }

// noteCPU notes what the servers used since then.
func (s *Server) noteCPU(r *Result, then time.Duration, elapsed time.Duration) error {
	now, err := s.cpuTime()
	if elapsed > 0 {
		r.ServerCPUPercent = 100 * float64(now-then) / float64(elapsed)
	}
	return err
}

// conclude looks at the server when all is released. What it cannot find out is noted,
// and costs no figure; an error means that the run was interrupted.
func (s *Server) conclude(ctx context.Context, r *Result) error {
	r.RSSBytes = process.MaxRSS()
	if s.named { // else ours cannot be told from others'
		s.lookForOthers()
	}
	if s.shared {
		r.hideCounts()
	}
	var err error
	if r.Leftovers, err = s.leftovers(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.Leftovers.Unknown = err.Error()
	}
	return nil
}

// lookForOthers notes whether somebody else is connected: then the server's counters
// are theirs, too, and so is its time. Sentinels, replicas and primaries do not count.
func (s *Server) lookForOthers() {
	for _, a := range s.fleet.Conns {
		v, err := a.Ask("CLIENT", "LIST")
		if err != nil {
			continue // without the right to ask it is not known
		}
		for line := range strings.Lines(string(v.Bytes)) {
			fields := make(map[string]string)
			for _, word := range strings.Fields(line) {
				name, value, _ := strings.Cut(word, "=")
				fields[name] = value
			}
			ours := fields["id"] == a.ID || s.named && strings.HasPrefix(fields["name"], s.clientName()+":")
			asks := fields["cmd"] != "NULL" // else a sentinel, say, that has not told its name yet
			if !ours && asks && !strings.HasPrefix(fields["name"], "sentinel-") && !strings.ContainsAny(fields["flags"], "SM") {
				s.shared = true
			}
		}
	}
}

// clientName is what the connections of the measured engine are called; an engine appends its id.
func (s *Server) clientName() string { return strings.TrimSuffix(s.prefix, ":") }

// cpuTime is what the servers have used so far.
func (s *Server) cpuTime() (time.Duration, error) {
	if !s.comparable {
		return 0, nil
	}
	sum, err := s.fleet.Each(func(a *redisadmin.Conn) (int, error) {
		fields, err := a.Info("cpu")
		user, _ := strconv.ParseFloat(fields["used_cpu_user"], 64)
		system, _ := strconv.ParseFloat(fields["used_cpu_sys"], 64)
		return int((user + system) * float64(time.Second)), err
	})
	return time.Duration(sum), err
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
