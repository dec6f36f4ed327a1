package handshake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Connections that are made together are refused together: that is one refusal, and no
// reason to think that the password has been wrong for long.
func TestAuthBackoff_RefusalsAtATime_CountOnce(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	r := NewAuthBackoff(fake, nil)
	wrong := wire.NewServerError([]byte("WRONGPASS no"))
	began := fake.Now()
	for p := range Probing {
		if err := r.Check("a:1", p, 1); err != nil {
			t.Fatal(err)
		}
		fake.Advance(time.Millisecond)
	}
	for p := range Probing {
		r.Note("a:1", p, 1, began, wrong)
	}
	if r.Check("a:1", Commands, 1) != wrong || r.Check("b:1", Commands, 1) != nil {
		t.Error("it does not stand, or for others, too")
	}
	fake.Advance(minPause)
	if err := r.Check("a:1", Commands, 1); err != nil {
		t.Error("five refusals at a time are counted as five")
	}
	r.Note("a:1", Commands, 1, fake.Now(), wrong)
	fake.Advance(minPause - 1)
	if r.Check("a:1", Commands, 1) == nil {
		t.Error("the second pause is no longer than the first")
	}
	r.Note("a:1", Commands, 1, fake.Now(), errors.New("connection refused"))
	if err := r.Check("a:1", Commands, 1); err != nil {
		t.Error("a server that was restarted may have another password")
	}
}

// A wrong password is wrong for all connections to a server; what the user may not do is
// another matter for each kind of them.
func TestAuthBackoff_Refusal_CountsForThoseItConcerns(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	r := NewAuthBackoff(fake, nil)
	wrong, forbidden := wire.NewServerError([]byte("WRONGPASS no")), wire.NewServerError([]byte("NOPERM no"))
	r.Note("a:1", Commands, 1, fake.Now(), wrong)
	if r.Check("a:1", Messages, 1) != wrong {
		t.Error("the same password is tried by the next connection")
	}
	r.Note("a:1", Commands, 1, fake.Now(), forbidden)
	if r.Check("a:1", Commands, 1) != forbidden || r.Check("a:1", Messages, 1) != nil {
		t.Error("a password that is right, for a user who may not do everything")
	}
	r.Note("a:1", Messages, 1, fake.Now(), nil)
	if r.Check("a:1", Commands, 1) != forbidden {
		t.Error("the lane's commands are forbidden still")
	}
	r.Note("a:1", Renewals, 1, fake.Now(), wrong)
	r.Note("a:1", Messages, 1, fake.Now(), nil)
	if r.Check("a:1", Renewals, 1) != nil {
		t.Error("one connection got through, and the others go on waiting")
	}
}

// A connection that was not needed any more when the server refused it, or before, does
// not make the server look like one that has changed its mind.
func TestConnect_Cancelled_LeavesTheRefusalAsItIs(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{Addr: "a:1", DialTimeout: 5 * time.Second, Clock: fake, AuthBackoff: NewAuthBackoff(fake, nil), Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		return nil, ctx.Err()
	}}
	wrong := wire.NewServerError([]byte("WRONGPASS no"))
	none := CredentialsOf("", "")
	cfg.AuthBackoff.Note("a:1", Commands, none, fake.Now(), wrong)
	fake.Advance(minPause)
	if _, err := cfg.Connect(ctx, Probing); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cfg.AuthBackoff.Note("a:1", Commands, none, fake.Now(), wrong)
	fake.Advance(minPause - 1)
	if cfg.AuthBackoff.Check("a:1", Commands, none) == nil {
		t.Error("the pause begins small again")
	}
}

// nosyError looks around while it is looked at.
type nosyError struct{ look func() }

func (*nosyError) Error() string { return "no way through" }
func (e *nosyError) As(any) bool { e.look(); return false }

// An error of a Dialer may have methods of its own, which take their time: other
// connections do not wait for them.
func TestAuthBackoff_DialerError_IsReadWithoutALock(t *testing.T) {
	t.Parallel()
	r := NewAuthBackoff(clock.NewFake(), nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Note("a:1", Commands, 1, 1, &nosyError{look: func() { r.Check("b:1", Commands, 1) }})
	}()
	sockettest.Receive(t, done, "the end of note")
}

