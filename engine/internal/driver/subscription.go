package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// subscription is the wait of an entry's head: the core's, with its alarm and its channel.
//
// It is an object of its own because timers and channel events may arrive after the
// entry has finished with it. Then the core does nothing.
type subscription struct {
	lock.Subscription
	alarm   wheel.Timer
	channel resp.Channel
	calls   *calls // nil until the first ListenForCalls
}

// calls is the channel on which this engine is called to the front of a queue.
type calls struct {
	sub     *subscription
	channel resp.Channel
}

func newSubscription() *subscription {
	w := new(subscription)
	w.Port = w
	w.alarm.Init(w)
	return w
}

// The methods below implement lock.SubscriptionPort.

func (w *subscription) SetTimer(at clock.Instant) {
	setTimer(ShardOf(w.Entry()).Table.Timers, &w.alarm, at)
}

// Listen subscribes: that neither blocks nor calls back.
func (w *subscription) Listen(r *lock.Entry, k uint8, owner int64) {
	t := ShardOf(r).Table
	name := t.Channel(Key{r.Name, kind.Kind(k)}).Name()
	if kind.Kind(k).Traits().Waiting == lock.Queueing {
		name = t.queue(kind.Kind(k), r.Name).ChannelOf(OwnerOf(r, k, owner))
	}
	w.channel.Init(name, w)
	t.Client.Subscribe(&w.channel)
}

func (w *subscription) Unlisten() { ShardOf(w.Entry()).Table.Client.Unsubscribe(&w.channel) }

// ListenForCalls subscribes as Listen does.
func (w *subscription) ListenForCalls(r *lock.Entry, k uint8) {
	t := ShardOf(r).Table
	if w.calls == nil {
		w.calls = &calls{sub: w}
	}
	w.calls.channel.Init(t.queue(kind.Kind(k), r.Name).EngineChannelOf(t.ID), w.calls)
	t.Client.Subscribe(&w.calls.channel)
}

func (w *subscription) UnlistenForCalls() {
	ShardOf(w.Entry()).Table.Client.Unsubscribe(&w.calls.channel)
}

// ChannelEvent implements resp.ChannelHandler.
func (c *calls) ChannelEvent(ev resp.ChannelEvent, _ []byte, _ error) {
	defer invariants.FailStop()
	sh := ShardOf(c.sub.Entry())
	var rd lock.Ready
	sh.mu.Lock()
	switch ev {
	case resp.Subscribed:
		c.sub.CallsConfirmed(&rd)
	case resp.Message:
		c.sub.Called(&rd)
	case resp.Disconnected:
		c.sub.CallsLost(&rd)
	case resp.Refused:
		c.sub.CallsRefused(&rd)
	}
	sh.mu.Unlock()
	sh.Table.Apply(&rd)
}

// Fire implements wheel.Task: the alarm.
func (w *subscription) Fire(*wheel.Timer, clock.Instant) {
	ShardOf(w.Entry()).do(w.AlarmFired)
}

// ChannelEvent implements resp.ChannelHandler.
func (w *subscription) ChannelEvent(ev resp.ChannelEvent, message []byte, err error) {
	defer invariants.FailStop()
	if ev == resp.Message && string(message) == script.ForRedisson {
		return
	}
	sh := ShardOf(w.Entry())
	var rd lock.Ready
	sh.mu.Lock()
	switch ev {
	case resp.Subscribed:
		w.Subscribed(&rd)
	case resp.Message:
		w.OnMessage(&rd)
	case resp.Disconnected:
		w.ConnectionLost(&rd)
	case resp.Refused:
		w.ChannelRefused(w.channel.Name(), err, &rd)
	}
	sh.mu.Unlock()
	sh.Table.Apply(&rd)
}

// pauseTimer ends a pause of an entry.
type pauseTimer struct {
	timer wheel.Timer
	entry *lock.Entry
	sh    *Shard
}

// Fire implements wheel.Task.
func (p *pauseTimer) Fire(*wheel.Timer, clock.Instant) {
	p.sh.do(p.entry.PauseOver)
}
