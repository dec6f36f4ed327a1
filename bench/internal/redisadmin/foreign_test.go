package redisadmin

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// A server that is away keeps no lock on the others, and is said to be away.
func TestAServerThatDiesKeepsNoLockOnTheOthers(t *testing.T) {
	t.Parallel()
	alive, dies := redistest.Start(t), redistest.Start(t)
	first, second := dialFleet(t, alive.URL()), dialFleet(t, dies.URL())
	names := make([]string, 100)
	const half = 16384 / 2 // of the slots
	for i := range names {
		names[i] = "n" + strconv.Itoa(i)
	}
	f := &Fleet{Conns: map[string]*Conn{"a": first.First(), "b": second.First()},
		shards: []resp.Shard{{First: 0, Last: half - 1, Primary: "a"}, {First: half, Last: 2*half - 1, Primary: "b"}}}
	foreign := NewForeignHolds(f, names)
	if err := foreign.Take(0); err != nil {
		t.Fatal(err)
	}
	dies.Kill()
	if _, err := foreign.ReleaseNext(1000); !errors.Is(err, engine.ErrUnavailable) {
		t.Error(err)
	}
	if err := foreign.Release(); !errors.Is(err, engine.ErrUnavailable) || strings.Contains(err.Error(), "use of closed") {
		t.Error(err)
	}
	if n := alive.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

func dialFleet(t *testing.T, url string) *Fleet {
	t.Helper()
	cfg, err := engine.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	f, err := DialFleet(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}
