package kind

import (
	"fmt"
	"slices"
	"testing"

	respwire "github.com/pawl-lock/pawl/resp/wire"
)

func TestEachKindHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := make(map[string]Kind)
	for k := range Kind(Kinds) {
		if other, twice := seen[k.String()]; twice || k.String() == "" {
			t.Errorf("kind %d is called %q, as kind %d is", k, k, other)
		}
		seen[k.String()] = k
	}
}

// The kinds that share a hash re-enter each other. Who reads and who writes do not. Permits are
// never re-entered.
func TestWhoReentersWhom(t *testing.T) {
	t.Parallel()
	hash := []Kind{Mutex, Spin, Fenced}
	for k := range Kind(Kinds) {
		for other := range Kind(Kinds) {
			want := k == other && k != Permit || slices.Contains(hash, k) && slices.Contains(hash, other)
			if got := k.Reenters(other); got != want {
				t.Errorf("%s in %s: %v, want %v", k, other, got, want)
			}
		}
	}
	if r, w := Read.Owner("e", 5).String(), Write.Owner("e", 5).String(); r != "e:5" || w != "e:5:write" {
		t.Errorf("owners are %s and %s", r, w)
	}
}

func TestChannelIsRedissons(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]string{
		"a":      "redisson_lock__channel:{a}",
		"x{tag}": "redisson_lock__channel:x{tag}",
	} {
		if got := Mutex.Channel(lock, "PUBLISH").Name(); got != want {
			t.Errorf("%s: %s, want %s", lock, got, want)
		}
	}
	if !Spin.Polls() || Mutex.Polls() {
		t.Error("a SpinMutex polls, and a Mutex does not")
	}
}

// A name whose channel is in another slot cannot be used in a cluster, unless nothing is
// announced.
func TestPlaceableNames(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]bool{
		"a": true, "orders:{42}": true, "{a}": true,
		"{}a": false, "a{b": false, "a}b{c}": true, "{a}{b}": true, "a{}b": false,
	} {
		if channel, ok := Mutex.ValidInCluster(lock); ok != want {
			t.Errorf("%q: %v (%s), want %v", lock, ok, channel, want)
		}
		if _, ok := Spin.ValidInCluster(lock); !ok {
			t.Errorf("%q cannot be placed, though nothing is announced", lock)
		}
	}
}

// A program may ask for a Mutex before every Lock.
func TestPlaceableOfANameWithoutBracesAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Mutex.ValidInCluster("orders-42") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A server that is none, or a proxy, must not grant anything by an answer that no script gives.
func TestKind_Granted_TakesWhatScriptsSayOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[Kind]string{
		":-2\r\n":                     {Mutex: "-2, 0, ", Fenced: "nothing"},
		"*2\r\n:-2\r\n:7\r\n":         {Mutex: "nothing", Fenced: "-2, 7, "},
		"*2\r\n:300\r\n$3\r\na:1\r\n": {Mutex: "300, 0, a:1", Fenced: "300, 0, a:1"},
		"*2\r\n:300\r\n$0\r\n\r\n":    {Mutex: "300, 0, ", Fenced: "300, 0, "},
		"*2\r\n:-2\r\n$3\r\na:1\r\n":  {Mutex: "nothing", Fenced: "nothing"},
		"*2\r\n:300\r\n:7\r\n":        {Mutex: "nothing", Fenced: "nothing"},
		"*2\r\n$1\r\nx\r\n:7\r\n":     {Mutex: "nothing", Fenced: "nothing"},
		"*1\r\n:-2\r\n":               {Mutex: "nothing", Fenced: "nothing"},
		"$2\r\n-2\r\n":                {Mutex: "nothing", Fenced: "nothing"},
	} {
		v, _, err := respwire.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for k, want := range want {
			got := "nothing"
			if a := k.Granted(v); a.Code.Kind == respwire.KindInt {
				got = fmt.Sprintf("%d, %d, %s", a.Code.Int, a.Token, a.Holder)
			}
			if got != want {
				t.Errorf("%v of %q: %s, want %s", k, text, got, want)
			}
		}
	}
}
