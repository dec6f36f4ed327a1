package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// Server is the server that a run measures on, with a connection to ask it how it
// is. It belongs to one goroutine.
type Server struct {
	url        string
	name       string // with its version
	comparable bool
	// prefix begins every lock's name of this run, so that runs on one server, and
	// the data of its owner, do not meet.
	prefix string
	fleet  *fleet
	stop   func()
	// cleanWithin is how long a client may take to tidy up when everything is
	// released: subscriptions linger for a second.
	cleanWithin time.Duration
}

// OpenServer connects to the server of url, or starts a redis-server on a free TCP
// port if url is empty: TCP, because that is how servers are reached. With embedded
// it starts the one inside this process. It must be closed.
func OpenServer(ctx context.Context, url string, inProcess bool) (*Server, error) {
	s := &Server{url: url, comparable: !inProcess, stop: func() {}, cleanWithin: 5 * time.Second}
	s.prefix = "pawl-bench:" + strconv.FormatUint(rand.Uint64(), 36) + ":"
	switch {
	case inProcess:
		server, err := embedded.Start("")
		if err != nil {
			return nil, err
		}
		s.url, s.stop = server.URL(), server.Close
	case url == "":
		server, err := redistest.StartProcess(ctx, redistest.Config{})
		if err != nil {
			return nil, err
		}
		s.url, s.stop = server.URL(), func() { _ = server.Close() }
	}
	if err := s.connect(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) connect(ctx context.Context) error {
	cfg, err := engine.ParseURL(s.url)
	if err != nil {
		return err
	}
	if s.fleet, err = dialFleet(ctx, cfg); err != nil {
		return err
	}
	if _, err := s.fleet.first().do("PING"); err != nil {
		s.fleet.close()
		return fmt.Errorf("%w: PING: %w", engine.ErrUnavailable, err)
	}
	if !s.comparable {
		s.name = "embedded"
		return nil
	}
	// Who may not ask, or asks something else than a Redis, gets no figures to
	// compare, but figures.
	fields, err := s.fleet.first().info("server")
	var refused *resp.ServerError
	if err != nil && !errors.As(err, &refused) {
		s.fleet.close()
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
	if cfg.Topology != "standalone" && cfg.Topology != "" {
		s.name = fmt.Sprintf("%s, %s of %d primaries", s.name, cfg.Topology, len(s.fleet.admins))
	}
	return nil
}

// Close ends the connection, and the server if it was started here.
func (s *Server) Close() {
	s.fleet.close()
	s.stop()
}

// URL is the server's URL, the password included.
func (s *Server) URL() string { return s.url }

// clientCommands are commands that a script cannot call (Redis flags them
// noscript): who sent one was a client. Others must not be counted, because
// commandstats and total_commands_processed count what a script calls like what a
// client sends.
var clientCommands = []string{
	"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro",
	"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe",
	"multi", "exec", "watch", "wait", "role", "blpop",
}

// commands returns how many commands of clients the server has executed, and
// whether it counts them.
func (s *Server) commands() (n int64, counted bool, err error) {
	if !s.comparable {
		return 0, false, nil
	}
	sum, err := s.fleet.each(commandsOf)
	return int64(sum), err == nil, err
}

func commandsOf(a *admin) (n int, err error) {
	fields, err := a.info("commandstats")
	if err != nil {
		return 0, fmt.Errorf("bench: INFO commandstats: %w", err)
	}
	for _, name := range clientCommands {
		calls, ok := strings.CutPrefix(fields["cmdstat_"+name], "calls=")
		if !ok {
			continue
		}
		calls, _, _ = strings.Cut(calls, ",")
		c, err := strconv.Atoi(calls)
		if err != nil {
			return 0, fmt.Errorf("bench: INFO commandstats: %q", fields["cmdstat_"+name])
		}
		n += c
	}
	return n, nil
}

// leftovers looks for keys and channels of this run until there are none, or for
// cleanWithin. It walks over all keys of the server.
func (s *Server) leftovers(ctx context.Context) (Leftovers, error) {
	deadline := time.Now().Add(s.cleanWithin)
	for {
		var left Leftovers
		var err error
		if left.Channels, err = s.channels(); err != nil {
			return left, err
		}
		if left.Keys, err = s.keys(); err != nil {
			return left, err
		}
		if left == (Leftovers{}) || time.Now().After(deadline) {
			return left, nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return left, context.Cause(ctx)
		}
	}
}

func (s *Server) keys() (int, error) { return s.fleet.each(s.keysOf) }

func (s *Server) keysOf(a *admin) (int, error) {
	keys, cursor := 0, "0"
	for {
		v, err := a.do("SCAN", cursor, "MATCH", "*"+s.prefix+"*", "COUNT", "10000")
		if err != nil || v.Len() != 2 {
			return 0, fmt.Errorf("bench: SCAN: %w", errors.Join(err, resp.ErrProtocol))
		}
		v.Each(func(i int, e resp.Value) bool {
			if i == 0 {
				cursor = string(e.Bytes)
			} else {
				keys += e.Len()
			}
			return true
		})
		if cursor == "0" {
			return keys, nil
		}
	}
}

func (s *Server) channels() (int, error) { return s.fleet.each(s.channelsOf) }

func (s *Server) channelsOf(a *admin) (int, error) {
	kinds := []string{"CHANNELS"}
	if s.fleet.sharded {
		kinds = append(kinds, "SHARDCHANNELS")
	}
	n := 0
	for _, kind := range kinds {
		v, err := a.do("PUBSUB", kind, "*"+s.prefix+"*")
		if err != nil {
			return 0, fmt.Errorf("bench: PUBSUB %s: %w", kind, err)
		}
		n += v.Len()
	}
	return n, nil
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
