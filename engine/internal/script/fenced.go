package script

import (
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// TokenPrefix is that of the counter of a lock's fencing tokens, as Redisson has it.
const TokenPrefix = "redisson_lock_token"

// AppendFenced appends fenced(owner, lease), with the counter of its tokens.
func AppendFenced(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration) []byte {
	dst = Fenced.begin(dst, form, 2, 2)
	dst = wire.AppendBulk(dst, key)
	dst = appendCompanion(dst, TokenPrefix, key)
	dst = wire.AppendBulkInt(dst, Milliseconds(lease))
	return o.appendTo(dst)
}
