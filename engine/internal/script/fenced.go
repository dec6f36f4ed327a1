package script

import (
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// TokenPrefix is that of the counter of a lock's fencing tokens, as Redisson has it.
const TokenPrefix = "redisson_lock_token"

// AppendFenced appends fenced(owner, lease), with the counter of its tokens.
func AppendFenced(dst []byte, form resp.ScriptForm, key string, o Owner, lease time.Duration) []byte {
	return Fenced.call(dst, form, 2, 2).text(key).companion(TokenPrefix, key).milliseconds(lease).owner(o)
}