// Tokens rotate, and the source of them may be behind more than once: a pause belongs to what was
// refused, and the source is asked for more once a second.
func TestAuthBackoff_CredentialsChangeTwiceDuringAPause_AreTriedAtOnce(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	r := NewAuthBackoff(fake, nil)
	wrong := wire.NewServerError([]byte("WRONGPASS no"))
	const old, late, fresh = 1, 2, 3
	for range 8 { // so the pauses are long
		r.Note("a:1", Commands, old, fake.Now(), wrong)
		fake.Advance(MaxPause)
	}
	r.Note("a:1", Commands, old, fake.Now(), wrong)
	for _, next := range []Credentials{late, fresh} {
		fake.Advance(askEvery - 1)
		if r.Ask("a:1", Renewals) == nil {
			t.Error("the source is asked again within a second")
		}
		fake.Advance(1)
		if err := r.Ask("a:1", Renewals); err != nil {
			t.Errorf("the source is not asked after a second: %v", err)
		}
		if r.Ask("a:1", Messages) == nil {
			t.Error("another connection asks in the same second")
		}
		if next == late && r.Check("a:1", Renewals, old) == nil {
			t.Error("the old credentials do not pause any more")
		}
		if err := r.Check("a:1", Renewals, next); err != nil {
			t.Errorf("other credentials pause, too: %v", err)
		}
		if next == late {
			r.Note("a:1", Renewals, next, fake.Now(), wrong)
			if r.Check("a:1", Renewals, late) == nil || r.Ask("a:1", Renewals) == nil {
				t.Error("a refusal of the next credentials is not one")
			}
		}
	}
	r.Note("a:1", Renewals, fresh, fake.Now(), nil)
	if r.Ask("a:1", Messages) != nil || r.Check("a:1", Messages, fresh) != nil {
		t.Error("one connection got through, and the others go on waiting")
	}
}

// While holds wait for renewal a long pause is cut short, also one that has begun before; so is
// that between two questions for credentials. It may be the user's rights that come late.
func TestAuthBackoff_Limit_CutsPausesShortThatHaveBegun(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"WRONGPASS no", "NOPERM this user has no permissions to run the 'script' command"} {
		fake := clock.NewFake()
		limit := time.Duration(0)
		r := NewAuthBackoff(fake, func() time.Duration { return limit })
		wrong := wire.NewServerError([]byte(refusal))
		for range 8 {
			r.Note("a:1", Renewals, 1, fake.Now(), wrong)
			fake.Advance(MaxPause)
		}
		r.Note("a:1", Renewals, 1, fake.Now(), wrong)
		fake.Advance(100 * time.Millisecond)
		if r.Ask("a:1", Renewals) == nil || r.Check("a:1", Renewals, 1) == nil {
			t.Errorf("%s: there is no pause", refusal)
		}
		limit = 100 * time.Millisecond
		if err := errors.Join(r.Ask("a:1", Renewals), r.Check("a:1", Renewals, 1)); err != nil {
			t.Errorf("%s: the limit cuts nothing short: %v", refusal, err)
		}
		r.Note("a:1", Renewals, 1, fake.Now(), wrong)
		fake.Advance(limit - 1)
		if r.Check("a:1", Renewals, 1) == nil {
			t.Errorf("%s: the pause is shorter than the limit", refusal)
		}
	}
}

// A source that fails says nothing of the server: the refusal stands, and it is asked once a
// second as before.
func TestConnect_CredentialsFail_LeavesTheRefusalAsItIs(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	asked := 0
	cfg := Config{Addr: "a:1", DialTimeout: 5 * time.Second, Clock: fake, AuthBackoff: NewAuthBackoff(fake, nil),
		Credentials: func(context.Context) (string, string, error) { asked++; return "", "", errors.New("vault is sealed") }}
	cfg.AuthBackoff.Note("a:1", Commands, 1, fake.Now(), wire.NewServerError([]byte("WRONGPASS no")))
	for range 50 { // in five seconds
		fake.Advance(100 * time.Millisecond)
		if _, err := cfg.Connect(t.Context(), Renewals); err == nil {
			t.Fatal("connected")
		}
	}
	if asked != 5 {
		t.Errorf("asked %d times in 5 s", asked)
	}
}

// A password for a server that has none is nobody's lock-out: it is reported at once, and costs no
// pause.
func TestLasting_RefusalsOfCredentials_AreReportedAtOnce(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ unauthorized, lasting bool }{
		"WRONGPASS invalid username-password pair or user is disabled.":   {true, true},
		"NOAUTH Authentication required.":                                 {true, true},
		"NOPERM this user has no permissions to run the 'select' command": {true, true},
		"ERR invalid password":                                            {true, true},
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?": {false, true},
		"ERR Client sent AUTH, but no password is set":   {false, true},
		"DENIED Redis is running in protected mode":      {false, true},
		"ERR DB index is out of range":                   {false, true},
		"LOADING Redis is loading the dataset in memory": {false, false},
		"ERR max number of clients reached":              {false, false},
		"upstream failure":                               {false, false},
	} {
		err := fmt.Errorf("resp: handshake: %w", wire.NewServerError([]byte(line)))
		if Unauthorized(err) != want.unauthorized || Lasting(err) != want.lasting {
			t.Errorf("%s: refused for its credentials: %v, lasting: %v", line, Unauthorized(err), Lasting(err))
		}
	}
	if Unauthorized(errors.New("WRONGPASS")) {
		t.Error("an error that no server gave")
	}
}
