package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// markFor is how long a mark lasts, in milliseconds.
const markFor = 60_000

// tally is the model of that script. It follows the Lua line by line.
func (v *server) tally(keys, args []string, dst []byte) []byte {
	key, mark, seq, channel, verb, ops := keys[0], keys[len(keys)-1], number(args[0]), args[1], args[2], args[3:]
	if old := v.get(mark); seq > 0 && old != nil {
		last, said, _ := strings.Cut(old.value, " ")
		switch n := number(last); {
		case n > seq:
			return appendInt(dst, script.Superseded)
		case n == seq && said == "!":
			return appendInt(dst, script.NoCount)
		case n == seq:
			return appendCodes(dst, strings.Fields(said))
		}
	}
	count, there, expire := int64(0), false, int64(0)
	if h := v.get(key); h != nil {
		n, err := strconv.ParseInt(h.value, 10, 64)
		if err != nil || !h.text || n > 1<<53 || n < -1<<53 {
			if seq > 0 {
				v.set(mark, args[0]+" !", markFor)
			}
			return appendInt(dst, script.NoCount)
		}
		count, there, expire = n, true, h.expire
	}
	var said, messages []string
	refused, grown, before, wasThere := false, false, count, there
	for _, op := range ops {
		code, n := int64(1), int64(0)
		if len(op) > 1 {
			n = number(op[1:])
		}
		switch op[0] {
		case 'a', 't':
			if refused || !there || count < n {
				code, refused = 0, refused || op[0] == 'a'
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
		v.set(mark, args[0]+" "+strings.Join(said, " "), markFor)
	}
	if v.counted != nil {
		v.counted(key, mark, ops, said)
	}
	switch {
	case !there:
		delete(v.keys, key)
	case !wasThere || count != before || expire == 0:
		if !wasThere {
			expire = 0
		}
		v.keys[key] = &hash{text: true, value: strconv.FormatInt(count, 10), expire: expire}
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
func (v *server) set(key, value string, ms int64) {
	v.keys[key] = &hash{text: true, value: value}
	v.expireIn(key, ms)
}

// appendCodes appends the answers, and that every message was heard.
func appendCodes(dst []byte, codes []string) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(codes)+1)
	for _, code := range codes {
		dst = appendInt(dst, number(code))
	}
	return appendInt(dst, script.Done)
}

// isTally reports whether a command is a call of that script.
func isTally(command []byte) bool { return split(command)[1] == script.Tally.SHA }

// semaphore is a number of permits that are to be had, and the ids that are held, with when they
// expire, in milliseconds.
type semaphore struct {
	there bool
	value int64
	held  map[string]int64
	all   int64 // what it was given: value, and as many as are held
}

// semaphore returns that of a key, made if need be.
func (v *server) semaphore(key string) *semaphore {
	m := v.semaphores[key]
	if m == nil {
		m = &semaphore{held: make(map[string]int64)}
		v.semaphores[key] = m
	}
	return m
}

func (v *server) copySemaphores() map[string]*semaphore {
	all := make(map[string]*semaphore, len(v.semaphores))
	for key, m := range v.semaphores {
		all[key] = &semaphore{m.there, m.value, maps.Clone(m.held), m.all}
	}
	return all
}

// ids are those that are held, in order.
func (m *semaphore) ids() []string { return slices.Sorted(maps.Keys(m.held)) }

// reclaim takes back what has expired, and returns how many that were.
func (m *semaphore) reclaim(now int64) (back int64) {
	for id, end := range m.held {
		if end <= now {
			delete(m.held, id)
			back++
		}
	}
	m.add(back)
	return back
}

func (m *semaphore) add(n int64) {
	m.value += n
	m.there = m.there || n != 0
}

// permitScripts are the models of those of a semaphore. They follow the Lua line by line.
var permitScripts = map[*script.Script]func(v *server, m *semaphore, args []string, dst []byte) []byte{
	script.PermitTake: func(v *server, m *semaphore, args []string, dst []byte) []byte {
		now, channel, verb, ids := v.milliseconds(), args[1], args[2], args[3:]
		end, n := now+number(args[0]), int64(len(ids))
		if m.held[ids[0]] != 0 {
			for _, id := range ids {
				if m.held[id] != 0 {
					m.held[id] = end
				}
			}
			return appendInt(dst, script.Granted)
		}
		back, code := m.reclaim(now), int64(script.NoExpiry)
		if m.value >= n {
			m.add(-n)
			for _, id := range ids {
				m.held[id] = end
			}
			code = script.Granted
		} else if len(m.held) > 0 {
			code = slices.Min(slices.Collect(maps.Values(m.held))) - now
		}
		if back > 0 && m.value > 0 {
			v.announce(channel, verb)
		}
		return appendInt(dst, code)
	},
	script.PermitFree: func(v *server, m *semaphore, args []string, dst []byte) []byte {
		channel, verb, ids := args[0], args[1], args[2:]
		back := int64(0)
		for _, id := range ids {
			if m.held[id] != 0 {
				delete(m.held, id)
				back++
			}
		}
		m.add(back)
		if back > 0 && m.value > 0 {
			v.announce(channel, verb)
		}
		if back < int64(len(ids)) {
			return appendInt(dst, script.NotThere)
		}
		return appendInt(dst, script.Done)
	},
	script.PermitSet: func(v *server, m *semaphore, args []string, dst []byte) []byte {
		what, n, channel, verb := args[0], number(args[1]), args[2], args[3]
		switch {
		case what == script.TryPermits && m.there:
			return appendInt(dst, 0)
		case what == script.AddPermits:
			m.all += n
		default:
			m.all = n
		}
		switch {
		case what != script.AddPermits && !m.there:
			n -= int64(len(m.held))
			m.value, m.there = n, true
		default:
			if what == script.SetPermits {
				n -= m.value + int64(len(m.held))
			}
			m.value, m.there = m.value+n, true
		}
		if n > 0 && m.value > 0 {
			v.announce(channel, verb)
		}
		return appendInt(dst, script.Done)
	},
	script.PermitCount: func(v *server, m *semaphore, args []string, dst []byte) []byte {
		if m.reclaim(v.milliseconds()) > 0 && m.value > 0 {
			v.announce(args[0], args[1])
		}
		return appendInt(appendInt(append(dst, "*2\r\n"...), m.value), int64(len(m.held)))
	},
}

// renewPermits has the keys of ids, and no others.
func (v *server) renewPermits(keys, args []string, dst []byte) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(keys))
	now := v.milliseconds()
	for _, key := range keys {
		m, end, n := v.semaphore(semaphoreOf(key)), now+number(args[0]), number(args[1])
		ids := args[2 : 2+n]
		args = args[2+n:]
		code := int64(script.Renewed)
		for _, id := range ids {
			if m.held[id] <= now {
				code = script.Gone
			}
		}
		for _, id := range ids {
			if code == script.Renewed {
				m.held[id] = max(m.held[id], end)
			}
		}
		dst = appendInt(dst, code)
	}
	return dst
}

// semaphoreOf is the semaphore that a key of ids is of.
func semaphoreOf(key string) string {
	for _, name := range []string{permits, "a", "b", "{c}"} {
		if script.HeldPermits(name) == key {
			return name
		}
	}
	panic("BUG: whose ids are these: " + key)
}
