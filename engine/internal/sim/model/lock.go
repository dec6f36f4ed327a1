package model

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp/wire"
)

// scripts are the models of those that have one key and answer a number. They follow the
// Lua line by line.
var scripts = map[*script.Script]func(v *Keyspace, key string, args []string) int64{
	script.Acquire: func(v *Keyspace, key string, args []string) int64 {
		lease, owner := Number(args[0]), args[1]
		ttl := v.Left(key)
		switch {
		case ttl == -2:
			v.Make(key).Fields[owner] = "1"
			v.ExpireIn(key, lease)
			return script.Granted
		case v.Has(key, owner):
			if ttl < lease {
				v.ExpireIn(key, lease)
			}
			return script.Granted
		}
		return ttl
	},
	script.Reenter: func(v *Keyspace, key string, args []string) int64 {
		lease, owner, count := Number(args[0]), args[1], args[2]
		if !v.Has(key, owner) {
			return script.NotThere
		}
		v.Get(key).Fields[owner] = count
		if v.Left(key) < lease {
			v.ExpireIn(key, lease)
		}
		return script.Granted
	},
	script.Leave: func(v *Keyspace, key string, args []string) int64 {
		owner, count := args[0], args[1]
		if !v.Has(key, owner) {
			return script.NotThere
		}
		v.Get(key).Fields[owner] = count
		return script.StillHeld
	},
	script.Release: func(v *Keyspace, key string, args []string) int64 {
		owner, channel, verb := args[0], args[1], args[2]
		if !v.Remove(key, owner) {
			return script.NotThere
		}
		v.announce(channel, verb)
		return script.Done
	},
	script.Retire: func(v *Keyspace, key string, args []string) int64 {
		owner, rest, nobody, channel, verb := args[0], Number(args[1]), args[2], args[3], args[4]
		if !v.Has(key, owner) {
			return script.NotThere
		}
		v.ExpireIn(key, rest)
		v.Get(key).Fields[nobody] = "1"
		v.Remove(key, owner)
		v.announce(channel, verb)
		return script.Done
	},
	script.Force: func(v *Keyspace, key string, args []string) int64 {
		only, channel, verb := args[0], args[1], args[2]
		if v.Get(key) == nil || only != "" && !v.Has(key, only) {
			return 0
		}
		delete(v.Keys, key)
		v.announce(channel, verb)
		return script.Done
	},
}

// queues are the models of those that have a queue.
var queues = map[*script.Script]func(v *Keyspace, keys, args []string) int64{
	script.Fair: (*Keyspace).fair, script.FairRelease: (*Keyspace).fairRelease, script.FairForce: (*Keyspace).fairForce,
}

// IsFair reports whether a script has a queue.
func IsFair(s *script.Script) bool { return queues[s] != nil }

func (v *Keyspace) renew(keys, args []string, dst []byte) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(keys))
	for i, key := range keys {
		lease, owner := Number(args[2*i]), args[2*i+1]
		code := int64(script.Gone)
		switch h := v.Get(key); {
		case h != nil && h.Text:
			code = script.WrongType
		case v.Has(key, owner):
			v.ExpireIn(key, max(v.Left(key), lease))
			code = script.Renewed
		}
		dst = appendInt(dst, code)
	}
	return dst
}

func (v *Keyspace) fenced(key, counter string, args []string, dst []byte) []byte {
	if v.Left(key) == -2 {
		v.counters[counter]++
	}
	code := scripts[script.Acquire](v, key, args)
	if code != script.Granted {
		return v.appendHolder(dst, key, code)
	}
	return appendInt(appendInt(append(dst, "*2\r\n"...), code), v.counters[counter])
}

func (v *Keyspace) several(keys, args []string, dst []byte) []byte {
	key, channel, verb, lease, taker, released := keys[0], args[0], args[1], args[2], args[3], args[4:]
	var codes []int64
	freed, taken := false, int64(0)
	for _, owner := range released {
		if v.Has(key, owner) {
			codes, freed = append(codes, script.Done), true
		} else {
			codes = append(codes, script.NotThere)
		}
	}
	for _, owner := range released {
		v.Remove(key, owner)
	}
	if taker != "" {
		if len(keys) > 1 && v.Left(key) == -2 {
			v.counters[keys[1]]++
		}
		taken = scripts[script.Acquire](v, key, []string{lease, taker})
		codes = append(codes, taken)
		if len(keys) > 1 && taken == script.Granted {
			codes = append(codes, v.counters[keys[1]])
		}
	}
	if freed && taken != script.Granted {
		v.announce(channel, verb)
	}
	dst = fmt.Appendf(dst, "*%d\r\n", len(codes))
	for _, code := range codes {
		dst = appendInt(dst, code)
	}
	return dst
}

func (v *Keyspace) state(key string, dst []byte) []byte {
	var fields map[string]string
	if h := v.Get(key); h != nil {
		fields = h.Fields
	}
	dst = fmt.Appendf(dst, "*%d\r\n", 1+2*len(fields))
	dst = appendInt(dst, v.Left(key))
	for _, owner := range slices.Sorted(maps.Keys(fields)) {
		dst = wire.AppendBulk(dst, owner)
		dst = wire.AppendBulk(dst, fields[owner])
	}
	return dst
}
