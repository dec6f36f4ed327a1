package topology

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// operations is the page of the documentation that has the ACL rules.
func operations(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// documentedACL returns the words of the page's ACL SETUSER line.
func documentedACL(t *testing.T) []string {
	t.Helper()
	for line := range strings.Lines(operations(t)) {
		if strings.HasPrefix(line, "ACL SETUSER pawl ") {
			return strings.Fields(line)
		}
	}
	t.Fatal("docs/operations.md has no line that begins with: ACL SETUSER pawl")
	return nil
}

func TestTheDocumentedACLRuleIsEnoughAndNoMoreThanThat(t *testing.T) {
	t.Parallel()
	rule := documentedACL(t)
	for _, c := range []struct{ name, channels string }{
		{"every channel of locks", "&redisson_lock__channel:*"},
		{"channels of the prefix", "&redisson_lock__channel:{orders:*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			setUser(t, s, rule, c.channels)
			s.Do("CONFIG", "RESETSTAT")
			everyOperation(t, s, "redis://pawl:secret@"+s.Addr()+"?lease=6s")

			denied, _ := s.Do("ACL", "LOG").([]any)
			whole := s.Can(redistest.Subcommands) // else the server tells of commands only
			for _, entry := range denied {
				// There is CLIENT SETINFO, which may be refused.
				text := fmt.Sprint(entry) + " "
				if !strings.Contains(text, " object client|setinfo ") && (whole || !strings.Contains(text, " object client ")) {
					t.Errorf("the rule is too narrow, the server refused: %v", entry)
				}
			}
			used := s.CommandStats()
			for _, word := range rule {
				command, granted := strings.CutPrefix(word, "+")
				if !whole {
					command, _, _ = strings.Cut(command, "|")
				}
				if granted && used[command] == 0 {
					t.Errorf("the rule grants %s, which nothing used", command)
				}
			}
		})
	}
}

// setUser makes the documented user, with another rule for channels.
func setUser(t *testing.T, s *redistest.Server, rule []string, channels string) {
	t.Helper()
	words := []string{}
	for _, word := range rule {
		if strings.HasPrefix(word, "&") {
			word = channels
		}
		if word != "" {
			words = append(words, word)
		}
	}
	if got := s.Do(words...); got != "OK" {
		t.Fatalf("%s: %v", strings.Join(words, " "), got)
	}
}

// everyOperation does, as the user of the URL, all that the engine can.
func everyOperation(t *testing.T, s *redistest.Server, url string) {
	t.Helper()
	holder, waiter := testkit.Open(t, url), testkit.Open(t, url)
	ctx := testkit.Ctx(t)

	m := holder.Mutex("orders:1")
	h := testkit.MustLock(t, m)
	next := waiter.Mutex("orders:1").LockAsync(ctx)
	testkit.Eventually(t, "the waiter is subscribed", func() bool { return waiter.Stats().Channels == 1 })
	inner, err := m.Lock(h.Context(ctx))
	if err != nil {
		t.Fatalf("re-entry: %v", err)
	}
	testkit.MustUnlock(t, inner)
	testkit.Eventually(t, "the lock is renewed", func() bool { return holder.Stats().Renewed > 0 })
	if st, err := m.State(ctx); err != nil || !st.Mine {
		t.Errorf("State: %+v, %v", st, err)
	}
	testkit.MustUnlock(t, h)
	if h, err = next.Await(ctx); err != nil {
		t.Fatalf("the waiter: %v", err)
	}
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, testkit.MustLock(t, waiter.Mutex("orders:1"))) // it listens still

	testkit.MustUnlock(t, testkit.MustLock(t, holder.Mutex("orders:cron"), engine.MinHold(50*time.Millisecond)))

	h = testkit.MustLock(t, m, engine.Lease(30*time.Second))
	if err := h.Extend(ctx, time.Minute); err != nil {
		t.Errorf("Extend: %v", err)
	}
	if taken, err := waiter.Mutex("orders:1").ForceUnlock(ctx); !taken || err != nil {
		t.Errorf("ForceUnlock: %t, %v", taken, err)
	}

	s.Do("SCRIPT", "FLUSH") // the next call of each script is sent whole
	testkit.MustUnlock(t, testkit.MustLock(t, holder.Mutex("orders:2")))
	testkit.Eventually(t, "the waiter is unsubscribed", func() bool { return waiter.Stats().Channels == 0 })
}

