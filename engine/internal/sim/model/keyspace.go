package model

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Keyspace is the keys of a server.
type Keyspace struct {
	Data
	now func() clock.Instant
	// Purged is told of each owner that has lost its place in a queue; nil: nobody is.
	Purged func(key, owner string)
	// Published is told of each message, and how many hear it; nil: nobody is.
	Published func(channel, verb, message string) int
	// Counted is told of each command on a count that is executed; nil: nobody is.
	Counted func(key, mark string, ops, answers []string)
}

// Data is what is stored. A copy of the struct shares it; Clone does not.
type Data struct {
	Keys       map[string]*Hash
	counters   map[string]int64 // those of fencing tokens, which nothing ends
	lines      map[string]*line // those of fair locks
	waits      map[string]*waiting
	semaphores map[string]*Semaphore
}

// New returns one without keys, which expire by that clock.
func New(now func() clock.Instant) *Keyspace {
	return &Keyspace{now: now, Data: Data{
		Keys: make(map[string]*Hash), counters: make(map[string]int64),
		lines: make(map[string]*line), waits: make(map[string]*waiting), semaphores: make(map[string]*Semaphore),
	}}
}

// Clone copies it as it is now.
func (d *Data) Clone() Data {
	all := Data{maps.Clone(d.Keys), maps.Clone(d.counters), maps.Clone(d.lines), maps.Clone(d.waits), maps.Clone(d.semaphores)}
	for key, h := range all.Keys {
		all.Keys[key] = &Hash{maps.Clone(h.Fields), h.Expire, h.Text, h.Value}
	}
	for key, q := range all.lines {
		all.lines[key] = q.clone()
	}
	for key, q := range all.waits {
		all.waits[key] = q.clone()
	}
	for key, m := range all.semaphores {
		all.semaphores[key] = &Semaphore{m.There, m.Value, maps.Clone(m.Held), m.All}
	}
	return all
}

// Hash is a key: mostly a lock, with owners and their counts, and an expiry.
type Hash struct {
	Fields map[string]string
	Expire int64  // milliseconds; 0: none
	Text   bool   // it is a string, and not a hash
	Value  string // of a string: a count, or a mark
}

// Milliseconds is the server's time, in which expiries are.
func (v *Keyspace) Milliseconds() int64 { return int64(v.now()) / 1e6 }

// Get returns the hash of a key, nil if there is none. A key is there until its expiry
// has passed, as with Redis.
func (v *Keyspace) Get(key string) *Hash {
	h := v.Keys[key]
	if h != nil && h.Expire != 0 && v.Milliseconds() > h.Expire {
		delete(v.Keys, key)
		return nil
	}
	return h
}

// Make returns the hash of a key, made if need be.
func (v *Keyspace) Make(key string) *Hash {
	h := v.Get(key)
	if h == nil {
		h = &Hash{Fields: make(map[string]string)}
		v.Keys[key] = h
	}
	return h
}

// Remove is HDEL: the last field takes the key with it.
func (v *Keyspace) Remove(key, field string) bool {
	h := v.Get(key)
	if h == nil {
		return false
	}
	if _, there := h.Fields[field]; !there {
		return false
	}
	delete(h.Fields, field)
	if len(h.Fields) == 0 {
		delete(v.Keys, key)
	}
	return true
}

// Left is PTTL.
func (v *Keyspace) Left(key string) int64 {
	switch h := v.Get(key); {
	case h == nil:
		return -2
	case h.Expire == 0:
		return -1
	default:
		return h.Expire - v.Milliseconds()
	}
}

// ExpireIn is PEXPIRE of a key that is there.
func (v *Keyspace) ExpireIn(key string, ms int64) { v.Get(key).Expire = v.Milliseconds() + ms }

// Has is HEXISTS.
func (v *Keyspace) Has(key, owner string) bool {
	h := v.Get(key)
	if h == nil {
		return false
	}
	_, there := h.Fields[owner]
	return there
}

// announce publishes that a lock is free.
func (v *Keyspace) announce(channel, verb string) (heard int) { return v.say(channel, verb, "0") }

// say publishes a message, unless the call has no verb for that.
func (v *Keyspace) say(channel, verb, message string) (heard int) {
	if verb != "" && v.Published != nil {
		heard = v.Published(channel, verb, message)
	}
	return heard
}

// Record is what the server has, for the check that nothing is left, and for tests.
func (v *Keyspace) Record() []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(v.Keys)) {
		if h := v.Get(key); h != nil && !h.IsCount() {
			lines = append(lines, fmt.Sprintf("%s: %v, %d ms left", key, h.Fields, v.Left(key)))
		}
	}
	return lines
}

// IsCount reports whether it is the count of a semaphore or a latch, which stays.
func (h *Hash) IsCount() bool { return h.Value != "" && h.Expire == 0 }
