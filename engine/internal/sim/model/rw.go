package model

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// rwScripts are the models of the scripts of a read-write lock. A timeout key is a text with an
// expiry. They follow the Lua line by line, but for what that does if timeout keys are at
// another node: here all keys of a slot move together.
var rwScripts = map[*script.Script]func(v *Keyspace, keys, args []string) int64{
	script.ReadAcquire: func(v *Keyspace, keys, args []string) int64 {
		lease, owner, writer := Number(args[0]), args[1], args[2]
		ttl, again := v.Left(keys[0]), v.Has(keys[0], owner)
		if writer != "" && !again && !v.Has(keys[0], writer) {
			return script.NotThere
		}
		if ttl != -2 {
			mode := v.Get(keys[0]).Fields["mode"]
			if mode != "read" && !(mode == "write" && (again || writer != "")) {
				return ttl
			}
		}
		v.raise(keys[1], lease)
		if ttl == -2 {
			v.Make(keys[0]).Fields["mode"] = "read"
		}
		if !v.Has(keys[0], owner) {
			v.Make(keys[0]).Fields[owner] = "1"
		}
		if ttl < lease {
			v.ExpireIn(keys[0], lease)
		}
		return script.Granted
	},
	script.ReadReenter: func(v *Keyspace, keys, args []string) int64 {
		lease, owner, count := Number(args[0]), args[1], args[2]
		if !v.Has(keys[0], owner) {
			return script.NotThere
		}
		v.raise(keys[1], lease)
		v.Get(keys[0]).Fields[owner] = count
		if v.Left(keys[0]) < lease {
			v.ExpireIn(keys[0], lease)
		}
		return script.Granted
	},
	script.RWRelease: func(v *Keyspace, keys, args []string) int64 {
		key, owner, count, base, message, channel, verb := keys[0], args[0], Number(args[1]), args[2], args[3], args[4], args[5]
		reads := message == script.ReaderLeft
		if !v.Has(key, owner) {
			for i := int64(1); reads && count == 0 && v.Get(timeoutKey(base, owner, i)) != nil; i++ {
				delete(v.Keys, timeoutKey(base, owner, i))
			}
			return script.NotThere
		}
		had, _ := strconv.ParseInt(v.Get(key).Fields[owner], 10, 64)
		if count > 0 {
			v.Get(key).Fields[owner] = args[1]
		} else {
			v.Remove(key, owner)
		}
		if reads {
			for i := count + 1; i <= had; i++ {
				delete(v.Keys, timeoutKey(base, owner, i))
			}
		}
		tell := !reads
		switch h := v.Get(key); {
		case h == nil || len(h.Fields) < 2:
			delete(v.Keys, key)
			tell = true
		case !reads || h.Fields["mode"] == "read":
			h.Fields["mode"] = "read"
			left, enough := v.longestReader(h, base), float64(v.Left(key))*0.9
			if float64(left) >= enough {
				break
			}
			if tell = true; left > 1 {
				v.ExpireIn(key, left)
			} else {
				delete(v.Keys, key)
			}
		}
		if tell {
			v.announce(channel, verb)
		}
		return script.Done
	},
	script.RWForce: func(v *Keyspace, keys, args []string) int64 {
		only, mode, base, channel, verb := args[0], args[1], args[2], args[4], args[5]
		h := v.Get(keys[0])
		if h == nil || h.Fields["mode"] != mode || only == "mode" || only != "" && !v.Has(keys[0], only) ||
			only != "" && mode == "write" && !strings.HasSuffix(only, script.WriterSuffix) {
			return 0
		}
		delete(v.Keys, keys[0])
		for owner, count := range h.Fields {
			n, _ := strconv.ParseInt(count, 10, 64)
			for i := int64(1); i <= n; i++ {
				delete(v.Keys, timeoutKey(base, owner, i))
			}
		}
		v.announce(channel, verb)
		return script.Done
	},
	script.WriteAcquire: func(v *Keyspace, keys, args []string) int64 {
		free := v.Left(keys[0]) == -2
		code := scripts[script.Acquire](v, keys[0], args)
		if free {
			v.Get(keys[0]).Fields["mode"] = "write"
		}
		return code
	},
	script.WriteRetire: func(v *Keyspace, keys, args []string) int64 {
		key, owner, rest, nobody, base := keys[0], args[0], Number(args[1]), args[2], args[5]
		if h := v.Get(key); h != nil && len(h.Fields) > 2 && v.Has(key, owner) {
			nobody = strings.TrimSuffix(nobody, script.WriterSuffix)
			h.Fields["mode"] = "read"
			v.raise(timeoutKey(base, nobody, 1), rest)
			left := max(rest, v.longestReader(h, base))
			args = append([]string{owner, strconv.FormatInt(left, 10), nobody}, args[3:5]...)
		}
		if !v.Has(key, owner) {
			return script.NotThere
		}
		return scripts[script.Retire](v, key, args[:5])
	},
}

func timeoutKey(base, owner string, i int64) string {
	return fmt.Sprintf("%s:%s:rwlock_timeout:%d", base, owner, i)
}

// HasExpired reports whether an owner is a reader whose lease has ended. It keeps nobody out. Its
// field stays until the last reader leaves, as Redisson's do, so nobody need take it out: an engine
// that cannot reach the server for longer does not.
func (v *Keyspace) HasExpired(key, owner string) bool {
	h := v.Get(key)
	return h != nil && h.Fields["mode"] != "" && owner != "mode" && !strings.HasSuffix(owner, script.WriterSuffix) &&
		v.Left(timeoutKey("{"+key+"}", owner, 1)) == -2
}

// raise sets a timeout key, for no less than it has.
func (v *Keyspace) raise(key string, lease int64) {
	left := max(lease, v.Left(key))
	v.Keys[key] = &Hash{Text: true}
	v.ExpireIn(key, left)
}

// longestReader is how long the reader of a lock has it that has it longest.
func (v *Keyspace) longestReader(h *Hash, base string) (left int64) {
	for owner, count := range h.Fields {
		n, _ := strconv.ParseInt(count, 10, 64)
		for i := int64(1); i <= n; i++ {
			left = max(left, v.Left(timeoutKey(base, owner, i)))
		}
	}
	return left
}

func (v *Keyspace) readRenew(keys, args []string, dst []byte) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(keys)/2)
	for i := 0; i < len(keys); i += 2 {
		lease, owner := Number(args[i]), args[i+1]
		code := int64(script.Gone)
		switch h := v.Get(keys[i]); {
		case h != nil && h.Text:
			code = script.WrongType
		case v.Has(keys[i], owner):
			v.ExpireIn(keys[i], max(v.Left(keys[i]), lease))
			v.raise(keys[i+1], lease)
			code = script.Renewed
		}
		dst = appendInt(dst, code)
	}
	return dst
}

// raiseAlone is the second half of that.
func (v *Keyspace) raiseAlone(key string, args []string, dst []byte) []byte {
	code := int64(script.Refused)
	if v.Get(key) != nil {
		v.raise(key, Number(args[0]))
		code = script.Renewed
	}
	return appendInt(append(dst, "*1\r\n"...), code)
}
