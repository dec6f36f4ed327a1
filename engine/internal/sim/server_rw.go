package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// rwScripts are the models of the scripts of a read-write lock. A timeout key is a text with an
// expiry. They follow the Lua line by line, but for what that does if timeout keys are at
// another node: here all keys of a slot move together.
var rwScripts = map[*script.Script]func(v *server, keys, args []string) int64{
	script.ReadAcquire: func(v *server, keys, args []string) int64 {
		lease, owner, writer := number(args[0]), args[1], args[2]
		ttl, again := v.left(keys[0]), v.has(keys[0], owner)
		if writer != "" && !again && !v.has(keys[0], writer) {
			return script.NotThere
		}
		if ttl != -2 {
			mode := v.get(keys[0]).fields["mode"]
			if mode != "read" && !(mode == "write" && (again || writer != "")) {
				return ttl
			}
		}
		v.raise(keys[1], lease)
		if ttl == -2 {
			v.make(keys[0]).fields["mode"] = "read"
		}
		if !v.has(keys[0], owner) {
			v.make(keys[0]).fields[owner] = "1"
		}
		if ttl < lease {
			v.expireIn(keys[0], lease)
		}
		return script.Granted
	},
	script.ReadReenter: func(v *server, keys, args []string) int64 {
		lease, owner, count := number(args[0]), args[1], args[2]
		if !v.has(keys[0], owner) {
			return script.NotThere
		}
		v.raise(keys[1], lease)
		v.get(keys[0]).fields[owner] = count
		if v.left(keys[0]) < lease {
			v.expireIn(keys[0], lease)
		}
		return script.Granted
	},
	script.RWRelease: func(v *server, keys, args []string) int64 {
		key, owner, count, base, message, channel, verb := keys[0], args[0], number(args[1]), args[2], args[3], args[4], args[5]
		reads := message == script.ReaderLeft
		if !v.has(key, owner) {
			for i := int64(1); reads && count == 0 && v.get(timeoutKey(base, owner, i)) != nil; i++ {
				delete(v.keys, timeoutKey(base, owner, i))
			}
			return script.NotThere
		}
		had, _ := strconv.ParseInt(v.get(key).fields[owner], 10, 64)
		if count > 0 {
			v.get(key).fields[owner] = args[1]
		} else {
			v.remove(key, owner)
		}
		if reads {
			for i := count + 1; i <= had; i++ {
				delete(v.keys, timeoutKey(base, owner, i))
			}
		}
		tell := !reads
		switch h := v.get(key); {
		case h == nil || len(h.fields) < 2:
			delete(v.keys, key)
			tell = true
		case !reads || h.fields["mode"] == "read":
			h.fields["mode"] = "read"
			left, enough := v.longestReader(h, base), float64(v.left(key))*0.9
			if float64(left) >= enough {
				break
			}
			if tell = true; left > 1 {
				v.expireIn(key, left)
			} else {
				delete(v.keys, key)
			}
		}
		if tell {
			v.announce(channel, verb)
		}
		return script.Done
	},
	script.RWForce: func(v *server, keys, args []string) int64 {
		only, mode, base, channel, verb := args[0], args[1], args[2], args[4], args[5]
		h := v.get(keys[0])
		if h == nil || h.fields["mode"] != mode || only == "mode" || only != "" && !v.has(keys[0], only) ||
			only != "" && mode == "write" && !strings.HasSuffix(only, script.WriterSuffix) {
			return 0
		}
		delete(v.keys, keys[0])
		for owner, count := range h.fields {
			n, _ := strconv.ParseInt(count, 10, 64)
			for i := int64(1); i <= n; i++ {
				delete(v.keys, timeoutKey(base, owner, i))
			}
		}
		v.announce(channel, verb)
		return script.Done
	},
	script.WriteAcquire: func(v *server, keys, args []string) int64 {
		free := v.left(keys[0]) == -2
		code := scripts[script.Acquire](v, keys[0], args)
		if free {
			v.get(keys[0]).fields["mode"] = "write"
		}
		return code
	},
	script.WriteRetire: func(v *server, keys, args []string) int64 {
		key, owner, rest, nobody, base := keys[0], args[0], number(args[1]), args[2], args[5]
		if h := v.get(key); h != nil && len(h.fields) > 2 && v.has(key, owner) {
			nobody = strings.TrimSuffix(nobody, script.WriterSuffix)
			h.fields["mode"] = "read"
			v.raise(timeoutKey(base, nobody, 1), rest)
			left := max(rest, v.longestReader(h, base))
			args = append([]string{owner, strconv.FormatInt(left, 10), nobody}, args[3:5]...)
		}
		return scripts[script.Retire](v, key, args[:5])
	},
}

func timeoutKey(base, owner string, i int64) string {
	return fmt.Sprintf("%s:%s:rwlock_timeout:%d", base, owner, i)
}

// hasExpired reports whether an owner is a reader whose lease has ended. It keeps nobody out. Its
// field stays until the last reader leaves, as Redisson's do, so nobody need take it out: an engine
// that cannot reach the server for longer does not.
func (v *server) hasExpired(key, owner string) bool {
	h := v.get(key)
	return h != nil && h.fields["mode"] != "" && owner != "mode" && !strings.HasSuffix(owner, script.WriterSuffix) &&
		v.left(timeoutKey("{"+key+"}", owner, 1)) == -2
}

// raise sets a timeout key, for no less than it has.
func (v *server) raise(key string, lease int64) {
	left := max(lease, v.left(key))
	v.keys[key] = &hash{text: true}
	v.expireIn(key, left)
}

// longestReader is how long the reader of a lock has it that has it longest.
func (v *server) longestReader(h *hash, base string) (left int64) {
	for owner, count := range h.fields {
		n, _ := strconv.ParseInt(count, 10, 64)
		for i := int64(1); i <= n; i++ {
			left = max(left, v.left(timeoutKey(base, owner, i)))
		}
	}
	return left
}

func (v *server) readRenew(keys, args []string, dst []byte) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(keys)/2)
	for i := 0; i < len(keys); i += 2 {
		lease, owner := number(args[i]), args[i+1]
		code := int64(script.Gone)
		switch h := v.get(keys[i]); {
		case h != nil && h.text:
			code = script.WrongType
		case v.has(keys[i], owner):
			v.expireIn(keys[i], max(v.left(keys[i]), lease))
			v.raise(keys[i+1], lease)
			code = script.Renewed
		}
		dst = appendInt(dst, code)
	}
	return dst
}

// raiseAlone is the second half of that.
func (v *server) raiseAlone(key string, args []string, dst []byte) []byte {
	code := int64(script.Refused)
	if v.get(key) != nil {
		v.raise(key, number(args[0]))
		code = script.Renewed
	}
	return appendInt(append(dst, "*1\r\n"...), code)
}
