//go:build linux || darwin

package linearizability

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// record is what the worker processes said that they did, by a clock that they share. A
// process that was killed said it up to its end: it prints each event before it does
// anything else.
type record struct {
	mu     sync.Mutex
	ops    map[string]*operation // by id
	counts map[string]int        // of lines, by kind and outcome
	faulty []string              // lines that make no sense
}

func newRecord() *record {
	return &record{ops: make(map[string]*operation), counts: make(map[string]int)}
}

// operation is a call that asks for a lock and, if that is granted, all that the hold says of
// itself. Instants are nanoseconds, 0 if that has not happened.
type operation struct {
	id, name  string
	asked     int64 // the call began
	failed    int64 // it returned without a hold, or gave up
	granted   int64 // it returned with a hold
	owner     string
	token     int64
	valid     int64 // the latest ValidUntil while the hold was live
	unlocking int64 // Unlock was called
	unlocked  int64 // it returned
	result    string
}

// end is until when the hold was certainly exclusive. A killed process still is an owner until its
// lease ends.
func (o *operation) end() int64 {
	if o.unlocking != 0 {
		return min(o.valid, o.unlocking)
	}
	return o.valid
}

func (o *operation) String() string {
	us := func(i int64) int64 { return i / 1000 }
	return fmt.Sprintf("%s of %s, owner %s, token %d: asked %d, granted %d, valid until %d, Unlock %d to %d: %s",
		o.id, o.name, o.owner, o.token, us(o.asked), us(o.granted), us(o.valid), us(o.unlocking), us(o.unlocked), o.result)
}

// The lines of a worker. Each begins with linePrefix, the kind and the id of the operation:
//
//	asked ID INSTANT NAME CALL             Lock, TryLock or LockAsync is called
//	failed ID INSTANT WHY                  it returned without a hold, or was abandoned
//	granted ID INSTANT OWNER TOKEN UNTIL   it returned with one, which is certain until then
//	valid ID UNTIL                         it has been renewed or extended
//	extended ID INSTANT RESULT             Extend returned
//	unlocking ID INSTANT                   Unlock is called
//	unlocked ID INSTANT RESULT             it returned
const linePrefix = "@"

// line takes a line of a worker. It returns false if that is not one of the record's.
func (r *record) line(text string) bool {
	if !strings.HasPrefix(text, linePrefix) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.take(strings.Fields(text[len(linePrefix):])) {
		r.faulty = append(r.faulty, text)
	}
	return true
}

func (r *record) take(words []string) bool {
	if len(words) < 3 {
		return false
	}
	kind, id := words[0], words[1]
	instant, err := strconv.ParseInt(words[2], 10, 64)
	o := r.ops[id]
	if err != nil || (o == nil) != (kind == "asked") {
		return false
	}
	count := kind
	switch {
	case kind == "asked" && len(words) == 5:
		r.ops[id] = &operation{id: id, name: words[3], asked: instant}
		count = words[4]
	case kind == "failed" && len(words) == 4:
		o.failed, count = instant, "failed: "+words[3]
	case kind == "granted" && len(words) == 6:
		o.granted, o.owner = instant, words[3]
		o.token, err = strconv.ParseInt(words[4], 10, 64)
		if err == nil {
			o.valid, err = strconv.ParseInt(words[5], 10, 64)
		}
		return err == nil
	case kind == "valid":
		o.valid = max(o.valid, instant)
		return true
	case kind == "extended" && len(words) == 4:
		count = "Extend"
	case kind == "unlocking":
		o.unlocking, count = instant, "Unlock"
	case kind == "unlocked" && len(words) == 4:
		o.unlocked, o.result = instant, words[3]
		count = "unlocked: " + words[3]
	default:
		return false
	}
	r.counts[count]++
	return true
}

// operations is how many calls there were.
func (r *record) operations() (n int) {
	for _, call := range calls {
		n += r.counts[call]
	}
	return n + r.counts["Unlock"] + r.counts["Extend"]
}

// check looks at everything that was said, after the last worker has ended. It returns how many holds there were.
func (r *record) check(t testing.TB) (holds int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%d operations, %d of them refused for want of replicas: %v", r.operations(), r.counts["failed: acks"], r.counts)
	for _, text := range r.faulty {
		t.Errorf("a line that makes no sense: %q", text)
	}
	names := make(map[string][]*operation)
	for _, o := range r.ops {
		if o.granted != 0 {
			names[o.name] = append(names[o.name], o)
			holds++
		}
	}
	var longest time.Duration
	parts := 0
	for _, all := range names {
		slices.SortFunc(all, func(a, b *operation) int { return cmp.Compare(a.granted, b.granted) })
		exclusive := wantExclusive(t, all)
		wantNoLoss(t, all)
		wantTokens(t, all)
		longest = max(longest, longestFree(all))
		if exclusive {
			parts += wantOrder(t, all)
		}
	}
	t.Logf("%d holds of %d names, judged in %d parts; a lock was free for %v at most while the next holder waited",
		holds, len(names), parts, longest)
	return holds
}

// wantExclusive: no hold of the name was granted while another one certainly had it. They are in the
// order in which they were granted.
func wantExclusive(t testing.TB, holds []*operation) bool {
	t.Helper()
	good := true
	last := holds[0]
	for _, o := range holds[1:] {
		if last.end() > o.granted && o.end() > o.granted {
			t.Errorf("two holds at once, by %v:\n%v\n%v", time.Duration(last.end()-o.granted), last, o)
			good = false
		}
		if o.end() > last.end() {
			last = o
		}
	}
	return good
}

// wantNoLoss: nobody removes keys, and all replicas have acknowledged what is held. So the server has a
// hold for as long as that is valid.
func wantNoLoss(t testing.TB, holds []*operation) {
	t.Helper()
	for _, o := range holds {
		switch o.result {
		case "", "ok", "unknown", "lost:not_renewed", "lost:lease_ended":
		case "lost:removed": // by the end of the lease
			if o.unlocked <= o.valid {
				t.Errorf("lost, and nobody took it: %v", o)
			}
		default:
			t.Errorf("a hold cannot end so here: %v", o)
		}
	}
}

// wantTokens: each hold of a fenced name has a token of its own, which is higher than those of all
// holds that were granted before it was asked for.
func wantTokens(t testing.TB, holds []*operation) {
	t.Helper()
	if !isFenced(holds[0].name) {
		return
	}
	all := slices.Clone(holds)
	slices.SortFunc(all, func(a, b *operation) int { return cmp.Compare(b.token, a.token) })
	first := all[0] // to be granted, of those with higher tokens
	for i, o := range all {
		if o.token < 1 || i > 0 && o.token == all[i-1].token {
			t.Errorf("token %d of\n%v\n%v", o.token, o, all[max(i-1, 0)])
		}
		if first.granted < o.asked {
			t.Errorf("token %d after %d:\n%v\n%v", o.token, first.token, first, o)
		}
		if o.granted < first.granted {
			first = o
		}
	}
}

// longestFree is how long a lock was free at most while the one that got it waited for it.
func longestFree(holds []*operation) (longest time.Duration) {
	for i, o := range holds[1:] {
		if last := holds[i]; last.result == "ok" && o.asked < last.unlocked {
			longest = max(longest, time.Duration(o.granted-last.unlocked))
		}
	}
	return longest
}
