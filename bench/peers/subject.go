package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/engine"
)

// opener opens a client, which is called name, for the scenarios without contention.
type opener func(ctx context.Context, name, url string) (bench.Client, error)

// subject is a client that can be measured.
type subject struct {
	name  string
	about string
	// open is for the scenarios without contention, contend for hot; nil: it takes no part.
	open    opener
	contend func(ctx context.Context, url string) (locker, error)
	// polls: its waiters try again and again.
	polls bool
	// plain are commands that it sends beside script calls, and that none of its scripts calls.
	plain []string
	// single: it takes part in that scenario only.
	single bool
}

func (s subject) in(scenario string) bool {
	switch scenario {
	case bench.Hot:
		return s.contend != nil
	case bench.Uncontended:
		return s.open != nil && !s.single
	}
	return s.open != nil
}

var subjects = inBackground([]subject{
	{name: "pawl", about: "its defaults", open: openPawl, contend: contendPawl(0)},
	{name: "rueidis", about: "its defaults, EVALSHA of Pawl's scripts", open: openRueidis("", func(*rueidis.ClientOption) {})},
	{name: "rueidis-tuned", about: "one connection, always pipelined, flushed after 20 us", open: openRueidis("", tuned)},
	{name: "rueidis-flowbuffer", about: "its defaults, with the queue flowbuffer", open: openRueidis("flowbuffer", func(*rueidis.ClientOption) {})},
	{name: "goredis", about: "64 connections, EVALSHA of Pawl's scripts", open: openGoRedisIn(pooled)},
	{name: "goredis-autopipeline", about: "AutoPipeline with its defaults", open: openGoRedisIn(autoPipeline)},
	{name: "goredis-fullduplex", about: "AutoPipeline with FullDuplex", open: openGoRedisIn(fullDuplex)},
	{name: "pawl-no-hand-over", about: "HandOver -1: every turn at the server", contend: contendPawl(-1)},
	{name: "rueidislock", about: "KeyMajority 1, NoLoopTracking", contend: contendRueidis},
	{name: "redislock", about: "go-redis, 64 connections, a retry every 1 ms", contend: contendRedislock, polls: true},
	{name: "redsync", about: "go-redis, 64 connections, a retry every 1 ms", contend: contendRedsync, polls: true, plain: []string{"set"}},
})

// inBackground adds to each client without contention one for the scenario single, whose calls have
// contexts that cannot be cancelled.
func inBackground(list []subject) []subject {
	for _, s := range list {
		if s.open == nil {
			continue
		}
		open := s.open
		s.name, s.about, s.single, s.contend = s.name+withoutCancel, s.about+", with context.Background()", true, nil
		s.open = func(ctx context.Context, name, url string) (bench.Client, error) {
			client, err := open(ctx, strings.TrimSuffix(name, withoutCancel), url)
			return background{client}, err
		}
		list = append(list, s)
	}
	return list
}

// tuned is the best that was found for many goroutines: all share one pipeline, as
// they do in Pawl, and a write waits a moment for company.
func tuned(opt *rueidis.ClientOption) {
	opt.DisableCache = true
	opt.AlwaysPipelining = true
	opt.PipelineMultiplex = -1 // 2 to the power of 0
	opt.MaxFlushDelay = 20 * time.Microsecond
}

func openPawl(ctx context.Context, _, url string) (bench.Client, error) {
	cfg, err := engine.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return bench.OpenPawl(ctx, cfg)
}

func subjectNames(scenario string) []string {
	var names []string
	for _, s := range subjects {
		if s.in(scenario) {
			names = append(names, s.name)
		}
	}
	return names
}

// subjectsOf finds the subjects of a list of names; an empty one is all of the scenario.
func subjectsOf(scenario, list string) ([]subject, error) {
	var chosen []subject
	if list == "" {
		list = strings.Join(subjectNames(scenario), ",")
	}
	for name := range strings.SplitSeq(list, ",") {
		found := false
		for _, s := range subjects {
			if s.name == name && s.in(scenario) {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no client %q in %s: there are %s", name, scenario, strings.Join(subjectNames(scenario), ", "))
		}
	}
	return chosen, nil
}
