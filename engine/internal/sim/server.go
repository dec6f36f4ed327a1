package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

// server is a model of Redis: what the scripts of package script do to keys, and what
// they answer. A test compares it with real servers.
type server struct {
	keys map[string]*hash
	// counters are those of fencing tokens, which nothing ends.
	counters   map[string]int64
	lines      map[string]*line // those of fair locks
	semaphores map[string]*semaphore
	// purged is told of each owner that has lost its place in a queue.
	purged func(key, owner string)
	// published is told of each message, and how many hear it; nil: nobody is.
	published func(channel, verb, message string) int
	// counted is told of each command on a count that is executed; nil: nobody is.
	counted func(key, mark string, ops, answers []string)
	now     func() clock.Instant

	replica *replica // nil: it has none

	name         string
	hangs        clock.Instant // it executes nothing before
	down         clock.Instant // nobody can connect before
	refuses      string        // what it says to each command, until
	refusesUntil clock.Instant
}

// hash is a lock: owners with their counts, and an expiry.
type hash struct {
	fields map[string]string
	expire int64  // milliseconds; 0: none
	text   bool   // it is a string, and not a hash
	value  string // of a string: a count, or a mark
}

func (v *server) milliseconds() int64 { return int64(v.now()) / 1e6 }

// get returns the hash of a key, nil if there is none. A key is there until its expiry
// has passed, as with Redis.
func (v *server) get(key string) *hash {
	h := v.keys[key]
	if h != nil && h.expire != 0 && v.milliseconds() > h.expire {
		delete(v.keys, key)
		return nil
	}
	return h
}

func (v *server) make(key string) *hash {
	h := v.get(key)
	if h == nil {
		h = &hash{fields: make(map[string]string)}
		v.keys[key] = h
	}
	return h
}

// remove is HDEL: the last field takes the key with it.
func (v *server) remove(key, field string) bool {
	h := v.get(key)
	if h == nil {
		return false
	}
	if _, there := h.fields[field]; !there {
		return false
	}
	delete(h.fields, field)
	if len(h.fields) == 0 {
		delete(v.keys, key)
	}
	return true
}

// left is PTTL.
func (v *server) left(key string) int64 {
	switch h := v.get(key); {
	case h == nil:
		return -2
	case h.expire == 0:
		return -1
	default:
		return h.expire - v.milliseconds()
	}
}

func (v *server) expireIn(key string, ms int64) { v.get(key).expire = v.milliseconds() + ms }

func (v *server) has(key, owner string) bool {
	h := v.get(key)
	if h == nil {
		return false
	}
	_, there := h.fields[owner]
	return there
}

// wrongType is what commands answer on a key that is no hash.
const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"

// execute runs an encoded script call and appends its reply, encoded.
func (v *server) execute(command, dst []byte) []byte {
	words := split(command)
	if len(words) < 3 || words[0] != "EVALSHA" {
		panic(fmt.Sprintf("BUG: the model of a server was sent %q", words))
	}
	n, _ := strconv.Atoi(words[2])
	keys, args := words[3:3+n], words[3+n:]
	s := bySHA[words[1]]
	if s == nil {
		panic("BUG: the model of a server was sent a script that it does not know")
	}
	if s == script.Renew {
		return v.renew(keys, args, dst)
	}
	if s == script.ReadRenew {
		return v.readRenew(keys, args, dst)
	}
	if s == script.Raise {
		return v.raiseAlone(keys[0], args, dst)
	}
	if s == script.Tally {
		return v.tally(keys, args, dst)
	}
	if s == script.PermitRenew {
		return v.renewPermits(keys, args, dst)
	}
	if model := permitScripts[s]; model != nil {
		return model(v, v.semaphore(keys[0]), args, dst)
	}
	if h := v.get(keys[0]); h != nil && h.text {
		if s == script.Fair { // that looks at the queue first
			v.purge(queueingOf(keys, args))
		}
		return append(dst, "-"+wrongType+"\r\n"...)
	}
	if s == script.State {
		return v.state(keys[0], dst)
	}
	if s == script.Several {
		return v.several(keys[0], args, dst)
	}
	if f := queues[s]; f != nil {
		return appendInt(dst, f(v, keys, args))
	}
	if s == script.Fenced {
		return v.fenced(keys[0], keys[1], args, dst)
	}
	if s == script.Pass {
		return v.pass(keys, args, dst)
	}
	if rw := rwScripts[s]; rw != nil {
		return appendInt(dst, rw(v, keys, args))
	}
	return appendInt(dst, scripts[s](v, keys[0], args))
}

