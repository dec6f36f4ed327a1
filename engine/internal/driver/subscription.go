package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/serial"
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
	w.Handle = w
	w.alarm.Init(w)
	return w
}

// subscriptionOf is what drives the subscription of an effect.
func subscriptionOf(e *lock.Effect) *subscription { return e.Subscription.Handle.(*subscription) }

// listen subscribes to the channel of a kind, for an owner: that neither blocks nor calls back.
func (w *subscription) listen(k kind.Kind, owner int64) {
	r, t := w.Entry(), ShardOf(w.Entry()).Table
	name := t.Channel(Key{r.Name, k}).Name()
	if k.Traits().Waiting == lock.Queueing {
		name = t.queue(k, r.Name).ChannelOf(OwnerOf(r, uint8(k), owner))
	}
	w.channel.Init(name, w)
	t.Client.Subscribe(&w.channel)
}

// listenForCalls subscribes as listen does.
func (w *subscription) listenForCalls(k kind.Kind) {
	r, t := w.Entry(), ShardOf(w.Entry()).Table
	if w.calls == nil {
		w.calls = &calls{sub: w}
	}
	w.calls.channel.Init(t.queue(k, r.Name).EngineChannelOf(t.ID), w.calls)
	t.Client.Subscribe(&w.calls.channel)
}

// ChannelEvent implements resp.ChannelHandler.
func (c *calls) ChannelEvent(ev resp.ChannelEvent, _ []byte, _ error) {
	defer invariants.FailStop()
	sh := ShardOf(c.sub.Entry())
	var rd lock.Ready
	sh.Lock()
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
	sh.finish(&rd)
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
	sh.Lock()
	if ev == resp.Refused {
		w.ChannelRefused(w.channel.Name(), err, &rd)
	} else {
		w.OnChannel(channelEvents[ev], &rd)
	}
	sh.finish(&rd)
}

// channelEvents are those of package resp, but for a refusal.
var channelEvents = [...]serial.ChannelEvent{resp.Subscribed: serial.Confirmed, resp.Message: serial.Message, resp.Disconnected: serial.Lost}

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
