package script

import (
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// WaitersPrefix is that of the queue of the engines that wait for a lock. Redisson knows nothing of it.
const WaitersPrefix = "pawl_queue"

// EngineChannelOf is the name of the channel where an engine is told that it is in the front.
func (q Queue) EngineChannelOf(engine string) string { return q.Channel.Name() + ":" + engine }

// appendFront appends what front.lua is told behind the engine.
func (q Queue) appendFront(dst []byte) []byte {
	dst = q.Channel.appendTo(dst)
	dst = wire.AppendBulk(dst, flag(q.Counts))
	return wire.AppendBulkInt(dst, int64(q.Front))
}

// AppendJoin appends join(owner, lease), with the counter of the lock's tokens if it has one. One that looks is
// behind the front, and has heard nothing for long.
func AppendJoin(dst []byte, form resp.ScriptForm, q Queue, o Owner, lease time.Duration, counts, looks bool) []byte {
	keys := 2
	if counts {
		keys = 3
	}
	dst = Join.begin(dst, form, keys, 7)
	dst = wire.AppendBulk(dst, q.Key)
	if counts {
		dst = appendCompanion(dst, TokenPrefix, q.Key)
	}
	dst = appendCompanion(dst, WaitersPrefix, q.Key)
	dst = q.appendFront(o.appendTo(dst))
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return wire.AppendBulk(dst, flag(looks))
}

// AppendWithdraw appends withdraw(engine).
func AppendWithdraw(dst []byte, form resp.ScriptForm, q Queue, engine string) []byte {
	dst = Withdraw.begin(dst, form, 1, 5)
	dst = appendCompanion(dst, WaitersPrefix, q.Key)
	return q.appendFront(wire.AppendBulk(dst, engine))
}
