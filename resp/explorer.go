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
	// exploreSeldom is that time once a look has found nothing new: a node that is dead
	// keeps everybody looking.
	exploreSeldom = time.Second
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
	topology topology      // nil: a Standalone, there is nothing to find
	kicked   chan struct{} // capacity 1, as that of urgent
	urgent   chan struct{}

	// Of the searching goroutine:
	idle time.Duration // what rest adds
	gaps bool          // the latest layout had slots that nobody serves

	mu struct {
		sync.Mutex
		hint  string
		found bool  // a layout has been applied
		err   error // of the latest search; nil if it found one
	}
}

// kick asks for a search soon: something has changed. hint is a server that is likely
// to know, or "". It never blocks.
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
	case x.urgent <- struct{}{}:
	default:
	}
	x.nudge()
}

// nudge asks for a search: something is wrong, and perhaps something has changed.
func (x *explorer) nudge() {
	if x.topology == nil {
		return
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
		changed, err := x.search(ctx)
		if err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			if failures++; failures == 1 {
				x.client.cfg.Logger.Warn("resp: cannot find the layout of the deployment, trying again", "err", err)
			}
		}
		if !x.rest(ctx, changed) {
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

// rest is the pause after a search, longer each time that nothing new was found; but
// not for somebody who knows that there is something. False if ctx ended.
func (x *explorer) rest(ctx context.Context, changed bool) bool {
	if changed {
		x.idle = 0
	}
	if !sleep(ctx, exploreEvery+rand.N(exploreEvery/2)) {
		return false
	}
	timer := time.NewTimer(x.idle)
	defer timer.Stop()
	x.idle = min(x.idle+exploreEvery, exploreSeldom-exploreEvery)
	select {
	case <-x.urgent:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// await returns when a search is due; false if ctx ended.
func (x *explorer) await(ctx context.Context) bool {
	period := x.client.cfg.Topology.period()
	if x.gaps {
		period = min(period, time.Second)
	}
	timer := time.NewTimer(period - rand.N(period/4))
	defer timer.Stop()
	select {
	case <-x.kicked:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// search finds the layout and has the client follow it. It reports whether that changed
// anything.
func (x *explorer) search(ctx context.Context) (changed bool, err error) {
	x.mu.Lock()
	hint := x.mu.hint
	x.mu.hint = ""
	x.mu.Unlock()
	l, err := x.topology.find(ctx, hint)
	if err == nil {
		err = x.client.sharding(ctx, l)
	}
	if err == nil {
		changed = x.client.follow(l)
		x.gaps = x.client.Clustered() && !l.whole()
	}
	x.mu.Lock()
	x.mu.err = err
	x.mu.found = x.mu.found || err == nil
	x.mu.Unlock()
	x.client.changed()
	return changed, err
}
