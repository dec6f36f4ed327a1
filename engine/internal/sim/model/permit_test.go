package model

import (
	"fmt"
	"math/rand/v2"
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

// The model of a semaphore does what a real one does: the same answers, the same number of
// permits, the same ids, and expiries that differ by no more than the test took.
func TestModelOfASemaphoreDoesWhatARealOneDoes(t *testing.T) {
	t.Parallel()
	real := redistest.Start(t)
	for _, text := range script.Texts() {
		real.Do("SCRIPT", "LOAD", text)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	clk := clock.System()
	messages := 0
	model := New(clk.Now)
	model.Published = func(string, string, string) int { messages++; return 0 }
	keys := []string{"a", "b", "{c}"}
	owner := func() script.Owner {
		return script.Owner{Engine: keys[random.IntN(2)], ID: (1+random.Int64N(4))<<8 | random.Int64N(3)}
	}
	lease := func() time.Duration { return time.Duration(1+random.IntN(100)) * time.Minute }
	call := func(key string) []byte {
		o := owner()
		ch := script.Channel{Prefix: script.PermitChannel, Lock: key, Verb: "PUBLISH"}
		switch random.IntN(8) {
		case 0, 1, 2:
			return script.AppendPermitTake(nil, resp.EvalSHA, key, o, lease(), ch)
		case 3, 4:
			return script.AppendPermitRelease(nil, resp.EvalSHA, key, o, ch)
		case 5:
			what := []string{script.TryPermits, script.SetPermits, script.AddPermits}[random.IntN(3)]
			n := random.Int64N(6)
			if what == script.AddPermits {
				n -= 3
			}
			return script.AppendPermitSet(nil, resp.EvalSHA, key, what, n, ch)
		case 6:
			return script.AppendPermitCount(nil, resp.EvalSHA, key, ch)
		default:
			var list []script.Renewal
			for range 1 + random.IntN(4) {
				list = append(list, script.Renewal{Key: keys[random.IntN(3)], Owner: owner(), Lease: lease()})
			}
			return script.AppendPermitRenew(nil, resp.EvalSHA, list)
		}
	}
	start := clk.Now()
	near := func(a, b int64) bool {
		slack := clk.Now().Sub(start).Milliseconds() + 2
		return a == b || a >= 1000 && b >= 1000 && max(a-b, b-a) <= slack
	}
	rounds := 2500
	if testkit.Race {
		rounds /= 4 // all of them without it: .ci/run
	}
	for i := range rounds {
		key := keys[random.IntN(3)]
		if random.IntN(20) == 0 { // one expires
			m := model.Semaphore(key)
			if ids := m.IDs(); len(ids) > 0 {
				id := ids[random.IntN(len(ids))]
				m.Held[id] = 1
				real.Do("ZADD", script.HeldPermits(key), "1", id)
			}
		}
		command := call(key)
		words := Words(command)
		before := messages
		is, _, err := wire.Decode(model.Execute(command, nil))
		if err != nil {
			t.Fatal(err)
		}
		published := real.CommandStats()["publish"]
		was := real.Do(words...)
		if !sameAnswer(is, was, near) {
			t.Fatalf("call %d, %s %q: the model answers %s, the server %v", i, BySHA[words[1]].Name, words[3:], show(is), was)
		}
		if notified := real.CommandStats()["publish"] - published; notified != int64(messages-before) {
			t.Fatalf("call %d, %s %q: %d messages of the model, %d of the server", i, BySHA[words[1]].Name, words[3:], messages-before, notified)
		}
		for _, key := range keys {
			m := model.Semaphore(key)
			value, there := real.Do("GET", key).(string)
			if there != m.There || there && value != strconv.FormatInt(m.Value, 10) {
				t.Fatalf("call %d, %s %q: %s is %+v in the model, and %q on the server", i, BySHA[words[1]].Name, words[3:], key, m, value)
			}
			pairs, _ := real.Do("ZRANGE", script.HeldPermits(key), "0", "-1", "WITHSCORES").([]any)
			if len(pairs) != 2*len(m.Held) {
				t.Fatalf("call %d, %s %q: %s is %+v in the model, and %q on the server", i, BySHA[words[1]].Name, words[3:], key, m, pairs)
			}
			for j := 0; j < len(pairs); j += 2 {
				end, err := strconv.ParseInt(fmt.Sprint(pairs[j+1]), 10, 64)
				left := time.Until(time.UnixMilli(end)).Milliseconds()
				if mine := m.Held[pairs[j].(string)]; err != nil || (mine == 1) != (end == 1) || mine > 1 && !near(mine-model.Milliseconds(), left) {
					t.Fatalf("call %d: %x ends at %d in the model, and in %d ms on the server, %v", i, pairs[j], mine, left, err)
				}
			}
		}
	}
	if messages == 0 {
		t.Error("no message was published")
	}
}
