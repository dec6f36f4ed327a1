package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// The scripts are copies of the engine's; a test of Pawl keeps them equal. The
// peer does the same work on the server, only the client differs.
var (
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/release.lua
	luaRelease string
)

// The replies of the scripts that mean success, and the lease that they carry.
const (
	granted  = -2
	released = 1
	leaseMs  = "30000"
)

// rueidisSubject calls the scripts with bare EVALSHA commands.
type rueidisSubject struct {
	client           rueidis.Client
	acquire, release string // SHA1 of the scripts
	owner            string // this process, as in the owner of a lock
	lastID           atomic.Int64
}

func openRueidis(ctx context.Context, url string) (*rueidisSubject, error) {
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opt.DisableCache = true // client-side caching is not used, and older servers lack it
	client, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, err
	}
	s := &rueidisSubject{client: client, owner: newOwner()}
	for text, sha := range map[string]*string{luaAcquire: &s.acquire, luaRelease: &s.release} {
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

func (s *rueidisSubject) Name() string { return "rueidis" }
func (s *rueidisSubject) Close()       { s.client.Close() }

// Worker returns what locks and unlocks name once.
func (s *rueidisSubject) Worker(name string) func(ctx context.Context) error {
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

// Server names the server and its version.
func (s *rueidisSubject) Server(ctx context.Context) (string, error) {
	info, err := s.client.Do(ctx, s.client.B().Info().Section("server").Build()).ToString()
	if err != nil {
		return "", fmt.Errorf("INFO: %w", err)
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(line, "valkey_version:"); ok {
			return "valkey " + strings.TrimSpace(version), nil
		}
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return "redis " + strings.TrimSpace(version), nil
		}
	}
	return "unknown", nil
}

// Commands returns how many script calls the server has executed. What a script
// calls inside is no command of a client.
func (s *rueidisSubject) Commands(ctx context.Context) (int64, error) {
	info, err := s.client.Do(ctx, s.client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		return 0, fmt.Errorf("INFO: %w", err)
	}
	var sum int64
	for line := range strings.Lines(info) {
		for _, prefix := range []string{"cmdstat_evalsha:calls=", "cmdstat_eval:calls="} {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				calls, _, _ := strings.Cut(rest, ",")
				n, err := strconv.ParseInt(calls, 10, 64)
				if err != nil {
					return 0, fmt.Errorf("INFO commandstats: %q", line)
				}
				sum += n
			}
		}
	}
	return sum, nil
}
