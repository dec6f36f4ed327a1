package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
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
	model := &server{keys: make(map[string]*hash), now: clk.Now}
	messages := 0
	model.published = func(string, string) { messages++ }

	draw := func(of ...string) string { return of[random.IntN(len(of))] }
	owner := func() script.Owner {
		return script.Owner{Engine: draw("e1", "e2"), ID: 1 + random.Int64N(3)}
	}
	lease := func() time.Duration { return time.Duration(1+random.IntN(100)) * time.Minute }
	call := func() []byte {
		key, o := draw("a", "b", "{c}"), owner()
		ch := script.Channel{Prefix: "redisson_lock__channel", Lock: key, Verb: draw("PUBLISH", "")}
		switch random.IntN(10) {
		case 0, 1, 2:
			return script.AppendAcquire(nil, resp.Short, key, o, lease())
		case 3:
			return script.AppendReenter(nil, resp.Short, key, o, lease(), 2+random.IntN(3))
		case 4:
			return script.AppendLeave(nil, resp.Short, key, o, 1+random.IntN(3))
		case 5:
			return script.AppendRelease(nil, resp.Short, key, o, ch)
		case 6:
			return script.AppendRetire(nil, resp.Short, key, o, script.Owner{Engine: o.Engine, ID: -o.ID}, lease(), ch)
		case 7:
			return script.AppendForce(nil, resp.Short, key, draw("", o.String()), ch)
		case 8:
			return script.AppendState(nil, resp.Short, key)
		default:
			var list []script.Renewal
			for range 1 + random.IntN(4) {
				list = append(list, script.Renewal{Key: draw("a", "b", "{c}"), Owner: owner(), Lease: lease()})
			}
			return script.AppendRenew(nil, resp.Short, list)
		}
	}
	start := clk.Now()
	near := func(a, b int64) bool { // milliseconds left; below zero they are no time
		slack := clk.Now().Sub(start).Milliseconds() + 2
		return a == b || a >= 0 && b >= 0 && max(a-b, b-a) <= slack
	}
	for i := range 5000 {
		command := call()
		if random.IntN(200) == 0 { // somebody else's string
			key := draw("a", "b", "{c}")
			real.Do("SET", key, "text", "PX", "600000")
			model.keys[key] = &hash{text: true}
			model.expireIn(key, 600_000)
		}
		if random.IntN(50) == 0 {
			key := draw("a", "b", "{c}")
			real.Do("DEL", key)
			delete(model.keys, key)
		}
		words := split(command)
		is, _, err := wire.Decode(model.execute(command, nil))
		if err != nil {
			t.Fatal(err)
		}
		was := real.Do(words...)
		if !sameAnswer(is, was, near) {
			t.Fatalf("call %d, %s %q: the model answers %s, the server %v", i, bySHA[words[1]].Name, words[3:], show(is), was)
		}
		for _, key := range []string{"a", "b", "{c}"} {
			if h := model.get(key); h != nil && h.text {
				continue
			}
			if left, right := model.fieldsOf(key), real.Do("HGETALL", key); fmt.Sprint(left) != fmt.Sprint(sortedPairs(right)) {
				t.Fatalf("call %d, %s %q: %s is %v in the model, and %v on the server", i, bySHA[words[1]].Name, words[3:], key, left, right)
			}
			if left, right := model.left(key), real.Do("PTTL", key).(int64); !near(left, right) {
				t.Fatalf("call %d, %s %q: %s has %d ms left in the model, and %d on the server", i, bySHA[words[1]].Name, words[3:], key, left, right)
			}
		}
	}
	if messages == 0 {
		t.Error("no message was published")
	}
}

// fieldsOf are owners and counts, in order.
func (v *server) fieldsOf(key string) []string {
	h := v.get(key)
	if h == nil {
		return nil
	}
	var pairs []string
	for _, field := range slices.Sorted(maps.Keys(h.fields)) {
		pairs = append(pairs, field+"="+h.fields[field])
	}
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
