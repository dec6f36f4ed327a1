package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
)

// line is the queue of a fair lock on a server: who waits, in order, and until when each is
// waited for.
type line struct {
	owners []string
	scores map[string]int64
	expire int64 // milliseconds, as the scores
}

// lineOf returns the queue of a name, nil if nobody is in it.
func (v *Keyspace) lineOf(key string) *line {
	q := v.lines[key]
	if q != nil && (len(q.owners) == 0 || v.Milliseconds() > q.expire) {
		delete(v.lines, key)
		return nil
	}
	return q
}

// First is the owner whose turn it is to have the fair lock, "" if nobody waits.
func (v *Keyspace) First(key string) string {
	if q := v.lineOf(key); q != nil {
		return q.owners[0]
	}
	return ""
}

func (q *line) clone() *line {
	scores := make(map[string]int64, len(q.scores))
	for owner, at := range q.scores {
		scores[owner] = at
	}
	return &line{slices.Clone(q.owners), scores, q.expire}
}

func (q *line) remove(owner string) {
	q.owners = slices.DeleteFunc(q.owners, func(one string) bool { return one == owner })
	delete(q.scores, owner)
}

// near is how many places at the front have exact times.
const near = 50

// comeNearer gives the owners in the queue, from a place on, room for what the lock's lease has left and
// for their places; if it does not raise, no more than they have.
func (q *line) comeNearer(from int, room, now, left int64, raises bool) {
	to, size := min(near, len(q.owners)), len(q.owners)
	if size > near {
		for _, at := range []int{near + 1, size} {
			if float64(q.scores[q.owners[at-1]]) > float64(now+left)+max((float64(at)+float64(size)/near)*float64(room), 10000) {
				to = size
			}
		}
	}
	for i := from; i < to; i++ {
		owner, due := q.owners[i], now+left+max(int64(i+1)*room, 10000)
		if due < q.scores[owner] || raises {
			q.scores[owner] = due
		}
	}
}

// purge takes out those at the head whose time is over, and tells them. It returns the last one.
func (v *Keyspace) purge(c queueing) (over string) {
	for q := v.lineOf(c.key); q != nil; q = v.lineOf(c.key) {
		head := q.owners[0]
		if q.scores[head] > v.Milliseconds() {
			return over
		}
		over = head
		q.remove(head)
		if v.Purged != nil {
			v.Purged(c.key, head)
		}
		v.announce(c.channel+":"+head, c.verb)
	}
	return over
}

// processOf is the process of ours that an owner is of; "" if it is a thread of Redisson's.
func processOf(owner string) string {
	if isThread(owner) {
		return ""
	}
	return owner[:strings.LastIndexByte(owner, ':')]
}

// queueing are the words of a call that has a queue.
type queueing struct {
	key, owner, channel, verb string
	counts                    bool
	room                      int64
	rest                      []string
}

func queueingOf(keys, args []string) queueing {
	return queueing{keys[0], args[0], args[1], args[2], args[3] == "1", Number(args[4]), args[5:]}
}

// hurry gives an owner three seconds to ask, from then on, and reports whether it had more.
func (q *line) hurry(owner string, from int64) bool {
	more := q.scores[owner] > from+3000
	q.scores[owner] = min(q.scores[owner], from+3000)
	return more
}

// wake tells the first in the queue who hears it, threads of Redisson behind the head last, up to one who
// asks.
func (v *Keyspace) wake(c queueing, asks string) {
	q := v.lineOf(c.key)
	if q == nil {
		return
	}
	var threads []string
	shares := v.Get(c.key) == nil
	for i, owner := range q.owners {
		switch {
		case owner == asks:
			return
		case i > 0 && isThread(owner):
			threads = append(threads, owner)
		case v.announce(c.channel+":"+owner, c.verb) > 0 || !c.counts:
			return
		case shares && !q.hurry(owner, v.Milliseconds()) && asks != "":
			return
		}
		shares = shares && !isThread(owner)
	}
	for _, thread := range threads {
		if v.announce(c.channel+":"+thread, c.verb) > 0 {
			return
		}
	}
}

// wakeNext takes out those whose time is over, and wakes the next one.
func (v *Keyspace) wakeNext(c queueing) {
	v.passOver(c, v.purge(c), "")
	v.wake(c, "")
}

