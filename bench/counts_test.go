package bench

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestCounts_CommandsOfScripts_DoNotCount(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	server := openServer(t, redis.URL())
	before, err := server.counts()
	if err != nil || !before.known {
		t.Fatal(err)
	}
	for range 3 {
		redis.Do("EVAL", "for i = 1, 5 do redis.call('INCR', KEYS[1]) end return redis.call('PUBLISH', 'c', 'm')", "1", "n")
	}
	redis.Do("SUBSCRIBE", "c")
	redis.Do("GET", "n")
	after, err := server.counts()
	if got := after.since(before); err != nil || got.commands != 4 || got.scripts != 3 || got.at <= 0 || got.at > time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
	plain, err := server.counts("get")
	if err != nil || plain.commands != after.commands+1 {
		t.Errorf("with GET %+v, without %+v, %v", plain, after, err)
	}
}

func TestCounts_EmbeddedServer_AreNotKnown(t *testing.T) {
	t.Parallel()
	c, err := openServer(t, "").counts()
	commands, scripts := c.since(c).per(3)
	if err != nil || c.known || commands != nil || scripts != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// Redis 6.0 does not tell the time.
func TestClockOf_NoTime_IsThatOfHere(t *testing.T) {
	t.Parallel()
	now := time.Duration(time.Now().UnixNano())
	if got := clockOf(nil); got < now || got > now+time.Hour {
		t.Errorf("%v", got)
	}
	if got := clockOf(map[string]string{"server_time_usec": "1700000000000001"}); got != 1700000000000001*time.Microsecond {
		t.Errorf("%v", got)
	}
}
