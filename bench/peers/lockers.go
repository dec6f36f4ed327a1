package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/engine"
)

// How the clients that poll are set: a retry a millisecond, far more often than by default, and a
// connection for each of 64 goroutines, so that nobody waits for one.
const (
	retryEvery  = time.Millisecond
	connections = 64
	expiry      = 30 * time.Second // Pawl's lease
)

type pawlLocker struct{ eng *engine.Engine }

// contendPawl opens an engine; handOver is as in engine.Config.
func contendPawl(handOver time.Duration) func(context.Context, string) (locker, error) {
	return func(ctx context.Context, url string) (locker, error) {
		cfg, err := engine.ParseURL(url)
		if err != nil {
			return nil, err
		}
		cfg.HandOverTime = handOver
		eng, err := engine.New(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return pawlLocker{eng}, nil
	}
}

func (p pawlLocker) Close() error { return p.eng.Close() }

func (p pawlLocker) For(name string) func(context.Context) (func(context.Context) error, error) {
	m := p.eng.Mutex(name)
	return func(ctx context.Context) (func(context.Context) error, error) {
		h, err := m.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}
}

type redislockLocker struct{ *redis.Client }

func contendRedislock(_ context.Context, url string) (locker, error) {
	client, err := openGoRedis(url)
	return redislockLocker{client}, err
}

func (r redislockLocker) For(name string) func(context.Context) (func(context.Context) error, error) {
	client := redislock.New(r.Client)
	opt := &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryEvery)}
	return func(ctx context.Context) (func(context.Context) error, error) {
		lock, err := client.Obtain(ctx, name, expiry, opt)
		if err != nil {
			return nil, err
		}
		return lock.Release, nil
	}
}

type redsyncLocker struct {
	*redis.Client
	rs *redsync.Redsync
}

func contendRedsync(_ context.Context, url string) (locker, error) {
	client, err := openGoRedis(url)
	if err != nil {
		return nil, err
	}
	return redsyncLocker{client, redsync.New(goredis.NewPool(client))}, nil
}

func (r redsyncLocker) For(name string) func(context.Context) (func(context.Context) error, error) {
	const forever = 1 << 30
	m := r.rs.NewMutex(name, redsync.WithExpiry(expiry), redsync.WithTries(forever), redsync.WithRetryDelay(retryEvery))
	return func(ctx context.Context) (func(context.Context) error, error) {
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if ok, err := m.UnlockContext(ctx); !ok {
				return errors.Join(errors.New("redsync: not released"), err)
			}
			return nil
		}, nil
	}
}
