package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp/wire"
)

// waiting is the queue of the engines that wait for a lock. A Keyspace has it by its own key.
type waiting struct {
	places []waiter
	expire int64
}

// waiter is an engine in the queue. Its number is in eighths: that in the order in which they came is a multiple of 8, and one
// more for each time that it was overtaken as the first.
type waiter struct {
	engine string
	number int64
}

func (q *waiting) clone() *waiting { return &waiting{slices.Clone(q.places), q.expire} }

// waitingFor returns the queue of a key, nil if there is none.
func (v *Keyspace) waitingFor(queue string) *waiting {
	q := v.waits[queue]
	if q != nil && (len(q.places) == 0 || v.Milliseconds() > q.expire) {
		delete(v.waits, queue)
		return nil
	}
	return q
}

// rank is ZRANK; -1 if the engine is not there.
func (q *waiting) rank(engine string) int {
	if q == nil {
		return -1
	}
	return slices.IndexFunc(q.places, func(p waiter) bool { return p.engine == engine })
}

// ahead is how many came before an engine that has that place, or none.
func (q *waiting) ahead(place int) int {
	if place < 0 && q != nil {
		return len(q.places)
	}
	return max(place, 0)
}

// add queues an engine.
func (q *waiting) add(engine string) {
	last := int64(0)
	if n := len(q.places); n > 0 {
		last = q.places[n-1].number / 8
	}
	q.places = append(q.places, waiter{engine, (last + 1) * 8})
}

// short is a number as answers have it.
func short(number int64) int64 { return number%(1<<32-1) + 1 }

func (q *waiting) remove(from, to int) { q.places = slices.Delete(q.places, from, to) }

// called are the words that front.lua gets.
type called struct {
	queue, engine, owner, channel, verb string
	counts                              bool
	front                               int
}

func calledOf(keys, args []string) called {
	engine, _, _ := strings.Cut(args[0], ":")
	return called{keys[len(keys)-1], engine, args[0], args[1], args[2], args[3] == "1", int(Number(args[4]))}
}

// tell tells the engines in the front, from a place on, that they are in it.
func (v *Keyspace) tell(c called, place int) {
	for range c.front + 100 {
		q := v.waitingFor(c.queue)
		if q == nil || place >= min(c.front, len(q.places)) {
			return
		}
		if heard := v.announce(c.channel+":"+q.places[place].engine, c.verb); heard == 0 && c.counts {
			q.remove(place, place+1)
		} else {
			place++
		}
	}
}

func (v *Keyspace) join(keys, args []string, dst []byte) []byte {
	c, key, lease, waitedFor := calledOf(keys, args), keys[0], args[5], Number(args[6])
	counter := ""
	if len(keys) == 3 {
		counter = keys[1]
	}
	q := v.waitingFor(c.queue)
	place, ttl := q.rank(c.engine), v.Left(key)
	mine := v.Has(key, c.owner)
	ahead, first, absent := 0, int64(0), 0
	if ttl == -2 {
		ahead = q.ahead(place)
	}
	if ahead > 0 {
		if first = q.places[0].number; short(first) == waitedFor {
			absent = c.front
		}
		if ahead < c.front {
			absent = min(absent, 1)
		}
	}
	turn := ttl == -2 && (ahead == 0 || absent > 0 || ahead < c.front && first%8 < int64(c.front-1))
	if mine || turn {
		if ttl == -2 && counter != "" {
			v.counters[counter]++
		}
		code := scripts[script.Acquire](v, key, []string{lease, c.owner})
		if place >= 0 {
			q.remove(place, place+1)
		}
		switch {
		case absent > 0:
			q.remove(0, absent)
		case ahead > 0:
			q.places[0].number++
		}
		if place >= 0 || absent > 0 {
			v.tell(c, max(c.front-1-absent, 0))
		}
		if counter == "" {
			return appendInt(dst, code)
		}
		return appendInt(appendInt(append(dst, "*2\r\n"...), code), v.counters[counter])
	}
	if q == nil {
		q = new(waiting)
		v.waits[c.queue] = q
	}
	if place < 0 {
		q.add(c.engine)
	}
	q.expire = v.Milliseconds() + 60_000
	behind := lock.InFront
	if place = q.rank(c.engine); place >= c.front {
		behind = len(q.places) - 1 - place
	}
	if ttl == -2 {
		dst = wire.AppendBulk(appendInt(append(dst, "*4\r\n"...), -1), "")
		return appendInt(appendInt(dst, int64(behind)), short(first))
	}
	dst = wire.AppendBulk(appendInt(append(dst, "*3\r\n"...), ttl), v.holderOf(key))
	return appendInt(dst, int64(behind))
}

func (v *Keyspace) withdraw(keys, args []string) int64 {
	c := calledOf(keys, args)
	q := v.waitingFor(c.queue)
	place := q.rank(c.engine)
	if place < 0 {
		return script.NotThere
	}
	if q.remove(place, place+1); place < c.front {
		v.tell(c, c.front-1)
	}
	return script.Done
}

// WaitersFor are the engines that wait for a lock, in order.
func (v *Keyspace) WaitersFor(name string) (engines []string) {
	if q := v.waitingFor(script.Companion(script.WaitersPrefix, name)); q != nil {
		for _, p := range q.places {
			engines = append(engines, p.engine)
		}
	}
	return engines
}

// Waiting says which engines, of those that count, wait in the queues.
func (v *Keyspace) Waiting(counts func(engine string) bool) (list []string) {
	for queue := range v.waits {
		if q := v.waitingFor(queue); q != nil {
			for _, p := range q.places {
				if counts(p.engine) {
					list = append(list, fmt.Sprintf("%s is in %s", p.engine, queue))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}