var bySHA = func() map[string]*script.Script {
	all := map[string]*script.Script{script.Renew.SHA: script.Renew, script.State.SHA: script.State, script.Several.SHA: script.Several, script.Fenced.SHA: script.Fenced, script.Pass.SHA: script.Pass, script.Tally.SHA: script.Tally}
	for s := range queues {
		all[s.SHA] = s
	}
	for s := range scripts {
		all[s.SHA] = s
	}
	for s := range rwScripts {
		all[s.SHA] = s
	}
	all[script.ReadRenew.SHA], all[script.Raise.SHA] = script.ReadRenew, script.Raise
	all[script.PermitRenew.SHA] = script.PermitRenew
	for s := range permitScripts {
		all[s.SHA] = s
	}
	return all
}()

// scripts are the models of those that have one key and answer a number. They follow the
// Lua line by line.
var scripts = map[*script.Script]func(v *server, key string, args []string) int64{
	script.Acquire: func(v *server, key string, args []string) int64 {
		lease, owner := number(args[0]), args[1]
		ttl := v.left(key)
		switch {
		case ttl == -2:
			v.make(key).fields[owner] = "1"
			v.expireIn(key, lease)
			return script.Granted
		case v.has(key, owner):
			if ttl < lease {
				v.expireIn(key, lease)
			}
			return script.Granted
		}
		return ttl
	},
	script.Reenter: func(v *server, key string, args []string) int64 {
		lease, owner, count := number(args[0]), args[1], args[2]
		if !v.has(key, owner) {
			return script.NotThere
		}
		v.get(key).fields[owner] = count
		if v.left(key) < lease {
			v.expireIn(key, lease)
		}
		return script.Granted
	},
	script.Leave: func(v *server, key string, args []string) int64 {
		owner, count := args[0], args[1]
		if !v.has(key, owner) {
			return script.NotThere
		}
		v.get(key).fields[owner] = count
		return script.StillHeld
	},
	script.Release: func(v *server, key string, args []string) int64 {
		owner, channel, verb := args[0], args[1], args[2]
		if !v.remove(key, owner) {
			return script.NotThere
		}
		v.announce(channel, verb)
		return script.Done
	},
	script.Retire: func(v *server, key string, args []string) int64 {
		owner, rest, nobody, channel, verb := args[0], number(args[1]), args[2], args[3], args[4]
		if !v.has(key, owner) {
			return script.NotThere
		}
		v.expireIn(key, rest)
		v.get(key).fields[nobody] = "1"
		v.remove(key, owner)
		v.announce(channel, verb)
		return script.Done
	},
	script.Force: func(v *server, key string, args []string) int64 {
		only, channel, verb := args[0], args[1], args[2]
		if v.get(key) == nil || only != "" && !v.has(key, only) {
			return 0
		}
		delete(v.keys, key)
		v.announce(channel, verb)
		return script.Done
	},
}

// queues are the models of those that have a queue.
var queues = map[*script.Script]func(v *server, keys, args []string) int64{
	script.Fair: (*server).fair, script.FairRelease: (*server).fairRelease, script.FairForce: (*server).fairForce,
}

