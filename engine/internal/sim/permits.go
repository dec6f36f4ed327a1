package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// semaphore is a number of permits that are to be had, and the ids that are held, with when they
// expire, in milliseconds.
type semaphore struct {
	there bool
	value int64
	held  map[string]int64
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
		all[key] = &semaphore{m.there, m.value, maps.Clone(m.held)}
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
