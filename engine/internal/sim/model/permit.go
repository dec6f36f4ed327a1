package model

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// Semaphore is a number of permits that are to be had, and the ids that are held, with when they
// expire, in milliseconds.
type Semaphore struct {
	There bool
	Value int64
	Held  map[string]int64
	All   int64 // what it was given: value, and as many as are held
}

// Semaphore returns that of a key, made if need be.
func (v *Keyspace) Semaphore(key string) *Semaphore {
	m := v.semaphores[key]
	if m == nil {
		m = &Semaphore{Held: make(map[string]int64)}
		v.semaphores[key] = m
	}
	return m
}

// IDs are those that are held, in order.
func (m *Semaphore) IDs() []string { return slices.Sorted(maps.Keys(m.Held)) }

// reclaim takes back what has expired, and returns how many that were.
func (m *Semaphore) reclaim(now int64) (back int64) {
	for id, end := range m.Held {
		if end <= now {
			delete(m.Held, id)
			back++
		}
	}
	m.add(back)
	return back
}

func (m *Semaphore) add(n int64) {
	m.Value += n
	m.There = m.There || n != 0
}

// permitScripts are the models of those of a semaphore. They follow the Lua line by line.
var permitScripts = map[*script.Script]func(v *Keyspace, m *Semaphore, args []string, dst []byte) []byte{
	script.PermitTake: func(v *Keyspace, m *Semaphore, args []string, dst []byte) []byte {
		now, channel, verb, ids := v.Milliseconds(), args[1], args[2], args[3:]
		end, n := now+Number(args[0]), int64(len(ids))
		if m.Held[ids[0]] != 0 {
			for _, id := range ids {
				if m.Held[id] != 0 {
					m.Held[id] = end
				}
			}
			return appendInt(dst, script.Granted)
		}
		code := int64(script.NoExpiry)
		if !m.There {
			code = script.Unset
		}
		back := m.reclaim(now)
		if m.Value >= n {
			m.add(-n)
			for _, id := range ids {
				m.Held[id] = end
			}
			code = script.Granted
		} else if len(m.Held) > 0 {
			code = slices.Min(slices.Collect(maps.Values(m.Held))) - now
		}
		if back > 0 && m.Value > 0 {
			v.announce(channel, verb)
		}
		return appendInt(dst, code)
	},
	script.PermitFree: func(v *Keyspace, m *Semaphore, args []string, dst []byte) []byte {
		channel, verb, ids := args[0], args[1], args[2:]
		back := int64(0)
		for _, id := range ids {
			if m.Held[id] != 0 {
				delete(m.Held, id)
				back++
			}
		}
		m.add(back)
		if back > 0 && m.Value > 0 {
			v.announce(channel, verb)
		}
		if back < int64(len(ids)) {
			return appendInt(dst, script.NotThere)
		}
		return appendInt(dst, script.Done)
	},
	script.PermitSet: func(v *Keyspace, m *Semaphore, args []string, dst []byte) []byte {
		what, n, channel, verb := args[0], Number(args[1]), args[2], args[3]
		switch {
		case what == script.TryPermits && m.There:
			return appendInt(dst, 0)
		case what == script.AddPermits:
			m.All += n
		default:
			m.All = n
		}
		switch {
		case what != script.AddPermits && !m.There:
			n -= int64(len(m.Held))
			m.Value, m.There = n, true
		default:
			if what == script.SetPermits {
				n -= m.Value + int64(len(m.Held))
			}
			m.Value, m.There = m.Value+n, true
		}
		if n > 0 && m.Value > 0 {
			v.announce(channel, verb)
		}
		return appendInt(dst, script.Done)
	},
	script.PermitCount: func(v *Keyspace, m *Semaphore, args []string, dst []byte) []byte {
		if m.reclaim(v.Milliseconds()) > 0 && m.Value > 0 {
			v.announce(args[0], args[1])
		}
		return appendInt(appendInt(append(dst, "*2\r\n"...), m.Value), int64(len(m.Held)))
	},
}

// renewPermits has the keys of ids, and no others.
func (v *Keyspace) renewPermits(keys, args []string, dst []byte) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(keys))
	now := v.Milliseconds()
	for _, key := range keys {
		m, end, n := v.semaphoreOf(key), now+Number(args[0]), Number(args[1])
		ids := args[2 : 2+n]
		args = args[2+n:]
		code := int64(script.Renewed)
		for _, id := range ids {
			if m.Held[id] <= now {
				code = script.Gone
			}
		}
		for _, id := range ids {
			if code == script.Renewed {
				m.Held[id] = max(m.Held[id], end)
			}
		}
		dst = appendInt(dst, code)
	}
	return dst
}

// semaphoreOf is the semaphore that a key of ids is of; one without permits if there is none.
func (v *Keyspace) semaphoreOf(key string) *Semaphore {
	for name, m := range v.semaphores {
		if script.HeldPermits(name) == key {
			return m
		}
	}
	return new(Semaphore)
}

// IsPermit reports whether a script is of a semaphore whose permits have leases.
func IsPermit(s *script.Script) bool { return permitScripts[s] != nil }
