package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/fakenode"
)

// A release answered with garbage is not repeated as fast as the network goes.
func TestHold_ReleaseAnsweredWithGarbage_IsAnError(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("EVALSHA"), fakenode.Bulk("released, I think"))
	n.OnNext(1, fakenode.Is("EVALSHA"), fakenode.Int(-2))
	e := testkit.Open(t, "redis://"+n.Addr()+"?close_timeout=500ms")
	h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(2*time.Second))
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("Unlock: %v, want ErrOutcomeUnknown", err)
	}
	if n := len(n.Commands(fakenode.Is("EVALSHA"))); n > 100 {
		t.Errorf("the server was asked %d times", n)
	}
}

// What is not Redis at all, or says nothing, or hangs up.
func TestNew_NoRedisServer_IsExplained(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1" // a port that no other test may be given meanwhile
	hello := fakenode.New(t)
	hello.On(fakenode.Connect, fakenode.Raw("220 smtp.example.org ESMTP\r\n"))
	web := fakenode.New(t)
	web.On(fakenode.Any, fakenode.Raw("HTTP/1.1 400 Bad Request\r\n\r\n"))
	binary := fakenode.New(t)
	binary.On(fakenode.Any, fakenode.Raw("\x15\x03\x01\x00\x02\x02\x16"))
	closes := fakenode.New(t)
	closes.On(fakenode.Connect, fakenode.Close())
	hangsUp := fakenode.New(t)
	hangsUp.On(fakenode.Any, fakenode.Reset())
	silent := fakenode.New(t)
	silent.On(fakenode.Any, fakenode.Drop())
	for what, addr := range map[string]string{
		"nobody listens": nobody, "greets": hello.Addr(), "HTTP": web.Addr(), "binary": binary.Addr(),
		"closes": closes.Addr(), "resets": hangsUp.Addr(), "silent": silent.Addr(),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e, err := engine.Open(testkit.Within(t, 500*time.Millisecond), "redis://"+addr+"?dial_timeout=200ms")
			if !errors.Is(err, engine.ErrUnavailable) {
				t.Errorf("Open: %v, %v, want ErrUnavailable", e, err)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error is long: %v", err)
			}
		})
	}
}

// The server lets us in and then answers scripts with what no script says.
func TestLock_ScriptAnsweredWithGarbage_IsAnError(t *testing.T) {
	t.Parallel()
	for what, reply := range map[string]fakenode.Action{
		"a string": fakenode.Bulk("granted, I think"), "a list": fakenode.Raw("*2\r\n:-2\r\n:-2\r\n"),
		"nil": fakenode.Raw("$-1\r\n"), "no RESP": fakenode.Raw("granted\r\n"), "closed": fakenode.Close(),
		"half": fakenode.HalfThenReset(":-2\r\n"), "an unknown error": fakenode.Error("WAT is this"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			n.On(fakenode.Is("EVALSHA"), reply)
			e := testkit.Open(t, "redis://"+n.Addr()+"?close_timeout=500ms&command_timeout=500ms")
			_, err := e.Mutex("x").TryLock(testkit.Ctx(t))
			if !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, engine.ErrHeld) {
				t.Errorf("TryLock: %v", err)
			}
			if _, err := e.Mutex("y").State(testkit.Within(t, time.Second)); err == nil {
				t.Error("State made sense of it")
			}
			if _, err := e.Mutex("y").ForceUnlock(testkit.Within(t, time.Second)); err == nil {
				t.Error("ForceUnlock made sense of it")
			}
			if n := len(n.Commands(fakenode.Is("EVALSHA"))); n > 500 {
				t.Errorf("the server was asked %d times", n)
			}
		})
	}
}
