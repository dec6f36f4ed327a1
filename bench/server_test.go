package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestTheServerIsReachedByEveryKindOfURL(t *testing.T) {
	t.Parallel()
	locked := redistest.Start(t, redistest.Password("secret"))
	open := redistest.Start(t)
	users := redistest.Start(t, redistest.User("bench on >hidden ~* &* +@all"))
	for _, url := range []string{
		locked.URL(), "unix://:secret@" + locked.Socket(), open.URL() + "/3", "unix://" + open.Socket() + "?db=2",
		"redis://bench:hidden@" + users.Addr(),
	} {
		cfg := quick(Uncontended)
		cfg.URL, cfg.Duration = url, 200*time.Millisecond
		if r := mustMeasure(t, cfg); r.Pairs == 0 {
			t.Errorf("%s: %+v", url, r)
		}
	}
}

func TestAServerThatDoesNotSayWhatItIsComparesWithNothing(t *testing.T) {
	t.Parallel()
	mini, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mini.Close)
	silent := redistest.Start(t, redistest.User("bench on >hidden ~* &* +@all -info"))
	for _, url := range []string{mini.URL(), "redis://bench:hidden@" + silent.Addr()} {
		cfg := quick(Uncontended)
		cfg.URL = url
		if r := mustMeasure(t, cfg); r.Server != "unknown" || r.Comparable || r.CommandsPerPair != nil || r.Pairs == 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestAServerThatCannotBeUsedIsUnavailable(t *testing.T) {
	t.Parallel()
	gone := redistest.Start(t)
	gone.Kill()
	locked := redistest.Start(t, redistest.Password("secret"))
	for _, url := range []string{gone.URL(), "redis://" + locked.Addr(), "redis://:mistaken@" + locked.Addr(), "unix:///no/such/socket"} {
		for _, scenario := range Scenarios {
			cfg := quick(scenario)
			cfg.URL = url
			_, err := Run(t.Context(), cfg)
			if !errors.Is(err, engine.ErrUnavailable) || strings.Contains(err.Error(), "mistaken") {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

func TestBadConfigIsRefusedWithAllItsFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Config)
		faults []string
	}{
		{func(c *Config) { c.Scenario = "cold" }, []string{`scenario ("cold")`}},
		{func(c *Config) { c.URL, c.Embedded = "redis://h", true }, []string{"embedded"}},
		{func(c *Config) { c.Goroutines, c.Count = 0, -1 }, []string{"goroutines (0)", "count (-1)"}},
		{func(c *Config) { c.Names = c.Count + 1 }, []string{"names (501)"}},
		{func(c *Config) { c.Duration, c.Warmup = -1, -1 }, []string{"duration (-1ns)", "warmup (-1ns)"}},
		{func(c *Config) { c.Finish, c.Lease = "never", -1 }, []string{`finish ("never")`, "lease (-1ns)"}},
		{func(c *Config) { c.Processes, c.Duration = 2, time.Hour }, []string{"processes are for hot, not for waiters", "duration (1h0m0s) must be at most 10m0s", "Config.Process"}},
		{func(c *Config) { c.Processes = -1 }, []string{"processes (-1)"}},
		{func(c *Config) { c.Processes = 1001 }, []string{"processes (1001) must be within 1 and 1000"}},
	} {
		cfg := quick(Waiters)
		c.change(&cfg)
		_, err := Run(t.Context(), cfg)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", c.faults, err)
			continue
		}
		for _, fault := range c.faults {
			if !strings.Contains(err.Error(), fault) {
				t.Errorf("%v does not name %q", err, fault)
			}
		}
	}
	cfg := quick(Single)
	cfg.URL = "http://example.com"
	if _, err := Run(t.Context(), cfg); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestARunGoesOnThoughItsConnectionIsEnded(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	server := openServer(t, redis.URL())
	before, err := server.counts()
	if err != nil {
		t.Fatal(err)
	}
	redis.Do("CLIENT", "KILL", "TYPE", "normal")
	if after, err := server.counts(); err != nil || !after.known || after.commands != before.commands {
		t.Errorf("%d commands, %v", after.commands-before.commands, err)
	}
	redis.Do("CLIENT", "KILL", "TYPE", "normal")
	if left, err := server.leftovers(t.Context()); err != nil || left != (Leftovers{}) {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestCommandsOfOthersAreNotTakenForOurs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	cfg := quick(Uncontended)
	cfg.URL = redis.URL()
	if r := mustRun(t, cfg); r.SharedServer || r.CommandsPerPair == nil {
		t.Errorf("alone on the server: shared %v, commands %v", r.SharedServer, r.CommandsPerPair)
	}
	other := openServer(t, redis.URL()) // anybody's connection
	if r := mustRun(t, cfg); !r.SharedServer || r.CommandsPerPair != nil {
		t.Errorf("beside another client: shared %v, commands %v", r.SharedServer, r.CommandsPerPair)
	}
	// A busy server takes a moment to notice that connections were closed.
	for start := cputime.Now(); ; time.Sleep(10 * time.Millisecond) { // a poll
		other.shared = false
		if other.lookForOthers(); !other.shared {
			break
		}
		if start.Elapsed() > 20*time.Second {
			t.Fatal("a run that has ended is still taken for a client")
		}
	}
}

// With very many channels the server cannot be asked for their names; it says how many
// there are, and once they are few they are looked at.
func TestTooManyChannelsAreCountedAndNotListed(t *testing.T) {
	t.Parallel()
	node := fakenode.New(t)
	node.On(fakenode.Is("PUBSUB"), fakenode.Error("ERR the answer would be too long"))
	node.On(fakenode.Is("INFO", "stats"), fakenode.Bulk("# Stats\r\npubsub_channels:0\r\n"))
	node.OnNext(2, fakenode.Is("INFO", "stats"), fakenode.Bulk("# Stats\r\npubsub_channels:300000\r\n"))
	node.On(fakenode.Is("SCAN"), fakenode.Raw("*2\r\n$1\r\n0\r\n*0\r\n"))
	server := openServer(t, "redis://"+node.Addr())
	if n, err := server.tooMany(); n != 300_000 || err != nil {
		t.Errorf("%d channels, %v", n, err)
	}
	var r Result
	if err := server.conclude(t.Context(), &r); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Leftovers.Unknown, "too long") || r.Err() == nil {
		t.Errorf("a list that the server refuses: %+v, %v", r.Leftovers, r.Err())
	}
}
