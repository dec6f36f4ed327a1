package script

import (
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// The companions of a fair lock, as Redisson has them.
const (
	QueuePrefix   = "redisson_lock_queue"
	TimeoutPrefix = "redisson_lock_timeout"
)

// Queue is what a lock whose waiters queue needs to know beside its owner.
type Queue struct {
	Key     string
	Channel Channel       // of which each owner, or engine, has one, with its own name behind a colon
	Counts  bool          // who publishes learns whether anybody hears
	Room    time.Duration // that each place in the queue of a fair lock counts
	Front   int           // how many of the others race; see lua/front.lua
}

// ChannelOf is the name of an owner's channel.
func (q Queue) ChannelOf(o Owner) string { return q.Channel.Name() + ":" + o.String() }

// call appends the head of a call and the three keys.
func (q Queue) call(dst []byte, s *Script, form resp.ScriptForm, args int) command {
	return s.call(dst, form, 3, args).text(q.Key).companion(QueuePrefix, q.Key).companion(TimeoutPrefix, q.Key)
}

// queue appends what all scripts of a queue are told behind the owner.
func (c command) queue(q Queue) command {
	return c.channel(q.Channel).flag(q.Counts).milliseconds(q.Room)
}

// AppendFair appends fair(owner, lease). If it waits, the owner is queued.
func AppendFair(dst []byte, form resp.ScriptForm, q Queue, o Owner, lease time.Duration, waits bool) []byte {
	return q.call(dst, Fair, form, 7).owner(o).queue(q).milliseconds(lease).flag(waits)
}

// AppendFairRelease appends fairrelease(owner). If rest is not 0, nobody has the lock for that.
func AppendFairRelease(dst []byte, form resp.ScriptForm, q Queue, o, nobody Owner, rest time.Duration) []byte {
	return q.call(dst, FairRelease, form, 7).owner(o).queue(q).milliseconds(rest).owner(nobody)
}

// AppendFairForce appends fairforce(owner or "").
func AppendFairForce(dst []byte, form resp.ScriptForm, q Queue, owner string) []byte {
	return q.call(dst, FairForce, form, 5).text(owner).queue(q)
}