func (v *server) renew(keys, args []string, dst []byte) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(keys))
	for i, key := range keys {
		lease, owner := number(args[2*i]), args[2*i+1]
		code := int64(script.Gone)
		switch h := v.get(key); {
		case h != nil && h.text:
			code = script.WrongType
		case v.has(key, owner):
			v.expireIn(key, max(v.left(key), lease))
			code = script.Renewed
		}
		dst = appendInt(dst, code)
	}
	return dst
}

func (v *server) fenced(key, counter string, args []string, dst []byte) []byte {
	if v.left(key) == -2 {
		v.counters[counter]++
	}
	token, code := int64(0), scripts[script.Acquire](v, key, args)
	if code == script.Granted {
		token = v.counters[counter]
	}
	return appendInt(appendInt(append(dst, "*2\r\n"...), code), token)
}

func (v *server) pass(keys, args []string, dst []byte) []byte {
	key, owner, giver := keys[0], args[1], args[2]
	mine := v.has(key, owner)
	if !mine && !v.has(key, giver) {
		return append(dst, "*2\r\n:-3\r\n:0\r\n"...)
	}
	v.expireIn(key, number(args[0]))
	token := int64(0)
	if len(keys) > 1 {
		if !mine || v.counters[keys[1]] == 0 {
			v.counters[keys[1]]++
		}
		token = v.counters[keys[1]]
	}
	if !mine {
		v.get(key).fields[owner] = "1"
		v.remove(key, giver)
	}
	return appendInt(append(dst, "*2\r\n:-2\r\n"...), token)
}

func (v *server) several(key string, args []string, dst []byte) []byte {
	channel, verb, lease, taker, released := args[0], args[1], args[2], args[3], args[4:]
	var codes []int64
	freed, taken := false, int64(0)
	for _, owner := range released {
		if v.has(key, owner) {
			codes, freed = append(codes, script.Done), true
		} else {
			codes = append(codes, script.NotThere)
		}
	}
	for _, owner := range released {
		v.remove(key, owner)
	}
	if taker != "" {
		taken = scripts[script.Acquire](v, key, []string{lease, taker})
		codes = append(codes, taken)
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

func (v *server) state(key string, dst []byte) []byte {
	var fields map[string]string
	if h := v.get(key); h != nil {
		fields = h.fields
	}
	dst = fmt.Appendf(dst, "*%d\r\n", 1+2*len(fields))
	dst = appendInt(dst, v.left(key))
	for _, owner := range slices.Sorted(maps.Keys(fields)) {
		dst = wire.AppendBulk(dst, owner)
		dst = wire.AppendBulk(dst, fields[owner])
	}
	return dst
}

func (v *server) announce(channel, verb string) (heard int) { return v.say(channel, verb, "0") }

func (v *server) say(channel, verb, message string) (heard int) {
	if verb != "" && v.published != nil {
		heard = v.published(channel, verb, message)
	}
	return heard
}

// record is what the server has, for the check that nothing is left, and for tests.
func (v *server) record() []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(v.keys)) {
		if h := v.get(key); h != nil && !h.isCount() {
			lines = append(lines, fmt.Sprintf("%s: %v, %d ms left", key, h.fields, v.left(key)))
		}
	}
	return lines
}

// isCount reports whether it is the count of a semaphore or a latch, which stays.
func (h *hash) isCount() bool { return h.value != "" && h.expire == 0 }

// split takes a command apart.
func split(command []byte) (words []string) {
	v, n, err := wire.Decode(command)
	if err != nil || n != len(command) {
		panic(fmt.Sprintf("BUG: %q is no command: %v", command, err))
	}
	v.Each(func(_ int, e wire.Value) bool {
		words = append(words, string(e.Bytes))
		return true
	})
	return words
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("BUG: no number: " + s)
	}
	return n
}

func appendInt(dst []byte, n int64) []byte { return fmt.Appendf(dst, ":%d\r\n", n) }
