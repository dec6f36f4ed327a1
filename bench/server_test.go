package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestOnlyCommandsOfClientsAreCounted(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	server := openServer(t, redis.URL())
	before, counted, err := server.commands()
	if err != nil || !counted {
		t.Fatal(err)
	}
	for range 3 {
		redis.Do("EVAL", "for i = 1, 5 do redis.call('INCR', KEYS[1]) end return redis.call('PUBLISH', 'c', 'm')", "1", "n")
	}
	redis.Do("SUBSCRIBE", "c")
	redis.Do("GET", "n")
	after, _, err := server.commands()
	if err != nil || after-before != 4 {
		t.Errorf("%d commands, %v", after-before, err)
	}
}

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
		cfg.URL, cfg.Duration = url, 20*time.Millisecond
		if r := mustRun(t, cfg); r.Pairs == 0 {
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
		if r := mustRun(t, cfg); r.Server != "unknown" || r.Comparable || r.CommandsPerPair != nil || r.Pairs == 0 {
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
		{func(c *Config) { c.Duration, c.Warmup = 0, -1 }, []string{"duration (0s)", "warmup (-1ns)"}},
		{func(c *Config) { c.Finish, c.Lease = "never", -1 }, []string{`finish ("never")`, "lease (-1ns)"}},
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
