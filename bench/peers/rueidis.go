package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/pawl-lock/pawl/bench"
)

// The scripts are copies of the engine's; a test of Pawl keeps them equal. The
// peer does the same work on the server, only the client differs.
var (
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/announce.lua
	luaAnnounce string
	//go:embed lua/release.lua
	luaRelease string
)

// The replies of the scripts that mean success, and the lease that they carry.
const (
	granted  = -2
	released = 1
	leaseMs  = "30000"
)

// rueidisClient calls the scripts with bare EVALSHA commands.
type rueidisClient struct {
	name             string
	client           rueidis.Client
	acquire, release string // SHA1 of the scripts
	owner            string // this process, as in the owner of a lock
	lastID           atomic.Int64
}

func openRueidis(ctx context.Context, name, url string, tune func(*rueidis.ClientOption)) (bench.Client, error) {
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	tune(&opt)
	client, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, err
	}
	s := &rueidisClient{name: name, client: client, owner: newOwner()}
	for text, sha := range map[string]*string{luaAcquire: &s.acquire, luaAnnounce + luaRelease: &s.release} {
		*sha, err = client.Do(ctx, client.B().ScriptLoad().Script(text).Build()).ToString()
		if err != nil {
			client.Close()
			return nil, fmt.Errorf("SCRIPT LOAD: %w", err)
		}
	}
	return s, nil
}

func newOwner() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (s *rueidisClient) Name() string { return s.name }

func (s *rueidisClient) Close() error {
	s.client.Close()
	return nil
}

// Worker returns what locks and unlocks name once.
func (s *rueidisClient) Worker(name string) func(ctx context.Context) error {
	b := s.client.B
	channel := "redisson_lock__channel:{" + name + "}"
	return func(ctx context.Context) error {
		// A fresh id for each acquisition, as the engine has it.
		owner := s.owner + ":" + strconv.FormatInt(s.lastID.Add(1), 10)
		code, err := s.client.Do(ctx, b().Evalsha().Sha1(s.acquire).Numkeys(1).Key(name).
			Arg(leaseMs, owner).Build()).AsInt64()
		if err != nil {
			return err
		}
		if code != granted {
			return fmt.Errorf("lock of %s answered %d", name, code)
		}
		code, err = s.client.Do(ctx, b().Evalsha().Sha1(s.release).Numkeys(1).Key(name).
			Arg(owner, channel, "PUBLISH").Build()).AsInt64()
		if err != nil {
			return err
		}
		if code != released {
			return fmt.Errorf("unlock of %s answered %d", name, code)
		}
		return nil
	}
}