// passOver tells those who are next, and of the process of one whose time was over, up to one who asks
// now. They have three seconds, after the lease if the lock is held.
func (v *Keyspace) passOver(c queueing, over, asks string) {
	q := v.lineOf(c.key)
	if over == "" || q == nil {
		return
	}
	q.comeNearer(0, c.room, v.Milliseconds(), max(v.Left(c.key), 0), false)
	if isThread(over) {
		return
	}
	for _, other := range q.owners {
		if other == asks || processOf(other) != processOf(over) {
			break
		}
		q.hurry(other, v.Milliseconds()+max(v.Left(c.key), 0))
		v.announce(c.channel+":"+other, c.verb)
	}
}

// isThread reports whether an owner is a thread of Redisson's: it has a short number.
func isThread(owner string) bool { return len(owner)-strings.LastIndexByte(owner, ':')-1 <= 11 }

// fair follows fair.lua.
func (v *Keyspace) fair(keys, args []string) int64 {
	c := queueingOf(keys, args)
	lease, waits := c.rest[0], c.rest[1] == "1"
	over := v.purge(c)
	q, ttl := v.lineOf(c.key), v.Left(c.key)
	if ttl == -2 && (q == nil || q.owners[0] == c.owner) {
		if q != nil {
			q.remove(c.owner)
			q.comeNearer(0, c.room, v.Milliseconds(), Number(lease), true)
		}
		return scripts[script.Acquire](v, c.key, []string{lease, c.owner})
	}
	if v.Has(c.key, c.owner) {
		return scripts[script.Acquire](v, c.key, []string{lease, c.owner})
	}
	v.passOver(c, over, c.owner)
	place := 1
	if waits {
		now := v.Milliseconds()
		if q == nil {
			q = &line{scores: make(map[string]int64)}
			v.lines[c.key] = q
		}
		if place = slices.Index(q.owners, c.owner); place < 0 {
			place = len(q.owners)
			q.owners = append(q.owners, c.owner)
		}
		q.scores[c.owner] = max(q.scores[c.owner], now+max(ttl, 0)+int64(place+1)*c.room)
		last := int64(0)
		for _, at := range q.scores {
			last = max(last, at)
		}
		q.expire = max(last+c.room, now+24*time.Hour.Milliseconds())
	}
	if ttl != -2 {
		return ttl
	}
	v.wake(c, c.owner)
	return int64(min(max(100*place, 100), 3000))
}

// fairRelease follows fairrelease.lua.
func (v *Keyspace) fairRelease(keys, args []string) int64 {
	c := queueingOf(keys, args)
	code := int64(script.NotThere)
	if rest := Number(c.rest[0]); rest > 0 {
		code = scripts[script.Retire](v, c.key, []string{c.owner, c.rest[0], c.rest[1], "", ""})
	} else {
		code = scripts[script.Release](v, c.key, []string{c.owner, "", ""})
	}
	if q := v.lineOf(c.key); q != nil {
		if place := slices.Index(q.owners, c.owner); place >= 0 {
			q.remove(c.owner)
			left := max(v.Left(c.key), 0)
			q.comeNearer(min(place, near), c.room, v.Milliseconds(), left, left > 0)
		}
	}
	if code == script.NotThere && v.Get(c.key) != nil && !v.Has(c.key, c.rest[1]) {
		return script.NotThere
	}
	v.wakeNext(c)
	return code
}

// fairForce follows fairforce.lua.
func (v *Keyspace) fairForce(keys, args []string) int64 {
	c := queueingOf(keys, args)
	free := v.Get(c.key) == nil
	if !free && c.owner != "" && !v.Has(c.key, c.owner) {
		return 0
	}
	delete(v.Keys, c.key)
	v.wakeNext(c)
	if free {
		return 0
	}
	return script.Done
}

// Queued says who waits in the queues, of those that count.
func (v *Keyspace) Queued(counts func(owner string) bool) (list []string) {
	for key := range v.lines {
		if q := v.lineOf(key); q != nil {
			for _, owner := range q.owners {
				if counts(owner) {
					list = append(list, fmt.Sprintf("%s waits for %s", owner, key))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}
