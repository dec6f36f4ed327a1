package script

import (
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// WaitersPrefix is that of the queue of the engines that wait for a lock. Redisson knows nothing of it.
const WaitersPrefix = "pawl_queue"

// EngineChannelOf is the name of the channel where an engine is told that it is in the front.
func (q Queue) EngineChannelOf(engine string) string { return q.Channel.Name() + ":" + engine }

// front appends what front.lua is told behind the engine.
func (c command) front(q Queue) command {
	return c.channel(q.Channel).flag(q.Counts).number(int64(q.Front))
}

// AppendJoin appends join(owner, lease, first), with the counter of the lock's tokens if it has one. first is the number
// of the engine whose turn it was when this one began to wait for it; 0: none.
func AppendJoin(dst []byte, form resp.ScriptForm, q Queue, o Owner, lease time.Duration, counts bool, first uint32) []byte {
	keys := 2
	if counts {
		keys = 3
	}
	to := Join.call(dst, form, keys, 7).text(q.Key)
	if counts {
		to = to.companion(TokenPrefix, q.Key)
	}
	return to.companion(WaitersPrefix, q.Key).owner(o).front(q).milliseconds(lease).number(int64(first))
}

// AppendWithdraw appends withdraw(engine).
func AppendWithdraw(dst []byte, form resp.ScriptForm, q Queue, engine string) []byte {
	return Withdraw.call(dst, form, 1, 5).companion(WaitersPrefix, q.Key).text(engine).front(q)
}
