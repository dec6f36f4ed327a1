package greet

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
func TestRefusalsAtATimeCountOnce(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	r := NewRefusals(fake)
	wrong := wire.NewServerError([]byte("WRONGPASS no"))
	began := fake.Now()
	for p := range Scouting {
		if err := r.Check("a:1", p); err != nil {
			t.Fatal(err)
		}
		fake.Advance(time.Millisecond)
	}
	for p := range Scouting {
		r.Note("a:1", p, began, wrong)
	}
	if r.Check("a:1", Commands) != wrong || r.Check("b:1", Commands) != nil {
		t.Error("it does not stand, or for others, too")
	}
	fake.Advance(minPause)
	if err := r.Check("a:1", Commands); err != nil {
		t.Error("five refusals at a time are counted as five")
	}
	r.Note("a:1", Commands, fake.Now(), wrong)
	fake.Advance(minPause - 1)
	if r.Check("a:1", Commands) == nil {
		t.Error("the second pause is no longer than the first")
	}
	r.Note("a:1", Commands, fake.Now(), errors.New("connection refused"))
	if err := r.Check("a:1", Commands); err != nil {
		t.Error("a server that was restarted may have another password")
	}
}

// A wrong password is wrong for all connections to a server; what the user may not do is
// another matter for each kind of them.
func TestRefusalStandsForThoseThatItConcerns(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	r := NewRefusals(fake)
	wrong, forbidden := wire.NewServerError([]byte("WRONGPASS no")), wire.NewServerError([]byte("NOPERM no"))
	r.Note("a:1", Commands, fake.Now(), wrong)
	if r.Check("a:1", Messages) != wrong {
		t.Error("the same password is tried by the next connection")
	}
	r.Note("a:1", Commands, fake.Now(), forbidden)
	if r.Check("a:1", Commands) != forbidden || r.Check("a:1", Messages) != nil {
		t.Error("a password that is right, for a user who may not do everything")
	}
	r.Note("a:1", Messages, fake.Now(), nil)
	if r.Check("a:1", Commands) != forbidden {
		t.Error("the lane's commands are forbidden still")
	}
	r.Note("a:1", Renewals, fake.Now(), wrong)
	r.Note("a:1", Messages, fake.Now(), nil)
	if r.Check("a:1", Renewals) != nil {
		t.Error("one connection got through, and the others go on waiting")
	}
}

// A connection that was not needed any more when the server refused it, or before, does
// not make the server look like one that has changed its mind.
func TestAttemptThatIsCalledOffLeavesTheRefusalAsItIs(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{Addr: "a:1", DialTimeout: 5 * time.Second, Clock: fake, Refusals: NewRefusals(fake), Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		return nil, ctx.Err()
	}}
	wrong := wire.NewServerError([]byte("WRONGPASS no"))
	cfg.Refusals.Note("a:1", Commands, fake.Now(), wrong)
	fake.Advance(minPause)
	if _, err := cfg.Connect(ctx, Scouting); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cfg.Refusals.Note("a:1", Commands, fake.Now(), wrong)
	fake.Advance(minPause - 1)
	if cfg.Refusals.Check("a:1", Commands) == nil {
		t.Error("the pause begins small again")
	}
}

// nosyError looks around while it is looked at.
type nosyError struct{ look func() }

func (*nosyError) Error() string { return "no way through" }
func (e *nosyError) As(any) bool { e.look(); return false }

// An error of a Dialer may have methods of its own, which take their time: other
// connections do not wait for them.
func TestErrorOfADialerIsLookedAtWithoutALock(t *testing.T) {
	t.Parallel()
	r := NewRefusals(clock.NewFake())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Note("a:1", Commands, 1, &nosyError{look: func() { r.Check("b:1", Commands) }})
	}()
	sockettest.Receive(t, done, "the end of note")
}

// A password for a server that has none is nobody's lock-out: it is reported at once, and costs no
// pause.
func TestLasting_RefusalsOfCredentials_AreToldAtOnce(t *testing.T) {
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
