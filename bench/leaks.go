package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/redisadmin"
	"github.com/pawl-lock/pawl/resp"
)

// leftovers looks for keys and channels of this run until there are none, or for
// cleanWithin. It walks over all keys of the server.
func (s *Server) leftovers(ctx context.Context) (Leftovers, error) {
	deadline := time.Now().Add(s.cleanWithin)
	for {
		var left Leftovers
		var err error
		if left.Channels, err = s.tooMany(); err == nil && left.Channels == 0 {
			left.Channels, err = s.channels()
		}
		if err != nil {
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

func (s *Server) keys() (int, error) { return s.fleet.Each(s.keysOf) }

func (s *Server) keysOf(a *redisadmin.Conn) (int, error) {
	keys, cursor := 0, "0"
	for {
		v, err := a.Ask("SCAN", cursor, "MATCH", "*"+s.prefix+"*", "COUNT", "10000")
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

func (s *Server) channels() (int, error) { return s.fleet.Each(s.channelsOf) }

func (s *Server) channelsOf(a *redisadmin.Conn) (int, error) {
	kinds := []string{"CHANNELS"}
	if s.fleet.Sharded {
		kinds = append(kinds, "SHARDCHANNELS")
	}
	n := 0
	for _, kind := range kinds {
		v, err := a.Ask("PUBSUB", kind, "*"+s.prefix+"*")
		if err != nil {
			return 0, fmt.Errorf("bench: PUBSUB %s: %w", kind, err)
		}
		n += v.Len()
	}
	return n, nil
}

// mostListed is how many channels are listed at once; the names of more could exceed
// what a reply may have.
const mostListed = 100_000

// tooMany is how many channels the servers have, of anybody, if those are too many to be
// listed; else 0.
func (s *Server) tooMany() (int, error) {
	sum, err := s.fleet.Each(func(a *redisadmin.Conn) (int, error) {
		fields, err := a.Info("stats")
		n, _ := strconv.Atoi(fields["pubsub_channels"])
		sharded, _ := strconv.Atoi(fields["pubsubshard_channels"])
		return n + sharded, err
	})
	var refused *resp.ServerError
	if errors.As(err, &refused) || sum <= mostListed {
		return 0, nil // without the right to ask, they have to be listed
	}
	return sum, err
}