func TestWithoutTheRightToTheChannelALockIsReleasedAndAWaiterLearnsWhatToDo(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	setUser(t, s, documentedACL(t), "")
	url := "redis://pawl:secret@" + s.Addr()
	holder, waiter := testkit.Open(t, url), testkit.Open(t, url)
	h := testkit.MustLock(t, holder.Mutex("orders:1"))
	_, err := waiter.Mutex("orders:1").Lock(testkit.Ctx(t))
	if !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "redisson_lock__channel:{orders:1}") {
		t.Errorf("Lock: %v, want one that names the channel", err)
	}
	testkit.MustUnlock(t, h) // nobody can be told, but free it is
	testkit.MustUnlock(t, testkit.MustLock(t, waiter.Mutex("orders:1")))
}

// logLines takes what a logger writes, a line at a time.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// The lock is free, whether its message was refused or not; nobody may be told the
// opposite.
func TestForceUnlockWithoutTheRightToTheChannelSaysThatTheLockIsFree(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	setUser(t, s, documentedACL(t), "")
	notified := make(logLines, 64)
	holder := testkit.Open(t, s.URL())
	e := testkit.Open(t, "redis://pawl:secret@"+s.Addr(), func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(notified, nil)) })
	testkit.MustLock(t, holder.Mutex("orders:1"))
	if was, err := e.Mutex("orders:1").ForceUnlock(testkit.Ctx(t)); !was || err != nil {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	if left := testkit.Fields(t, s, "orders:1"); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
	for !strings.Contains(testkit.Receive(t, notified), "may not publish") {
	}
}

// What the page adds for an RWMutex is enough for one.
func TestTheDocumentedACLRuleOfAnRWMutexIsEnough(t *testing.T) {
	t.Parallel()
	var more []string
	for line := range strings.Lines(operations(t)) {
		if text, ok := strings.CutPrefix(line, "- an `RWMutex`: `"); ok {
			more = strings.Fields(strings.TrimSuffix(strings.TrimSpace(text), "`"))
		}
	}
	s := testkit.Server(t)
	if words := append(documentedACL(t), more...); s.Do(words...) != "OK" {
		t.Fatal(words)
	}
	url := "redis://pawl:secret@" + s.Addr() + "?lease=3s"
	e, other := testkit.Open(t, url), testkit.Open(t, url)
	l, far := e.RWMutex("orders:1"), other.RWMutex("orders:1")
	w := testkit.MustLock(t, l.Writer())
	waits := far.Reader().LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it listens", func() bool { return other.Stats().Channels == 1 })
	r, err := l.Downgrade(testkit.Ctx(t), w)
	if err != nil {
		t.Fatal(err)
	}
	h, err := waits.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, testkit.MustReenter(t, l.Reader(), r))
	s.Do("DEL", engineTimeoutKey(r)) // as if it were evicted
	testkit.Eventually(t, "they are renewed", func() bool { return e.Stats().Renewed > 0 && other.Stats().Renewed > 0 })
	testkit.MustUnlock(t, r)
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, testkit.MustLock(t, l.Writer(), engine.MinHold(10*time.Millisecond)))
	testkit.MustLock(t, l.Reader())
	if ok, err := far.Reader().ForceUnlock(testkit.Ctx(t)); !ok || err != nil {
		t.Errorf("ForceUnlock: %v, %v", ok, err)
	}
	denied, _ := s.Do("ACL", "LOG").([]any)
	for _, entry := range denied {
		if !strings.Contains(fmt.Sprint(entry), " object client") {
			t.Errorf("the server refused: %v", entry)
		}
	}
}

// engineTimeoutKey is the key that a reader of orders:1 has beside the hash.
func engineTimeoutKey(h *engine.Hold) string { return "{orders:1}:" + h.Owner() + ":rwlock_timeout:1" }
