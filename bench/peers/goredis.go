package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-lock/pawl/bench"
)

// The ways in which go-redis sends commands.
const (
	pooled       = iota // each command has a connection for itself
	autoPipeline        // commands of several goroutines share a pipeline, one batch at a time
	fullDuplex          // the same, and the next batch does not wait for the answers of the last one
)

// goredisCaller calls scripts over a client or over its pipeliner.
type goredisCaller struct {
	*redis.Client
	commands redis.Scripter
}

func openGoRedisIn(way int) opener {
	return func(ctx context.Context, name, url string) (bench.Client, error) {
		client, err := openGoRedis(url)
		if err != nil {
			return nil, err
		}
		c := goredisCaller{client, client}
		switch way {
		case autoPipeline:
			c.commands, err = client.AutoPipeline()
		case fullDuplex:
			opt := redis.DefaultBlockingAutoPipelineOptions()
			opt.FullDuplex = true
			c.commands, err = client.AutoPipelineWithOptions(opt)
		}
		if err != nil {
			return nil, err
		}
		return openScripted(ctx, name, c)
	}
}

func (c goredisCaller) load(ctx context.Context, script string) (string, error) {
	return c.ScriptLoad(ctx, script).Result()
}

func (c goredisCaller) call(ctx context.Context, sha, key string, args ...string) (int64, error) {
	words := make([]any, len(args))
	for i, arg := range args {
		words[i] = arg
	}
	return c.commands.EvalSha(ctx, sha, []string{key}, words...).Int64()
}

func openGoRedis(url string) (*redis.Client, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opt.PoolSize = connections
	return redis.NewClient(opt), nil
}
