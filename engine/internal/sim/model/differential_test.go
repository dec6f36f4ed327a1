package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The model of a server does what a real one does: it is sent the same calls in the same
// order, and then has the same answers, the same keys, and expiries that differ by no more
// than the test took.
func TestModelOfAServerDoesWhatARealOneDoes(t *testing.T) {
	t.Parallel()
	real := redistest.Start(t)
	for _, text := range script.Texts() {
		real.Do("SCRIPT", "LOAD", text)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	clk := clock.System()
	model := New(clk.Now)
	messages := 0
	model.Published = func(string, string, string) int { messages++; return 0 }

	draw := func(of ...string) string { return of[random.IntN(len(of))] }
	owner := func() script.Owner {
		id := 1 + random.Int64N(3) // a thread of Redisson's
		if random.IntN(2) == 0 {
			id += 2100000000000000000 // ours
		}
		return script.Owner{Engine: draw("e1", "e2"), ID: id}
	}
	lease := func() time.Duration { return time.Duration(1+random.IntN(100)) * time.Minute }
	call := func() []byte {
		key, o := draw("a", "b", "{c}"), owner()
		ch := script.Channel{Prefix: "redisson_lock__channel", Lock: key, Verb: draw("PUBLISH", "")}
		if random.IntN(3) == 0 {
			return rwCall(random, draw(key, "rw", "rw"), lease, draw) // of that few others make something else
		}
		q := script.Queue{Key: key, Channel: ch, Counts: random.IntN(2) == 0, Room: time.Duration(1+random.IntN(3)) * time.Minute}
		q.Channel.Verb = "PUBLISH"
		switch random.IntN(36) {
		case 30, 31, 32, 33, 34:
			q.Front, o.Engine = 1+random.IntN(3), draw("e1", "e2", "e3", "e4", "e5")
			waitedFor := uint32(0)
			if w := model.waitingFor(script.Companion(script.WaitersPrefix, key)); w != nil && random.IntN(2) == 0 {
				waitedFor = uint32(short(w.places[0].number) - random.Int64N(2))
			}
			return script.AppendJoin(nil, resp.EvalSHA, q, o, lease(), random.IntN(3) == 0, waitedFor)
		case 35:
			q.Front = 1 + random.IntN(2)
			return script.AppendWithdraw(nil, resp.EvalSHA, q, o.Engine)
		case 20, 21, 22, 23:
			return counterCall(random)
		case 13, 14, 15, 16, 28, 29:
			return script.AppendFair(nil, resp.EvalSHA, q, o, lease(), random.IntN(4) > 0)
		case 17, 18, 26, 27:
			rest := time.Duration(0)
			if random.IntN(4) == 0 {
				rest = lease()
			}
			return script.AppendFairRelease(nil, resp.EvalSHA, q, o, script.Owner{Engine: o.Engine, ID: -o.ID}, rest)
		case 19:
			return script.AppendFairForce(nil, resp.EvalSHA, q, draw("", o.String()))
		case 12:
			return script.AppendFenced(nil, resp.EvalSHA, key, o, lease())
		case 0, 1, 2:
			return script.AppendAcquire(nil, resp.EvalSHA, key, o, lease())
		case 3:
			return script.AppendReenter(nil, resp.EvalSHA, key, o, lease(), 2+random.IntN(3))
		case 4:
			return script.AppendLeave(nil, resp.EvalSHA, key, o, 1+random.IntN(3))
		case 5:
			return script.AppendRelease(nil, resp.EvalSHA, key, o, ch)
		case 6:
			return script.AppendRetire(nil, resp.EvalSHA, key, o, script.Owner{Engine: o.Engine, ID: -o.ID}, lease(), ch)
		case 7:
			return script.AppendForce(nil, resp.EvalSHA, key, draw("", o.String()), ch)
		case 8:
			return script.AppendState(nil, resp.EvalSHA, key)
		case 9, 10, 24, 25:
			var owners []script.Owner
			for range 1 + random.IntN(3) {
				owners = append(owners, owner())
			}
			taking := lease()
			if random.IntN(3) == 0 {
				taking = 0
			}
			return script.AppendSeveral(nil, resp.EvalSHA, key, owners, o, taking, random.IntN(2) == 0, ch)
		default:
			var list []script.Renewal
			for range 1 + random.IntN(4) {
				list = append(list, script.Renewal{Key: draw("a", "b", "{c}"), Owner: owner(), Lease: lease()})
			}
			return script.AppendRenew(nil, resp.EvalSHA, list)
		}
	}
	start := clk.Now()
	near := func(a, b int64) bool { // milliseconds left; below zero they are no time
		slack := clk.Now().Sub(start).Milliseconds() + 2
		return a == b || a >= 0 && b >= 0 && max(a-b, b-a) <= slack
	}
	rounds := 3000
	if testkit.Race {
		rounds /= 4 // all of them without it: .ci/run
	}
	for i := range rounds {
		command := call()
		if random.IntN(200) == 0 { // somebody else's string
			key := draw("a", "b", "{c}")
			real.Do("SET", key, "text", "PX", "600000")
			model.Keys[key] = &Hash{Text: true}
			model.ExpireIn(key, 600_000)
		}
		if random.IntN(50) == 0 {
			key := draw("a", "b", "{c}", "t")
			real.Do("DEL", key, script.Companion(script.QueuePrefix, key), script.Companion(script.TimeoutPrefix, key))
			delete(model.Keys, key)
			delete(model.lines, key)
			if waits := script.Companion(script.WaitersPrefix, key); random.IntN(4) == 0 {
				real.Do("DEL", waits)
				delete(model.waits, waits)
			}
		}
		if random.IntN(20) == 0 && model.Get("t") != nil {
			real.Do("PEXPIRE", "t", "600000")
			model.ExpireIn("t", 600_000)
		}
		if random.IntN(3) == 0 { // the time of a head is over
			key := draw("a", "b", "{c}")
			if q := model.lineOf(key); q != nil {
				over, _ := real.Do("TIME").([]any)[0].(string)
				q.scores[q.owners[0]] = model.Milliseconds() - 1000
				real.Do("ZADD", script.Companion(script.TimeoutPrefix, key), fmt.Sprint(Number(over)*1000-1000), q.owners[0])
			}
		}
		words := Words(command)
		before, sent := real.CommandStats()["publish"], messages
		is, _, err := wire.Decode(model.Execute(command, nil))
		if err != nil {
			t.Fatal(err)
		}
		was := real.Do(words...)
		if list, ok := was.([]any); ok && len(list) == 2 {
			if holder, ok := list[1].(string); ok && model.Has(words[3], holder) { // any of several
				was, is = list[0], first(is)
			}
		}
		if !sameAnswer(is, was, near) {
			t.Fatalf("call %d, %s %q: the model answers %s, the server %v", i, BySHA[words[1]].Name, words[3:], show(is), was)
		}
		// A queue tells as many. Others have a second message for threads of Redisson.
		if n, s := real.CommandStats()["publish"]-before, BySHA[words[1]]; (IsFair(s) || s == script.Join || s == script.Withdraw) && is.Kind != wire.KindError && n != int64(messages-sent) {
			t.Fatalf("call %d, %s %q: the model tells %d, and the server %d", i, BySHA[words[1]].Name, words[3:], messages-sent, n)
		}
		if left, right := model.valueOf("t"), real.Do("GET", "t"); left != right {
			t.Fatalf("call %d, %q: the count is %v in the model, and %v on the server", i, words[3:], left, right)
		}
		if left, right := model.Left("t"), real.Do("PTTL", "t").(int64); !near(left, right) {
			t.Fatalf("call %d, %q: the count has %d ms left in the model, and %d on the server", i, words[3:], left, right)
		}
		for _, key := range []string{"a", "b", "{c}", "rw"} {
			if h := model.Get(key); h != nil && h.Text {
				continue
			}
			if left, right := model.fieldsOf(key), real.Do("HGETALL", key); fmt.Sprint(left) != fmt.Sprint(sortedPairs(right)) {
				t.Fatalf("call %d, %s %q: %s is %v in the model, and %v on the server", i, BySHA[words[1]].Name, words[3:], key, left, right)
			}
			if left, right := model.queueOf(key), queueAt(real, key); !sameQueue(left, right, near) {
				t.Fatalf("call %d, %s %q: the queue of %s is %v in the model, and %v on the server", i, BySHA[words[1]].Name, words[3:], key, left, right)
			}
			waits := script.Companion(script.WaitersPrefix, key)
			if left, right := fmt.Sprint(model.waitersAt(waits)), fmt.Sprint(real.Do("ZRANGE", waits, "0", "-1", "WITHSCORES")); left != right {
				t.Fatalf("call %d, %s %q: %s is %v in the model, and %v on the server", i, BySHA[words[1]].Name, words[3:], waits, left, right)
			}
			reader := rwOwners[random.IntN(len(rwOwners))]
			if random.IntN(2) == 0 {
				reader.ID = -reader.ID // what a MinHold has left
			}
			timeout := script.TimeoutKey(key, reader, 1+random.IntN(4))
			if left, right := model.Left(timeout), real.Do("PTTL", timeout).(int64); !near(left, right) {
				t.Fatalf("call %d, %s %q: %s has %d ms left in the model, and %d on the server", i, BySHA[words[1]].Name, words[3:], timeout, left, right)
			}
			if left, right := model.Left(key), real.Do("PTTL", key).(int64); !near(left, right) {
				t.Fatalf("call %d, %s %q: %s has %d ms left in the model, and %d on the server", i, BySHA[words[1]].Name, words[3:], key, left, right)
			}
		}
	}
	if v := real.Do("KEYS", "*:pawl:*").([]any); len(v) == 0 {
		t.Error("no mark was left")
	}
	if messages == 0 {
		t.Error("no message was published")
	}
}

// place is one in a queue: an owner, and how many milliseconds it is waited for still. The last
// place is that of the expiry.
type place struct {
	owner string
	left  int64
}

func (v *Keyspace) queueOf(key string) (all []place) {
	q := v.lineOf(key)
	if q == nil {
		return nil
	}
	for _, owner := range q.owners {
		all = append(all, place{owner, q.scores[owner] - v.Milliseconds()})
	}
	return append(all, place{left: q.expire - v.Milliseconds()})
}

// waitersAt are the engines in a queue, with their numbers.
func (v *Keyspace) waitersAt(queue string) []string {
	list := []string{}
	if q := v.waitingFor(queue); q != nil {
		for _, p := range q.places {
			list = append(list, p.engine, fmt.Sprint(float64(p.number)/8))
		}
	}
	return list
}

func queueAt(s *redistest.Server, key string) (all []place) {
	queue, timeout := script.Companion(script.QueuePrefix, key), script.Companion(script.TimeoutPrefix, key)
	owners, _ := s.Do("LRANGE", queue, "0", "-1").([]any)
	if len(owners) == 0 {
		return nil
	}
	for _, owner := range owners {
		score, _ := s.Do("ZSCORE", timeout, owner.(string)).(string)
		at, _ := strconv.ParseInt(score, 10, 64)
		all = append(all, place{owner.(string), at - time.Now().UnixMilli()})
	}
	return append(all, place{left: s.Do("PTTL", queue).(int64)})
}

func sameQueue(is, was []place, near func(a, b int64) bool) bool {
	return slices.EqualFunc(is, was, func(a, b place) bool { return a.owner == b.owner && near(max(a.left, 0), max(b.left, 0)) })
}

// rwOwners are those that read and write in the test.
var rwOwners = []script.Owner{{Engine: "e1", ID: 1}, {Engine: "e1", ID: 2}, {Engine: "e2", ID: 1}}

// rwCall draws a call of a read-write lock.
func rwCall(random *rand.Rand, key string, lease func() time.Duration, draw func(...string) string) []byte {
	o := rwOwners[random.IntN(len(rwOwners))]
	w := o
	w.Suffix = script.WriterSuffix
	ch := script.Channel{Prefix: "redisson_rwlock", Lock: key, Verb: draw("PUBLISH", "")}
	switch random.IntN(20) {
	case 0, 1:
		return script.AppendReadAcquire(nil, resp.EvalSHA, key, o, lease(), script.Owner{})
	case 2, 14, 15, 16, 17:
		return script.AppendReadAcquire(nil, resp.EvalSHA, key, o, lease(), w)
	case 3, 4:
		return script.AppendReadReenter(nil, resp.EvalSHA, key, o, lease(), 2+random.IntN(3))
	case 5:
		return script.AppendReadLeave(nil, resp.EvalSHA, key, o, 1+random.IntN(3), ch)
	case 6:
		return script.AppendReadRelease(nil, resp.EvalSHA, key, o, ch)
	case 7, 8:
		return script.AppendWriteAcquire(nil, resp.EvalSHA, key, w, lease())
	case 9:
		return script.AppendWriteRelease(nil, resp.EvalSHA, key, w, ch)
	case 10, 18, 19:
		return script.AppendWriteRetire(nil, resp.EvalSHA, key, w, script.Owner{Engine: w.Engine, ID: -w.ID, Suffix: w.Suffix}, lease(), ch)
	case 11:
		if random.IntN(2) == 0 {
			return script.AppendWriteForce(nil, resp.EvalSHA, key, draw("", w.String(), o.String()), ch)
		}
		return script.AppendReadForce(nil, resp.EvalSHA, key, draw("", o.String(), "mode"), ch)
	case 12:
		return script.AppendRaise(nil, resp.EvalSHA, script.Renewal{Key: key, Owner: o, Lease: lease()})
	default:
		var list []script.Renewal
		for range 1 + random.IntN(4) {
			list = append(list, script.Renewal{Key: draw("a", "b", "{c}"), Owner: o, Lease: lease()})
		}
		return script.AppendReadRenew(nil, resp.EvalSHA, list)
	}
}

// counterCall is a call of counter. Sometimes it is that of an earlier number, or the same again.
func counterCall(random *rand.Rand) []byte {
	engine := []string{"e1", "e2"}[random.IntN(2)]
	call := script.CounterCall{Key: "t", Mark: script.MarkOf("t", engine), Channel: "redisson_sc:{t}", Verb: "PUBLISH", Number: uint64(random.IntN(2) * (1 + random.IntN(3)))}
	if random.IntN(8) == 0 {
		call.Key, call.Mark = "a", script.MarkOf("a", engine)
	}
	if call.Number != 0 {
		counterNumbers[call.Mark] += call.Number - 1
		call.Number = counterNumbers[call.Mark] + 1
	}
	letters := "atrpsdclv"
	if call.Number == 0 {
		letters = "v"
	}
	for range 1 + random.IntN(4) {
		call.Ops = append(call.Ops, script.CounterOp{What: letters[random.IntN(len(letters))], N: random.Int64N(5)})
	}
	return script.AppendCounter(nil, resp.EvalSHA, &call)
}

// counterNumbers are the latest numbers, by mark.
var counterNumbers = make(map[string]uint64)

// valueOf is what GET answers.
func (v *Keyspace) valueOf(key string) any {
	if h := v.Get(key); h != nil {
		return h.Value
	}
	return nil
}

// fieldsOf are owners and counts, in order.
func (v *Keyspace) fieldsOf(key string) []string {
	h := v.Get(key)
	if h == nil {
		return nil
	}
	var pairs []string
	for _, field := range slices.Sorted(maps.Keys(h.Fields)) {
		pairs = append(pairs, field+"="+h.Fields[field])
	}
	slices.Sort(pairs)
	return pairs
}

func sortedPairs(reply any) []string {
	list, _ := reply.([]any)
	var pairs []string
	for i := 0; i+1 < len(list); i += 2 {
		pairs = append(pairs, fmt.Sprint(list[i], "=", list[i+1]))
	}
	slices.Sort(pairs)
	return pairs
}

// sameAnswer compares an answer of the model with one of a server.
func first(list resp.Value) (v resp.Value) {
	list.Each(func(_ int, e resp.Value) bool { v = e; return false })
	return v
}

func sameAnswer(is resp.Value, was any, near func(a, b int64) bool) bool {
	switch was := was.(type) {
	case int64:
		return is.Kind == wire.KindInt && near(is.Int, was)
	case error:
		return is.Kind == wire.KindError && wire.NewServerError([]byte(was.Error())).Code == wire.NewServerError(is.Bytes).Code
	case []any:
		same := is.Kind == wire.KindArray && is.Len() == len(was)
		var owners []any // and their counts, which a server has in any order
		is.Each(func(i int, e resp.Value) bool {
			switch n := was[i].(type) {
			case int64:
				same = same && e.Kind == wire.KindInt && near(e.Int, n)
			default:
				owners = append(owners, string(e.Bytes))
			}
			return same
		})
		return same && slices.Equal(sortedPairs(owners), sortedPairs(was[len(was)-len(owners):]))
	}
	return false
}

func show(v resp.Value) string {
	switch v.Kind {
	case wire.KindInt:
		return strconv.FormatInt(v.Int, 10)
	case wire.KindArray:
		text := "["
		v.Each(func(_ int, e resp.Value) bool { text += show(e) + " "; return true })
		return text + "]"
	}
	return string(v.Bytes)
}
