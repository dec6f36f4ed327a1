package resp

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// exploreEvery is the least time between two looks at the layout, half as much
	// again at most: a failover makes every node send everybody on, and one look is
	// enough for all of them.
	exploreEvery = 250 * time.Millisecond
	// retireAfter is how long a node that serves nothing keeps its connections: slots
	// that are moved back and forth shall not cost a handshake each time.
	retireAfter = 5 * time.Second
)

// period is how often the layout is looked at though nothing suggests it. In a
// cluster MOVED tells, and sentinels do; of a promotion by hand nobody does.
func (t Topology) period() time.Duration {
	switch t {
	case Cluster:
		return 30 * time.Second
	case Sentinel:
		return 10 * time.Second
	default:
		return time.Second
	}
}

// explorer keeps the routes of a Client true: it finds the layout, again whenever
// something suggests that it has changed, one search at a time.
//
// Goroutines: one that searches, one in the topology's watch; both of Client.wg.
type explorer struct {
	client   *Client
	topology topology // nil: a Standalone, there is nothing to find
	kicked   chan struct{}

	mu struct {
		sync.Mutex
		hint  string
		found bool  // a layout has been applied
		err   error // of the latest search; nil if it found one
	}
}

// kick asks for a search soon; hint is a server that is likely to know. It never
// blocks.
func (x *explorer) kick(hint string) {
	if x.topology == nil {
		return
	}
	if hint != "" {
		x.mu.Lock()
		x.mu.hint = hint
		x.mu.Unlock()
	}
	select {
	case x.kicked <- struct{}{}:
	default: // one is due already
	}
}

// progress reports whether a layout has been found, and else why not.
func (x *explorer) progress() (found bool, err error) {
	if x.topology == nil {
		return true, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.found, x.mu.err
}

func (x *explorer) run(ctx context.Context) {
	for failures := 0; ; {
		if err := x.search(ctx); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			if failures++; failures == 1 {
				x.client.cfg.Logger.Warn("resp: cannot find the layout of the deployment, trying again", "err", err)
			}
		}
		if !sleep(ctx, exploreEvery+rand.N(exploreEvery/2)) {
			return
		}
		if failures > 0 {
			continue
		}
		if !x.await(ctx) {
			return
		}
	}
}

// await returns when a search is due; false if ctx ended.
func (x *explorer) await(ctx context.Context) bool {
	period := x.client.cfg.Topology.period()
	timer := time.NewTimer(period - rand.N(period/4))
	defer timer.Stop()
	select {
	case <-x.kicked:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// search finds the layout and has the client follow it.
func (x *explorer) search(ctx context.Context) error {
	x.mu.Lock()
	hint := x.mu.hint
	x.mu.hint = ""
	x.mu.Unlock()
	l, err := x.topology.find(ctx, hint)
	if err == nil {
		err = x.client.sharding(ctx, l)
	}
	if err == nil {
		x.client.follow(l)
	}
	x.mu.Lock()
	x.mu.err = err
	x.mu.found = x.mu.found || err == nil
	x.mu.Unlock()
	x.client.changed()
	return err
}
