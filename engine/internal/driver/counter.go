package driver

import (
	"cmp"
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// CounterKey names a semaphore or a latch: the name is the mapped one, as it stands on the server.
type CounterKey struct {
	Name string
	Kind counter.Kind
}

// channel is where changes of a count are announced, as Redisson has it.
func (k CounterKey) channel() string {
	if k.Kind == counter.Latch {
		return "redisson_countdownlatch__channel__{" + k.Name + "}"
	}
	return script.Channel{Prefix: "redisson_sc", Lock: k.Name}.Name()
}

// mark is the key of an engine's mark. The kinds have marks of their own: the commands of two
// counts of one name must not overtake each other.
func (k CounterKey) mark(engine string) string {
	if k.Kind == counter.Latch {
		engine += ":latch"
	}
	return script.MarkOf(k.Name, engine)
}

// ValidInCluster refuses a name whose channel or mark would be in another slot than its key.
func (k CounterKey) ValidInCluster() error {
	for _, other := range []string{k.channel(), k.mark("")} {
		if resp.SlotOf(other) != resp.SlotOf(k.Name) {
			what := "use one pair of braces with something in it, as in orders:{42}, or none"
			if k.Kind == counter.Latch {
				what = "use no braces in the name of a latch"
			}
			return lockerr.Invalid("the name %q cannot be used in a cluster: %q would belong to another slot; %s",
				lockerr.Shorten(k.Name), lockerr.Shorten(other), what)
		}
	}
	return nil
}

// Counter is a counter with what drives it: it is a resp.Request, and a recovery.Stalled. The shard's lock
// guards it.
type Counter struct {
	core      counter.Counter
	sh        *Shard
	timer     wheel.Timer
	at        clock.Instant        // what it is set to
	sub       *counterSubscription // nil: it does not listen
	former    *counterSubscription // heard until sub is confirmed; mostly nil
	mark      string
	channel   string
	throttle  *lock.Throttle // of the command that is out
	cancelled bool           // guarded by recovery's lock
}

// Count returns the state of a count, made if need be. The caller holds the lock.
func (s *Shard) Count(k CounterKey, route uint64) *Counter {
	if c := s.counts[k]; c != nil {
		return c
	}
	s.Table.Listener.Used()
	c := &Counter{sh: s, mark: k.mark(s.Table.ID), channel: k.channel()}
	c.core = counter.Counter{Shard: &s.counters, Handle: c, Name: k.Name, Route: route, Kind: k.Kind}
	c.timer.Init(c)
	if s.counts == nil {
		s.counts = make(map[CounterKey]*Counter)
	}
	s.counts[k] = c
	return c
}

// FitsCount reports whether the name is in use as no lock, nor as another sort of count: all of them
// are the same key. What only lingers is not in use. The caller holds the lock.
func (s *Shard) FitsCount(k CounterKey) bool {
	_, locked := s.Locks.FamilyOf(k.Name)
	c := s.countInUse(k.Name)
	return !locked && (c == nil || c.core.Kind == k.Kind)
}

// UsedAs says what the name is in use as, for people; empty if it is not in use. The caller holds the
// lock.
func (s *Shard) UsedAs(name string) string {
	if family, used := s.Locks.FamilyOf(name); used {
		return kind.Family(family).String()
	}
	if c := s.countInUse(name); c != nil {
		return [counter.Kinds]string{"a Semaphore", "a Latch"}[c.core.Kind]
	}
	return ""
}

// countInUse is the count that the name is in use as; nil if there is none. The caller holds the lock.
func (s *Shard) countInUse(name string) *Counter {
	for k := range counter.Kind(counter.Kinds) {
		if c := s.counts[CounterKey{name, k}]; c != nil && c.core.InUse() {
			return c
		}
	}
	return nil
}

// Counts are those of the shard, in the order of their names. The caller holds the lock.
func (s *Shard) Counts() (all []*counter.Counter) {
	for _, c := range s.counts {
		all = append(all, &c.core)
	}
	slices.SortFunc(all, func(a, b *counter.Counter) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// counterOf is the state that a counter belongs to.
func counterOf(t *counter.Counter) *Counter { return t.Handle.(*Counter) }

// UnlockCount gives the shard's lock back, and does what transitions of a count have left to be done.
func (s *Shard) UnlockCount(rd *counter.Ready) {
	if rd.Counter != nil {
		counterOf(rd.Counter).apply(rd)
	}
	s.Unlock()
	if rd.Send {
		s.Table.Client.Submit(rd.Counter.Route, counterOf(rd.Counter))
	}
	if rd.Disconnected {
		s.Table.Recovery.Add(counterOf(rd.Counter))
	}
	rd.Deliver()
}

// apply does what must be done under the lock. It neither blocks nor calls back.
func (c *Counter) apply(rd *counter.Ready) {
	t := c.sh.Table
	if at := c.core.Due(); at != c.at {
		c.at = at
		setTimer(t.Timers, &c.timer, at)
	}
	c.subscribe()
	if rd.NotPublished {
		t.Engine.NotPublished(c.core.Name)
	}
	if rd.Refused != nil {
		t.noteRefusal(rd.Refused, rd.ForGood)
	}
	if rd.Unstalled {
		t.Recovery.Drop(c)
	}
	if c.core.Out {
		delete(c.sh.counts, CounterKey{c.core.Name, c.core.Kind})
		c.sh.emptied()
	}
}

// transition makes a transition of the count, and does what it leaves to be done.
func (c *Counter) transition(do func(c *counter.Counter, rd *counter.Ready)) {
	var rd counter.Ready
	c.sh.Lock()
	if !c.core.Out {
		do(&c.core, &rd)
	}
	c.sh.UnlockCount(&rd)
}

// counterSubscription is a subscription of a count. It is an object of its own because events may arrive after
// it was given up, and when there is another one.
type counterSubscription struct {
	resp.Channel
	c       *Counter
	request uint64 // counter.Channel
}

// subscribe subscribes to the channel, once more perhaps, or gives it up: that neither blocks nor calls back.
func (c *Counter) subscribe() {
	switch request := c.core.Channel(); {
	case request == 0:
		c.unsubscribe(&c.former)
		c.unsubscribe(&c.sub)
	case c.sub == nil || request != c.sub.request:
		c.sub, c.former = &counterSubscription{c: c, request: request}, c.sub
		c.sub.Init(c.channel, c.sub)
		c.sh.Table.Client.Subscribe(&c.sub.Channel)
	}
}

func (c *Counter) unsubscribe(e **counterSubscription) {
	if *e != nil {
		c.sh.Table.Client.Unsubscribe(&(*e).Channel)
		*e = nil
	}
}

// Fire implements wheel.Task.
func (c *Counter) Fire(_ *wheel.Timer, now clock.Instant) {
	c.transition(func(core *counter.Counter, rd *counter.Ready) {
		c.at = 0
		core.Fired(now, rd)
	})
}

// ChannelEvent implements resp.ChannelHandler.
func (e *counterSubscription) ChannelEvent(ev resp.ChannelEvent, message []byte, err error) {
	defer invariants.FailStop()
	c := e.c
	c.transition(func(core *counter.Counter, rd *counter.Ready) {
		switch {
		case c.sub != e && c.former != e:
		case ev == resp.Refused:
			core.ChannelRefused(err, rd)
		default:
			if ev == resp.Subscribed && c.sub == e {
				c.unsubscribe(&c.former)
			}
			core.OnChannel(channelEvents[ev], e.request, string(message) == "0", rd)
		}
	})
}

// The methods below implement recovery.Stalled.

func (c *Counter) Unwanted() *bool { return &c.cancelled }

func (c *Counter) Status() (stalled, urgent bool, route uint64) {
	c.sh.Lock()
	defer c.sh.Unlock()
	return c.core.IsDisconnected(), c.core.Urgent(), c.core.Route
}

func (c *Counter) Advance(by *lock.Throttle) (sends bool) {
	c.transition(func(core *counter.Counter, rd *counter.Ready) {
		core.Reconnected(rd)
		if sends = rd.Send; sends {
			c.throttle = by
		}
	})
	return sends
}
