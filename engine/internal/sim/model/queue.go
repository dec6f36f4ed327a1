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
	engines   []string
	overtaken int // the first of them, by others in the front
	expire    int64
}

func (q *waiting) clone() *waiting {
	return &waiting{slices.Clone(q.engines), q.overtaken, q.expire}
}

// waitingFor returns the queue of a key, nil if there is none.
func (v *Keyspace) waitingFor(queue string) *waiting {
	q := v.waits[queue]
	if q != nil && (len(q.engines) == 0 || v.Milliseconds() > q.expire) {
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
	return slices.Index(q.engines, engine)
}

func (q *waiting) remove(from, to int) {
	if q.engines = slices.Delete(q.engines, from, to); from == 0 && to > 0 {
		q.overtaken = 0
	}
}

// admits reports whether a free lock is for one that has that place, or none, if so many race for it.
func (q *waiting) admits(place, front int) bool {
	if place < 0 {
		return q == nil || len(q.engines) < front
	}
	return place == 0 || place < front && q.overtaken < front-1
}

// called are the words that front.lua is told.
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
		if q == nil || place >= min(c.front, len(q.engines)) {
			return
		}
		if heard := v.announce(c.channel+":"+q.engines[place], c.verb); heard == 0 && c.counts {
			q.remove(place, place+1)
		} else {
			place++
		}
	}
}

func (v *Keyspace) join(keys, args []string, dst []byte) []byte {
	c, key, lease, looks := calledOf(keys, args), keys[0], args[5], args[6] == "1"
	counter := ""
	if len(keys) == 3 {
		counter = keys[1]
	}
	q := v.waitingFor(c.queue)
	place, ttl := q.rank(c.engine), v.Left(key)
	mine := v.Has(key, c.owner)
	if mine || ttl == -2 && (looks || q.admits(place, c.front)) {
		if ttl == -2 && counter != "" {
			v.counters[counter]++
		}
		code := scripts[script.Acquire](v, key, []string{lease, c.owner})
		if place >= 0 {
			q.remove(place, place+1)
			absent := 0
			switch {
			case place == 0 || mine:
			case !looks:
				q.overtaken++
			case place < c.front:
				absent = 1
			default:
				absent = c.front
			}
			q.remove(0, absent)
			v.tell(c, max(c.front-1-absent, 0))
		}
		if counter == "" {
			return appendInt(dst, code)
		}
		return appendInt(appendInt(append(dst, "*2\r\n"...), code), v.counters[counter])
	}
	if place < 0 {
		if q == nil {
			q = new(waiting)
			v.waits[c.queue] = q
		}
		q.engines = append(q.engines, c.engine)
	}
	behind := lock.InFront
	if q = v.waits[c.queue]; q.rank(c.engine) >= 0 {
		q.expire = v.Milliseconds() + 60_000
		if place = q.rank(c.engine); place >= c.front {
			behind = len(q.engines) - 1 - place
		}
	}
	holder := ""
	switch {
	case ttl != -2:
		holder = v.holderOf(key)
	case behind < 0:
		ttl, behind = 10, lock.FirstsTurn
	default:
		ttl = 1000
	}
	dst = wire.AppendBulk(appendInt(append(dst, "*3\r\n"...), ttl), holder)
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
func (v *Keyspace) WaitersFor(name string) []string {
	if q := v.waitingFor(script.Companion(script.WaitersPrefix, name)); q != nil {
		return q.engines
	}
	return nil
}

// Waiting says which engines, of those that count, wait in the queues.
func (v *Keyspace) Waiting(counts func(engine string) bool) (list []string) {
	for queue := range v.waits {
		if q := v.waitingFor(queue); q != nil {
			for _, engine := range q.engines {
				if counts(engine) {
					list = append(list, fmt.Sprintf("%s is in %s", engine, queue))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}
