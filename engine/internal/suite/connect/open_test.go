package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestNew_WrongPassword_FailsAtOnceWithoutSayingIt(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t, redistest.Password("open sesame"))
	for what, url := range map[string]string{
		"wrong": "redis://:hunter2hunter2@" + s.Addr(), "none": "redis://" + s.Addr(),
		"user": "redis://nobody:hunter2hunter2@" + s.Addr(),
	} {
		start := cputime.Now()
		_, err := engine.Open(testkit.Ctx(t), url)
		if !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
		if testkit.HasText(err, "hunter2") {
			t.Errorf("%s: the password is told: %v", what, err)
		}
		if d := start.Elapsed(); d > 5*time.Second {
			t.Errorf("%s: told after %v", what, d)
		}
	}
}

// nobody returns addresses at which connections are refused.
func nobody(t *testing.T, n int) (addrs []string) {
	for range n {
		node := fakenode.New(t)
		node.Down()
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// Open waits for nobody to start a server. The test has no other limit than its own.
func TestNew_NobodyListens_Fails(t *testing.T) {
	t.Parallel()
	for form, n := range map[string]int{
		"redis://%s": 1, "redis://%s?command_conns=3": 1, "redis+cluster://%s": 3, "redis+sentinel://%s/mymaster": 3, "redis+replicas://%s": 2,
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			addrs := nobody(t, n)
			start := cputime.Now()
			_, err := engine.Open(context.Background(), fmt.Sprintf(form, strings.Join(addrs, ",")))
			if !errors.Is(err, engine.ErrUnavailable) || !testkit.HasText(err, "connection refused") || strings.Contains(err.Error(), "\n") {
				t.Fatalf("Open: %v", err)
			}
			for _, addr := range addrs { // a round is all of them
				if !testkit.HasText(err, addr) {
					t.Errorf("%s is not named: %v", addr, err)
				}
			}
			if d := start.Elapsed(); d > 4*time.Second { // DialTimeout is 5 s
				t.Errorf("it took %v", d)
			}
		})
	}
}

// Of several addresses one that answers is enough.
func TestNew_OneAddressAnswers_IsEnough(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t)
	_, after, _ := strings.Cut(r.URL(), "://")
	e := testkit.Open(t, "redis+sentinel://"+strings.Join(nobody(t, 2), ",")+","+after)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
}

// A server that is loading its data will do in a moment: Open waits for it, for
// DialTimeout.
func TestNew_ServerLoads_IsWaitedFor(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	loading := n.On(fakenode.Is("PING"), fakenode.Error(fakenode.Loading))
	opened := make(chan error, 1)
	go func() {
		e, err := engine.Open(context.Background(), "redis://"+n.Addr()+"?dial_timeout=20s")
		if err == nil {
			err = e.Close()
		}
		opened <- err
	}()
	n.WaitFor(6, fakenode.Is("PING")) // three connections have been refused
	select {
	case err := <-opened:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	loading.Remove()
	if err := testkit.Receive(t, opened); err != nil {
		t.Error(err)
	}
}

func TestNew_ServerLoadsForEver_GivesUp(t *testing.T) {
	t.Parallel()
	loading := fakenode.New(t)
	loading.On(fakenode.Is("PING"), fakenode.Error(fakenode.Loading))
	undecided := fakenode.New(t)
	undecided.On(fakenode.Is("INFO", "replication"), fakenode.Raw("$10\r\nrole:slave\r\n"))
	for url, text := range map[string]string{
		"redis://" + loading.Addr():            "LOADING",
		"redis+replicas://" + undecided.Addr(): "no primary",
	} {
		_, err := engine.Open(context.Background(), url+"?dial_timeout=1500ms")
		if !errors.Is(err, engine.ErrUnavailable) || !testkit.HasText(err, text) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Several addresses without a word on what they are together are refused with an explanation.
// A URL or a password that stands in an address is not in the error.
func TestNew_AddressThatIsNone_IsExplained(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://a:1,b:2", "redis://:hunter2@a,b:2/3", "rediss://a:1,b", "redis://[::1]:1,[::2]:2?db=1"} {
		_, err := engine.ParseURL(url)
		if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "redis+cluster://") || testkit.HasText(err, "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, addr := range []string{"redis://:hunter2@h:1", "ada:hunter2@h:1", "hunter2@h:1", "a,b:1", "a:1,b:2"} {
		_, err := engine.New(context.Background(), engine.Config{Addrs: []string{addr}})
		if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "must be host:port") || testkit.HasText(err, "hunter2") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
