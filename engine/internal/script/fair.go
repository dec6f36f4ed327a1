package script

import (
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
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

// begin appends the head of a call, the three keys, the owner, if any, and what all scripts of a
// queue are told.
func (q Queue) begin(dst []byte, s *Script, form resp.ScriptForm, owner func([]byte) []byte, more int) []byte {
	dst = s.begin(dst, form, 3, 5+more)
	dst = wire.AppendBulk(dst, q.Key)
	dst = appendCompanion(dst, QueuePrefix, q.Key)
	dst = appendCompanion(dst, TimeoutPrefix, q.Key)
	dst = owner(dst)
	dst = q.Channel.appendTo(dst)
	dst = wire.AppendBulk(dst, flag(q.Counts))
	return wire.AppendBulkInt(dst, Milliseconds(q.Room))
}

func flag(yes bool) string {
	if yes {
		return "1"
	}
	return ""
}

// AppendFair appends fair(owner, lease). If it waits, the owner is queued.
func AppendFair(dst []byte, form resp.ScriptForm, q Queue, o Owner, lease time.Duration, waits bool) []byte {
	dst = q.begin(dst, Fair, form, o.appendTo, 2)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return wire.AppendBulk(dst, flag(waits))
}

// AppendFairRelease appends fairrelease(owner). If rest is not 0, nobody has the lock for that.
func AppendFairRelease(dst []byte, form resp.ScriptForm, q Queue, o, nobody Owner, rest time.Duration) []byte {
	dst = q.begin(dst, FairRelease, form, o.appendTo, 2)
	dst = wire.AppendBulkInt(dst, Milliseconds(rest))
	return nobody.appendTo(dst)
}

// AppendFairForce appends fairforce(owner or "").
func AppendFairForce(dst []byte, form resp.ScriptForm, q Queue, owner string) []byte {
	return q.begin(dst, FairForce, form, func(dst []byte) []byte { return wire.AppendBulk(dst, owner) }, 0)
}
