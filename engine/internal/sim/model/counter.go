package model

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// MarkFor is how long a mark lasts, in milliseconds.
const MarkFor = 60_000

// counter is the model of that script. It follows the Lua line by line.
func (v *Keyspace) counter(keys, args []string, dst []byte) []byte {
	key, mark, seq, channel, verb, ops := keys[0], keys[len(keys)-1], Number(args[0]), args[1], args[2], args[3:]
	if old := v.Get(mark); seq > 0 && old != nil {
		last, said, _ := strings.Cut(old.Value, " ")
		switch n := Number(last); {
		case n > seq:
			return appendInt(dst, script.Superseded)
		case n == seq && said == "!":
			return appendInt(dst, script.NoCount)
		case n == seq:
			return appendCodes(dst, strings.Fields(said))
		}
	}
	count, there, expire := int64(0), false, int64(0)
	if h := v.Get(key); h != nil {
		n, err := strconv.ParseInt(h.Value, 10, 64)
		if err != nil || !h.Text || n > 1<<53 || n < -1<<53 {
			if seq > 0 {
				v.set(mark, args[0]+" !", MarkFor)
			}
			return appendInt(dst, script.NoCount)
		}
		count, there, expire = n, true, h.Expire
	}
	var said, messages []string
	refused, grown, before, wasThere := false, false, count, there
	for _, op := range ops {
		code, n := int64(1), int64(0)
		if len(op) > 1 {
			n = Number(op[1:])
		}
		switch op[0] {
		case 'a', 't':
			if refused || !there || count < n {
				if code = 0; op[0] == 't' && !there && !refused {
					code = script.Unset
				}
				refused = refused || op[0] == 'a'
			} else {
				count -= n
			}
		case 'r':
			count, there, grown = count+n, true, true
		case 'p':
			count, there, grown, expire = count+n, true, grown || n > 0, 0
		case 's':
			if there {
				code = 0
			} else {
				count, there, grown = n, true, true
			}
		case 'd':
			code = count
			if there {
				count, expire = 0, 0
			}
		case 'c':
			count--
			if count == 0 {
				messages = append(messages, "0")
			}
			if there = count > 0; !there {
				count = 0
			}
		case 'l':
			if there {
				code = 0
			} else {
				count, there, expire = n, true, 0
				messages = append(messages, "1")
			}
		default:
			code = count
		}
		said = append(said, strconv.FormatInt(code, 10))
	}
	if seq > 0 {
		v.set(mark, args[0]+" "+strings.Join(said, " "), MarkFor)
	}
	if v.Counted != nil {
		v.Counted(key, mark, ops, said)
	}
	switch {
	case !there:
		delete(v.Keys, key)
	case !wasThere || count != before || expire == 0:
		if !wasThere {
			expire = 0
		}
		v.Keys[key] = &Hash{Text: true, Value: strconv.FormatInt(count, 10), Expire: expire}
	}
	if grown && count > 0 {
		messages = append(messages, strconv.FormatInt(count, 10))
	}
	for _, message := range messages {
		v.say(channel, verb, message)
	}
	return appendCodes(dst, said)
}

// set makes a key a string that expires.
func (v *Keyspace) set(key, value string, ms int64) {
	v.Keys[key] = &Hash{Text: true, Value: value}
	v.ExpireIn(key, ms)
}

// appendCodes appends the answers, and that every message was heard.
func appendCodes(dst []byte, codes []string) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(codes)+1)
	for _, code := range codes {
		dst = appendInt(dst, Number(code))
	}
	return appendInt(dst, script.Done)
}
