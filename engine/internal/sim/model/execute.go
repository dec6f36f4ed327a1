package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp/wire"
)

// WrongType is what commands answer on a key that is no hash.
const WrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"

// Execute runs an encoded script call and appends its reply, encoded.
func (v *Keyspace) Execute(command, dst []byte) []byte {
	words := Words(command)
	if len(words) < 3 || words[0] != "EVALSHA" {
		panic(fmt.Sprintf("BUG: the model of a server was sent %q", words))
	}
	n, _ := strconv.Atoi(words[2])
	keys, args := words[3:3+n], words[3+n:]
	s := BySHA[words[1]]
	switch s {
	case nil:
		panic("BUG: the model of a server was sent a script that it does not know")
	case script.Renew:
		return v.renew(keys, args, dst)
	case script.ReadRenew:
		return v.readRenew(keys, args, dst)
	case script.Raise:
		return v.raiseAlone(keys[0], args, dst)
	case script.Counter:
		return v.counter(keys, args, dst)
	case script.PermitRenew:
		return v.renewPermits(keys, args, dst)
	}
	if permit := permitScripts[s]; permit != nil {
		return permit(v, v.Semaphore(keys[0]), args, dst)
	}
	if s == script.Withdraw {
		return appendInt(dst, v.withdraw(keys, args))
	}
	if h := v.Get(keys[0]); h != nil && h.Text {
		if s == script.Fair { // that looks at the queue first
			v.purge(queueingOf(keys, args))
		}
		return append(dst, "-"+WrongType+"\r\n"...)
	}
	switch s {
	case script.State:
		return v.state(keys[0], dst)
	case script.Several:
		return v.several(keys, args, dst)
	case script.Join:
		return v.join(keys, args, dst)
	case script.Fenced:
		return v.fenced(keys[0], keys[1], args, dst)
	}
	if queue := queues[s]; queue != nil {
		return appendInt(dst, queue(v, keys, args))
	}
	if rw := rwScripts[s]; rw != nil {
		return appendInt(dst, rw(v, keys, args))
	}
	code := scripts[s](v, keys[0], args)
	if s == script.Acquire && code != script.Granted {
		return v.appendHolder(dst, keys[0], code)
	}
	return appendInt(dst, code)
}

// Look answers a command that only reads: that of somebody who looks for locks.
func (v *Keyspace) Look(words []string) (reply []byte) {
	h := v.Get(words[1])
	switch {
	case h == nil:
		h = new(Hash)
	case h.Text && words[0] != "PTTL":
		return []byte("-" + WrongType + "\r\n")
	}
	fields := slices.Sorted(maps.Keys(h.Fields))
	switch words[0] {
	case "PTTL":
		return appendInt(nil, h.Expire-v.Milliseconds())
	case "HLEN":
		return appendInt(nil, int64(len(fields)))
	case "HKEYS":
		reply = fmt.Appendf(nil, "*%d\r\n", len(fields))
	case "HGETALL":
		reply = fmt.Appendf(nil, "*%d\r\n", 2*len(fields))
	default:
		panic(fmt.Sprintf("BUG: the model of a server was sent %q", words))
	}
	for _, field := range fields {
		if reply = wire.AppendBulk(reply, field); words[0] == "HGETALL" {
			reply = wire.AppendBulk(reply, h.Fields[field])
		}
	}
	return reply
}

// appendHolder appends that a lock is held, and by whom.
func (v *Keyspace) appendHolder(dst []byte, key string, code int64) []byte {
	return wire.AppendBulk(appendInt(append(dst, "*2\r\n"...), code), v.holderOf(key))
}

// holderOf is one of the owners of a lock that is held.
func (v *Keyspace) holderOf(key string) string { return slices.Sorted(maps.Keys(v.Get(key).Fields))[0] }

// BySHA are the scripts that a Keyspace can execute.
var BySHA = func() map[string]*script.Script {
	all := make(map[string]*script.Script)
	add := func(list ...*script.Script) {
		for _, s := range list {
			all[s.SHA] = s
		}
	}
	add(script.Renew, script.ReadRenew, script.Raise, script.Counter, script.PermitRenew)
	add(script.State, script.Several, script.Fenced, script.Join, script.Withdraw)
	add(slices.Collect(maps.Keys(permitScripts))...)
	add(slices.Collect(maps.Keys(queues))...)
	add(slices.Collect(maps.Keys(rwScripts))...)
	add(slices.Collect(maps.Keys(scripts))...)
	return all
}()

// Words takes a command apart.
func Words(command []byte) (words []string) {
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

// Number is a word that is a number.
func Number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("BUG: no number: " + s)
	}
	return n
}

func appendInt(dst []byte, n int64) []byte { return fmt.Appendf(dst, ":%d\r\n", n) }
