package main

import (
	"context"
	_ "unsafe" // for go:linkname

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/pawl-lock/pawl/bench"
)

type rueidisCaller struct{ rueidis.Client }

// openRueidis returns an opener of rueidis with that queue: "" is its ring, "flowbuffer" the other.
func openRueidis(queue string, tune func(*rueidis.ClientOption)) opener {
	return func(ctx context.Context, name, url string) (bench.Client, error) {
		opt, err := rueidis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		tune(&opt)
		useQueue(queue)
		client, err := rueidis.NewClient(opt)
		if err != nil {
			return nil, err
		}
		return openScripted(ctx, name, rueidisCaller{client})
	}
}

// rueidisQueue is what rueidis has read from $RUEIDIS_QUEUE_TYPE when the process began, and uses for
// each new connection. In one process it cannot be set for one client alone, so it is set for a turn.
//
//go:linkname rueidisQueue github.com/redis/rueidis.queueTypeFromEnv
var rueidisQueue string

// useQueue writes only what differs: turns with the same queue may run at the same time, each
// with connections of rueidis that read it.
func useQueue(queue string) {
	if rueidisQueue != queue {
		rueidisQueue = queue
	}
}

func (r rueidisCaller) Close() error {
	r.Client.Close()
	return nil
}

func (r rueidisCaller) load(ctx context.Context, script string) (string, error) {
	return r.Do(ctx, r.B().ScriptLoad().Script(script).Build()).ToString()
}

func (r rueidisCaller) call(ctx context.Context, sha, key string, args ...string) (int64, error) {
	return r.Do(ctx, r.B().Evalsha().Sha1(sha).Numkeys(1).Key(key).Arg(args...).Build()).AsInt64()
}

type rueidisLocker struct{ rueidislock.Locker }

func contendRueidis(_ context.Context, url string) (locker, error) {
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	useQueue("")
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: opt, KeyMajority: 1, NoLoopTracking: true})
	if err != nil {
		return nil, err
	}
	return rueidisLocker{l}, nil
}

func (r rueidisLocker) Close() error {
	r.Locker.Close()
	return nil
}

func (r rueidisLocker) For(name string) func(context.Context) (func(context.Context) error, error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		held, release, err := r.WithContext(ctx, name)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error {
			err := held.Err() // not nil: it was lost meanwhile
			release()
			return err
		}, nil
	}
}
