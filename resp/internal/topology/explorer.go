package topology

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Client has the routes that an Explorer keeps true. The methods are called by the
// searching goroutine.
type Client interface {
	// Counting reports whether the groups are to be asked for, too.
	Counting() bool
	// Impaired reports whether a connection is missing.
	Impaired() bool
	// Follow makes the routes those of a layout. It reports whether they are others now,
	// and whether something is missing that another look may find soon.
	Follow(ctx context.Context, l *Layout) (changed, gaps bool, err error)
	// Lost is called when no layout was found. It reports whether the routes have changed
	// anyway since the latest search.
	Lost() (changed bool)
	// Searched is called when a search is over, after its progress can be read.
	Searched()
}

// Explorer keeps the routes of a client true: it finds the layout, again whenever
// something suggests that it has changed, one search at a time. A nil Explorer is
// that of a single server: nothing has to be found.
//
// Goroutines: the one that runs it, and the one that has it watch.
type Explorer struct {
	cfg    *Config
	client Client
	probes *probes
	finder finder
	woken  chan struct{} // capacity 1: the schedule has changed

	// Of the searching goroutine:
	gaps   bool // the latest layout had slots that nobody serves, or was not counted
	failed bool // the latest search

	mu struct {
		sync.Mutex
		next  schedule
		hint  string
		alien []string      // announced addresses that AddrMap is to be asked for
		found bool          // a layout has been applied
		err   error         // of the latest search; nil if it found one
		began clock.Instant // that search
	}
}

// NewExplorer returns an Explorer that does nothing before Run and Watch. Its connections end
// with ctx.
func NewExplorer(ctx context.Context, c *Config, client Client) *Explorer {
	x := &Explorer{cfg: c, client: client, woken: make(chan struct{}, 1)}
	x.probes = newProbes(ctx, c, SearchTimeout)
	x.finder = newFinder(c, x.probes)
	c.Identity.refresh = x.RefreshNow
	return x
}

// RefreshNow asks for a search soon: something has changed. hint is a server that is likely
// to know, or "". It never blocks.
func (x *Explorer) RefreshNow(hint string) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if hint != "" {
		x.mu.hint = hint
	}
	x.mu.next.refreshNow()
	x.wake()
}

// RefreshSoon asks for a search: something is wrong, and perhaps something has changed.
func (x *Explorer) RefreshSoon() {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.next.refreshSoon()
	x.wake()
}

// wake has Run look at the schedule again.
func (x *Explorer) wake() {
	select {
	case x.woken <- struct{}{}:
	default: // it is about to
	}
}

// Translate has AddrMap asked for an announced address by the next search.
func (x *Explorer) Translate(addr string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.mu.alien) < MaxAnnounced && !slices.Contains(x.mu.alien, addr) {
		x.mu.alien = append(x.mu.alien, addr)
	}
}

// Progress reports whether a layout has been found, and else why not, as of when.
func (x *Explorer) Progress() (found bool, asOf clock.Instant, err error) {
	if x == nil {
		return true, 0, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.found, x.mu.began, x.mu.err
}

// Watch has the deployment announce changes, where it does, until ctx ends.
func (x *Explorer) Watch(ctx context.Context) { x.finder.watch(ctx, x.RefreshNow) }

// Run searches until ctx ends.
func (x *Explorer) Run(ctx context.Context) {
	defer x.probes.close()
	for {
		patience := x.probes.timeout
		changed, err := x.search(ctx)
		if err != nil && !x.failed && ctx.Err() == nil {
			x.cfg.Logger.Warn("resp: cannot find the layout of the deployment, trying again", "err", err)
		}
		x.failed = err != nil
		x.probes.timeout = SearchTimeout
		if x.failed {
			// Perhaps the servers do answer, but not that fast, or this process is short of CPU.
			x.probes.timeout = min(2*patience, max(SearchTimeout, x.cfg.DialTimeout))
		}
		x.searched(changed)
		if !x.pause(ctx) {
			return
		}
	}
}

// searched settles when the next search is due.
func (x *Explorer) searched(changed bool) {
	period := x.cfg.Kind.Period()
	if x.gaps || x.client.Impaired() {
		period = min(period, time.Second)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.next.ended(x.cfg.Clock.Now(), outcome{news: changed, failed: x.failed, period: period}, rand.N)
}

// pause waits until the next search is due; false if ctx ended.
func (x *Explorer) pause(ctx context.Context) bool {
	for ctx.Err() == nil {
		x.mu.Lock()
		due := x.mu.next.notAfter
		x.mu.Unlock()
		if sleep(ctx, due.Sub(x.cfg.Clock.Now()), x.woken) {
			return true
		}
	}
	return false
}

// sleep pauses, or until wake has something or ctx ends. It reports whether d is over.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-wake:
	case <-ctx.Done():
	}
	return false
}

