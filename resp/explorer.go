package resp

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

const (
	// exploreEvery is the least time between two looks at the layout; up to half as much
	// is added at random. After a failover every node answers MOVED to every command, and
	// one look is enough for all of them.
	exploreEvery = 250 * time.Millisecond
	// exploreSeldom is that time once a look has found nothing new: a node that is dead
	// asks for looks all the time.
	exploreSeldom = time.Second
)

// period is how often the layout is looked at without a reason. A cluster announces
// changes with MOVED, and sentinels publish them; a promotion by hand is announced by
// nobody.
func (k kind) period() time.Duration {
	switch k {
	case kindCluster:
		return 30 * time.Second
	case kindSentinel:
		return 10 * time.Second
	default:
		return time.Second
	}
}

// explorerClient has the routes that an explorer keeps true. The methods are called by the
// searching goroutine.
type explorerClient interface {
	// Counting reports whether the groups are to be asked for, too.
	Counting() bool
	// Impaired reports whether a connection is missing.
	Impaired() bool
	// Follow makes the routes those of a layout. It reports whether they are others now,
	// and whether something is missing that another look may find soon.
	Follow(ctx context.Context, l *layout) (changed, gaps bool, err error)
	// Lost is told that no layout was found. It reports whether the routes have changed
	// nevertheless since the latest search.
	Lost() (changed bool)
	// Searched is told that a search is over, after its progress can be read.
	Searched()
}

// explorer keeps the routes of a client true: it finds the layout, again whenever
// something suggests that it has changed, one search at a time. Of a nil explorer nothing
// has to be found: there is one server.
//
// Goroutines: the one that runs it, and the one that has it watch.
type explorer struct {
	cfg      *findConfig
	client   explorerClient
	scouts   *scouts
	topology topology
	kicked   chan struct{} // capacity 1, as that of urgent
	urgent   chan struct{}

	// Of the searching goroutine:
	idle   time.Duration // what a nudge has to wait beyond exploreEvery
	gaps   bool          // the latest layout had slots that nobody serves, or was not counted
	failed bool          // the latest search

	mu struct {
		sync.Mutex
		hint  string
		alien []string      // announced addresses that AddrMap is to be asked for
		found bool          // a layout has been applied
		err   error         // of the latest search; nil if it found one
		began clock.Instant // that search
	}
}

func newExplorer(ctx context.Context, c *findConfig, client explorerClient) *explorer {
	x := &explorer{cfg: c, client: client, kicked: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
	x.scouts = newScouts(ctx, c, searchPatience)
	x.topology = newTopology(c, x.scouts)
	return x
}

// kick asks for a search soon: something has changed. hint is a server that is likely
// to know, or "". It never blocks.
func (x *explorer) kick(hint string) {
	if x == nil {
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

// translate has AddrMap asked for an announced address by the next search.
func (x *explorer) translate(addr string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.mu.alien) < maxAnnounced && !slices.Contains(x.mu.alien, addr) {
		x.mu.alien = append(x.mu.alien, addr)
	}
}

// nudge asks for a search: something is wrong, and perhaps something has changed.
func (x *explorer) nudge() {
	if x == nil {
		return
	}
	select {
	case x.kicked <- struct{}{}:
	default: // one is due already
	}
}

// progress reports whether a layout has been found, and else why not, as of when.
func (x *explorer) progress() (found bool, asOf clock.Instant, err error) {
	if x == nil {
		return true, 0, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.found, x.mu.began, x.mu.err
}

// watch has the deployment announce changes, where it does, until ctx ends.
func (x *explorer) watch(ctx context.Context) { x.topology.watch(ctx, x.kick) }

// run searches until ctx ends.
func (x *explorer) run(ctx context.Context) {
	defer x.scouts.close()
	for {
		patience := x.scouts.patience
		changed, err := x.search(ctx)
		if err != nil && !x.failed && ctx.Err() == nil {
			x.cfg.Logger.Warn("resp: cannot find the layout of the deployment, trying again", "err", err)
		}
		x.failed = err != nil
		x.scouts.patience = searchPatience
		if x.failed {
			// Perhaps the servers do answer, but not that fast, or this process is short of CPU.
			x.scouts.patience = min(2*patience, max(searchPatience, x.cfg.DialTimeout))
		}
		if !x.pause(ctx, changed) {
			return
		}
	}
}

// pause waits until the next search is due; false if ctx ended. That is never sooner than
// exploreEvery. After that a kick starts a search at once, since something is known to
// have changed. A nudge waits longer each time that nothing new was found, and so does
// the next attempt after a search that failed. Otherwise the pause is the period.
func (x *explorer) pause(ctx context.Context, changed bool) bool {
	if changed {
		x.idle = 0
	}
	period := x.cfg.Kind.period()
	if x.gaps || x.client.Impaired() {
		period = min(period, time.Second)
	}
	due := period - rand.N(period/4)
	kicked := exploreEvery + rand.N(exploreEvery/2)
	nudged := min(kicked+x.idle, due)
	if x.failed {
		due = nudged
	}
	x.idle = min(x.idle+exploreEvery, exploreSeldom-exploreEvery)
	return sleep(ctx, kicked, nil) && sleep(ctx, nudged-kicked, x.urgent) && sleep(ctx, due-nudged, x.kicked)
}

// sleep pauses, or until wake has something; false if ctx ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// search finds the layout and has the client follow it. It reports whether that changed
// anything.
func (x *explorer) search(ctx context.Context) (changed bool, err error) {
	began := x.cfg.Clock.Now()
	x.mu.Lock()
	hint, alien := x.mu.hint, x.mu.alien
	x.mu.hint, x.mu.alien = "", nil
	x.mu.Unlock()
	for _, addr := range alien {
		if to, err := x.cfg.AddrMap.ask(addr); err == nil {
			hint = to
		}
	}
	if x.failed || x.client.Impaired() {
		x.scouts.renew()
	}
	l, err := x.topology.find(ctx, hint, x.client.Counting())
	var gaps bool
	if err == nil {
		changed, gaps, err = x.client.Follow(ctx, l)
	}
	if err == nil {
		x.gaps = gaps
	} else {
		changed = x.client.Lost()
	}
	// A look every second must not cost handshakes; and what is still being connected when a
	// search fails may be what it takes.
	x.scouts.tidy(err != nil || x.cfg.Kind == kindReplicas)
	x.mu.Lock()
	x.mu.err, x.mu.began = err, began
	x.mu.found = x.mu.found || err == nil
	x.mu.Unlock()
	x.client.Searched()
	return changed, err
}

// sharded asks primaries until one says whether the deployment has sharded channels. That
// it is loading, busy or full says nothing. It is for Follow.
func (x *explorer) sharded(ctx context.Context, primaries []string) (yes bool, err error) {
	addrs := candidates("", primaries, nil)
	return askFirst(ctx, addrs, x.scouts.patience, func(ctx context.Context, addr string) (bool, error) {
		_, err := x.scouts.ask(ctx, x.cfg.Servers, addr, "PUBSUB", "SHARDNUMSUB", "0")
		var refused *wire.ServerError
		if errors.As(err, &refused) && (refused.Code == "NOPERM" || refused.Begins("ERR unknown", "ERR Unknown")) {
			return false, nil
		}
		return err == nil, err
	})
}
