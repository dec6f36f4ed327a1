package script

import (
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// WaitersPrefix is that of the queue of the engines that wait for a lock. Redisson knows nothing of it.
const WaitersPrefix = "pawl_queue"

// EngineChannelOf is the name of the channel where an engine is told that it is in the front.
func (q Queue) EngineChannelOf(engine string) string { return q.Channel.Name() + ":" + engine }

// appendFront appends what front.lua is told.
func (q Queue) appendFront(dst []byte, o Owner) []byte {
	dst = o.appendTo(dst)
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
	dst = q.appendFront(dst, o)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return wire.AppendBulk(dst, flag(looks))
}

// AppendWithdraw appends withdraw(owner).
func AppendWithdraw(dst []byte, form resp.ScriptForm, q Queue, o Owner) []byte {
	dst = Withdraw.begin(dst, form, 1, 5)
	dst = appendCompanion(dst, WaitersPrefix, q.Key)
	return q.appendFront(dst, o)
}

// ParseOwner takes the text of an owner of an engine apart; not ok if it is none of that.
func ParseOwner(text []byte, engine string) (id int64, ok bool) {
	n := len(engine)
	if len(text) <= n || string(text[:n]) != engine || text[n] != ':' {
		return 0, false
	}
	id, err := strconv.ParseInt(string(text[n+1:]), 10, 64)
	return id, err == nil && id > 0
}