// search finds the layout and has the client follow it. It reports whether that changed
// anything.
func (x *Explorer) search(ctx context.Context) (changed bool, err error) {
	began := x.cfg.Clock.Now()
	x.mu.Lock()
	hint, alien := x.mu.hint, x.mu.alien
	x.mu.hint, x.mu.alien = "", nil
	x.mu.next.began()
	x.mu.Unlock()
	for _, addr := range alien {
		if to, err := x.cfg.AddrMap.ask(addr); err == nil {
			hint = to
		}
	}
	if x.failed || x.client.Impaired() {
		x.probes.renew()
	}
	l, err := x.finder.find(ctx, hint, x.client.Counting())
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
	x.probes.tidy(err != nil || x.cfg.Kind == Replicas)
	x.mu.Lock()
	x.mu.err, x.mu.began = err, began
	x.mu.found = x.mu.found || err == nil
	x.mu.Unlock()
	x.client.Searched()
	return changed, err
}

// Sharded asks primaries until one says whether the deployment has sharded channels. One that
// cannot tell for now says nothing; any other refusal means that there are none to be used, and is logged.
// It is for Follow, which decides once: what others publish, and where they listen, hangs on this,
// so all processes must decide alike.
func (x *Explorer) Sharded(ctx context.Context, primaries []string) (yes bool, err error) {
	addrs := x.probes.candidates("", "", primaries, nil)
	without, err := askFirst(ctx, x.probes, addrs, x.withoutSharded)
	if err != nil || without == nil {
		return err == nil, err
	}
	switch r := request.RefusalOf(without.refusal); {
	case r.Forbidden():
		x.cfg.Logger.Warn("resp: this user may not ask for sharded channels, so plain ones are used, and sharded messages of Redisson are not heard; grant +pubsub|shardnumsub, or set sharding", "err", without.refusal)
	case r.Lasts == request.Permanent && !without.claimed:
		x.cfg.Logger.Info("resp: the cluster has no sharded channels, so plain ones are used", "err", without.refusal)
	default:
		x.cfg.Logger.Warn("resp: the cluster refuses sharded channels, so plain ones are used", "err", without.refusal)
	}
	return false, nil
}

// without says that a server has no sharded channels.
type without struct {
	refusal *wire.ServerError
	claimed bool // it has said before that it has
}

// probeChannel is the sharded channel that is asked for; whose slot it is does not matter.
const probeChannel = "pawl:probe"

// withoutSharded asks a server: nil means that it has sharded channels. First in the way in which Redisson
// asks, for the decisions must be the same. Then by subscribing: some servers answer the question,
// and have none. A server that sends that elsewhere, or forbids this channel, knows what it is.
func (x *Explorer) withoutSharded(ctx context.Context, addr string) (*without, error) {
	ask := func(words ...string) (refused *wire.ServerError, err error) {
		_, err = x.probes.ask(ctx, x.cfg.Servers, addr, words...)
		if errors.As(err, &refused) {
			err = nil
		}
		return refused, err
	}
	refused, err := ask("PUBSUB", "SHARDNUMSUB", "0")
	switch {
	case err != nil:
		return nil, err
	case refused != nil && request.RefusalOf(refused).NotNow():
		return nil, unansweredBy(ctx, addr, "PUBSUB", refused)
	case refused != nil:
		return &without{refusal: refused}, nil
	}
	refused, err = ask("SSUBSCRIBE", probeChannel)
	if err != nil { // it may have ended the connection for that
		return nil, fmt.Errorf("%w; if that stays so, set sharding to off", err)
	}
	if refused != nil {
		if r := request.RefusalOf(refused); r.NotNow() || r.Forbidden() {
			return nil, nil
		}
		return &without{refusal: refused, claimed: true}, nil
	}
	if refused, err := ask("SUNSUBSCRIBE", probeChannel); refused != nil || err != nil {
		x.probes.forget(x.cfg.Servers, addr) // it may be subscribed still
	}
	return nil, nil
}
