package suspicion

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/topology"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Question is what a new connection is asked about a command that was refused on another: to write
// to its key, in a script as commands of locks are, and without effect: to delete a field that
// nobody has. It needs no right that these do not need. Without a key it is PING.
type Question struct{ key, field string }

// About returns the question about a refused request.
func About(r request.Request) Question {
	return Question{key: keyOf(r), field: "pawl:" + rand.Text()}
}

// write is the script.
const write = "return redis.call('hdel', KEYS[1], ARGV[1])"

var writeSHA = func() string {
	sum := sha1.Sum([]byte(write))
	return hex.EncodeToString(sum[:])
}()

// AppendCommand is that of a Request.
func (q Question) AppendCommand(dst []byte, form request.ScriptForm) []byte {
	switch {
	case q.key == "":
		return wire.AppendCommand(dst, "PING")
	case form == request.Eval:
		return wire.AppendCommand(dst, "EVAL", write, "1", q.key, q.field)
	default:
		return wire.AppendCommand(dst, "EVALSHA", writeSHA, "1", q.key, q.field)
	}
}

// keyOf reads the first key of a request from its encoding; "" if it has none.
func keyOf(r request.Request) string {
	v, _, err := wire.Decode(r.AppendCommand(nil, request.EvalSHA))
	words := replyreader.Elements(v)
	if err != nil || len(words) < 2 {
		return ""
	}
	if name := string(words[0].Bytes); !strings.EqualFold(name, "EVALSHA") && !strings.EqualFold(name, "EVAL") {
		return string(words[1].Bytes)
	}
	if len(words) < 4 {
		return ""
	}
	if n, err := strconv.Atoi(string(words[2].Bytes)); err != nil || n < 1 {
		return ""
	}
	return string(words[3].Bytes)
}

// Served judges the answer to a question about a command that was refused there, and sent on to an
// address, or to none (""). Whatever does not say "not now" is better than what the other connections
// get: that the key is no hash, say. So is another address.
func Served(v wire.Value, there topology.Refused, sentTo string) bool {
	if v.Kind != wire.KindError {
		return true
	}
	e := wire.NewServerError(v.Bytes)
	to := topology.ActionOf(e, there).To
	return to != "" && to != sentTo || !request.RefusalOf(e).NotNow()
}
