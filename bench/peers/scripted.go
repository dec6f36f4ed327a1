package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

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

// caller is a client of another library, which can call scripts.
type caller interface {
	load(ctx context.Context, script string) (sha string, err error)
	// call calls a script with one key and two or three arguments.
	call(ctx context.Context, sha, key string, args ...string) (int64, error)
	Close() error
}

// scripted locks with Pawl's scripts over another library, as a bench.Client.
type scripted struct {
	caller
	name             string
	acquire, release string // SHA1 of the scripts
	owner            string // this process, as in the owner of a lock
	lastID           atomic.Int64
}

func openScripted(ctx context.Context, name string, c caller) (_ bench.Client, err error) {
	s := &scripted{caller: c, name: name, owner: newOwner()}
	// rueidis writes on the caller's goroutine until a call can be cancelled, and from then on never again.
	ctx = context.WithoutCancel(ctx)
	for text, sha := range map[string]*string{luaAcquire: &s.acquire, luaAnnounce + luaRelease: &s.release} {
		if *sha, err = c.load(ctx, text); err != nil {
			return nil, errors.Join(fmt.Errorf("SCRIPT LOAD: %w", err), c.Close())
		}
	}
	return s, nil
}

func newOwner() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (s *scripted) Name() string { return s.name }

// Worker returns what locks and unlocks name once.
func (s *scripted) Worker(name string) func(ctx context.Context) error {
	channel := "redisson_lock__channel:{" + name + "}"
	return func(ctx context.Context) error {
		// A fresh id for each acquisition, as the engine has it.
		owner := s.owner + ":" + strconv.FormatInt(s.lastID.Add(1), 10)
		code, err := s.call(ctx, s.acquire, name, leaseMs, owner)
		if err != nil {
			return err
		}
		if code != granted {
			return fmt.Errorf("lock of %s answered %d", name, code)
		}
		code, err = s.call(ctx, s.release, name, owner, channel, "PUBLISH")
		if err != nil {
			return err
		}
		if code != released {
			return fmt.Errorf("unlock of %s answered %d", name, code)
		}
		return nil
	}
}

// background is a client whose workers pass no context that can be cancelled: some libraries
// have a shorter way for that. Workers that are stuck are left to themselves.
type background struct{ bench.Client }

func (b background) Name() string { return b.Client.Name() + withoutCancel }

func (b background) Worker(name string) func(context.Context) error {
	pair := b.Client.Worker(name)
	return func(context.Context) error { return pair(context.Background()) }
}

// withoutCancel ends the names of subjects that are measured in that way.
const withoutCancel = "-background"
