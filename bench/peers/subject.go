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

// subject is a client that can be measured.
type subject struct {
	name  string
	about string
	open  func(ctx context.Context, url string) (bench.Client, error)
}

var subjects = []subject{
	{"pawl", "its defaults", openPawl},
	{"rueidis", "its defaults, EVALSHA of Pawl's scripts", func(ctx context.Context, url string) (bench.Client, error) {
		return openRueidis(ctx, "rueidis", url, func(*rueidis.ClientOption) {})
	}},
	{"rueidis-tuned", "one connection, always pipelined, flushed after 20 us", func(ctx context.Context, url string) (bench.Client, error) {
		return openRueidis(ctx, "rueidis-tuned", url, tuned)
	}},
}

// tuned is the best that was found for many goroutines: all share one pipeline, as
// they do in Pawl, and a write waits a moment for company.
func tuned(opt *rueidis.ClientOption) {
	opt.DisableCache = true
	opt.AlwaysPipelining = true
	opt.PipelineMultiplex = -1 // 2 to the power of 0
	opt.MaxFlushDelay = 20 * time.Microsecond
}

func openPawl(ctx context.Context, url string) (bench.Client, error) {
	cfg, err := engine.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return bench.OpenPawl(ctx, cfg)
}

func subjectNames() []string {
	var names []string
	for _, s := range subjects {
		names = append(names, s.name)
	}
	return names
}

// subjectsOf finds the subjects of a list of names.
func subjectsOf(list string) ([]subject, error) {
	var chosen []subject
	for name := range strings.SplitSeq(list, ",") {
		found := false
		for _, s := range subjects {
			if s.name == name {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no client %q: there are %s", name, strings.Join(subjectNames(), ", "))
		}
	}
	return chosen, nil
}
