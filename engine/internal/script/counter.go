package script

import (
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/resp"
)

// What the counter script answers instead of a list, when it has not done anything.
const (
	NoCount    = -4 // the key is no count
	Superseded = -6 // a later command of the engine has been executed
)

// CounterOp is one operation of a counter call; see counter.lua.
type CounterOp struct {
	What byte
	N    int64
}

// CounterCall is a call of counter: operations on one count.
type CounterCall struct {
	Key     string
	Mark    string // see MarkOf
	Number  uint64 // higher than that of the engine's command before; 0: it only looks
	Channel string
	Verb    string
	Ops     []CounterOp
}

// MarkOf is the key of an engine's mark for a count, in the slot of the count. Its braces
// follow Redisson's rule, but x and {x} have a mark each: the numbers of their commands have
// nothing to do with each other.
func MarkOf(name, engine string) string {
	if strings.Contains(name, "{") {
		return name + ":pawl::" + engine
	}
	return "{" + name + "}:pawl:" + engine
}

// AppendCounter appends counter(operations). One that only looks has one key: it is answered while a
// cluster moves the slot, too.
func AppendCounter(dst []byte, form resp.ScriptForm, c *CounterCall) []byte {
	keys := 2
	if c.Number == 0 {
		keys = 1
	}
	to := Counter.call(dst, form, keys, 3+len(c.Ops)).text(c.Key)
	if keys == 2 {
		to = to.text(c.Mark)
	}
	to = to.number(int64(c.Number)).text(c.Channel).text(c.Verb)
	for _, op := range c.Ops {
		var buf [21]byte
		to = to.text(string(strconv.AppendInt(append(buf[:0], op.What), op.N, 10)))
	}
	return to
}
