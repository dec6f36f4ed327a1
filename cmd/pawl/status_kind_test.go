package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// must fails the test unless something could be done.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// oneOfEach makes a server with a name of each kind.
func oneOfEach(t *testing.T) (s *redistest.Server, env []string) {
	t.Helper()
	s, env = server(t)
	ctx := t.Context()
	e := openEngine(t, s.URL())
	must(e.Mutex("mutex").TryLock(ctx))(t)
	for range 2 { // the second token, and nobody has it
		h := must(e.FencedMutex("fenced").TryLock(ctx))(t)
		must(0, h.Unlock(ctx))(t)
	}
	must(e.FencedMutex("fencing").TryLock(ctx))(t)
	must(e.FairMutex("fair").TryLock(ctx))(t)
	queue(t, s, e, "fair", 2)
	for range 3 {
		must(e.RWMutex("read").Reader().TryLock(ctx, engine.Lease(time.Minute)))(t)
	}
	must(e.RWMutex("write").Writer().TryLock(ctx))(t)
	w := must(e.RWMutex("both").Writer().TryLock(ctx))(t)
	must(e.RWMutex("both").Reader().TryLock(w.Context(ctx)))(t)
	must(e.PermitSemaphore("permits").TrySetPermits(ctx, 5))(t)
	must(e.PermitSemaphore("permits").TryAcquire(ctx, 2))(t)
	must(e.PermitSemaphore("untaken").TrySetPermits(ctx, 5))(t)
	must(e.Semaphore("semaphore").TrySetPermits(ctx, 4))(t)
	must(e.Semaphore("semaphore").TryAcquire(ctx, 1))(t)
	must(e.Latch("latch").TrySetCount(ctx, 2))(t)
	s.Do("HSET", "{a}b", "somebody:1", "1") // names with braces have companions of another form
	s.Do("SET", "redisson_lock_token:{a}b", "7")
	return s, env
}

// queue has so many wait for a fair lock.
func queue(t *testing.T, s *redistest.Server, e *engine.Engine, name string, n int) (waiters []*engine.Future[*engine.Hold]) {
	t.Helper()
	for range n {
		waiters = append(waiters, e.FairMutex(name).LockAsync(t.Context()))
	}
	eventually(t, "they wait", func() bool { return s.Do("LLEN", "redisson_lock_queue:{"+name+"}") == int64(n) })
	return waiters
}

// varying is what is different in each run.
var varying = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]+:\d+|[0-9a-f]{32}|ends in [0-9.ms]+`)

func TestStatusTellsEveryKind(t *testing.T) {
	t.Parallel()
	_, env := oneOfEach(t)
	for name, want := range map[string]string{
		"mutex":     "locked (exclusive), its lease *\n  holder *, count 1\n",
		"fenced":    "free\n  the last fencing token is 2\n",
		"fencing":   "locked (exclusive), its lease *\n  holder *, count 1\n  the last fencing token is 1\n",
		"fair":      "locked (exclusive), its lease *\n  holder *, count 1\n  a fair lock, waiting in its queue: 2\n",
		"read":      "locked (read by 3), its lease *\n  holder *, count 1\n  holder *, count 1\n  holder *, count 1\n",
		"write":     "locked (write), its lease *\n  holder *:write, count 1\n",
		"both":      "locked (write, and read by 1), its lease *\n  holder *:write, count 1\n  holder *, count 1\n",
		"permits":   "a semaphore, permits to be had: 3, taken: 2\n  permit *, its lease *\n  permit *, its lease *\n",
		"untaken":   "a count of 5: permits of a semaphore that are to be had, or what a latch waits for\n",
		"semaphore": "a count of 3: permits of a semaphore that are to be had, or what a latch waits for\n",
		"latch":     "a count of 2: permits of a semaphore that are to be had, or what a latch waits for\n",
		"nothing":   "free\n",
		"{a}b":      "locked (exclusive), without a lease: it never ends by itself\n  holder somebody:1, count 1\n  the last fencing token is 7\n",
	} {
		v := pawl(t, env, "status", name)
		v.expect(t, 0)
		got := strings.ReplaceAll(varying.ReplaceAllString(v.stdout.String(), "*"), "* unless renewed", "*")
		if want = name + ": " + want; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestStatusTellsEveryKindInJSON(t *testing.T) {
	t.Parallel()
	_, env := oneOfEach(t)
	names := []string{"mutex", "fenced", "fencing", "fair", "read", "write", "permits", "latch", "nothing"}
	v := pawl(t, env, append([]string{"status", "--format", "json"}, names...)...)
	v.expect(t, 0)
	var list []map[string]any
	if err := json.Unmarshal(v.stdout.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range list {
		holders := one["holders"].([]any)
		for _, h := range holders { // a permit has a lease of its own, the holders of a lock share one
			ms, leased := h.(map[string]any)["ttl_ms"].(float64)
			if of := one["kind"] == "permits"; leased != of || of && ms <= 0 {
				t.Errorf("%s has the holder %v", one["name"], h)
			}
		}
		if n := len(holders); n > 0 {
			one["holders"] = n
		}
		if ms, ok := one["ttl_ms"].(float64); ok && ms > 0 {
			one["ttl_ms"] = "some"
		}
		got = append(got, fmt.Sprint(one))
	}
	want := []string{
		"map[holders:1 kind:mutex locked:true mode:exclusive name:mutex ttl_ms:some]",
		"map[holders:[] kind:fenced locked:false mode: name:fenced token:2 ttl_ms:0]",
		"map[holders:1 kind:fenced locked:true mode:exclusive name:fencing token:1 ttl_ms:some]",
		"map[holders:1 kind:fair locked:true mode:exclusive name:fair queue:2 ttl_ms:some]",
		"map[holders:3 kind:read-write locked:true mode:read name:read ttl_ms:some]",
		"map[holders:1 kind:read-write locked:true mode:write name:write ttl_ms:some]",
		"map[available:3 holders:2 kind:permits locked:true mode: name:permits taken:2 ttl_ms:<nil>]",
		"map[count:2 holders:[] kind:count locked:<nil> mode: name:latch ttl_ms:<nil>]",
		"map[holders:[] kind: locked:false mode: name:nothing ttl_ms:0]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Nobody holds a count; one permit that is taken is somebody's.
func TestQuietStatusOfEveryKind(t *testing.T) {
	t.Parallel()
	_, env := oneOfEach(t)
	for name, code := range map[string]int{
		"fenced": 1, "fencing": 0, "fair": 0, "read": 0, "write": 0, "permits": 0, "nothing": 1,
		"latch": exit.Server, "semaphore": exit.Server,
	} {
		pawl(t, env, "status", "--quiet", name).expect(t, code)
	}
	pawl(t, env, "status", "--quiet", "latch", "read").expect(t, 0)
	pawl(t, env, "status", "--quiet", "nothing", "latch").expect(t, exit.Server, "latch is a count", "does not say whether anybody holds")
}

// Permits whose lease has ended are there to be had, though nobody has taken them away yet; those
// of Redisson's may have none. Status takes nothing away either.
func TestStatusChangesNoPermits(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Do("SET", "a", "1")
	s.Do("ZADD", "{a}:timeout", "1000", "0123456789abcdef", "922337203685477", "fedcba9876543210", "12000000000000", "0000000000000000")
	v := pawl(t, env, "status", "a")
	v.expect(t, 0)
	if got, want := v.stdout.String(), "a: a semaphore, permits to be had: 2, taken: 2\n"+
		"  permit 30303030303030303030303030303030, without a lease: it never ends by itself\n"+
		"  permit 66656463626139383736353433323130, without a lease: it never ends by itself\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if n, ids := s.Do("GET", "a"), s.Do("ZCARD", "{a}:timeout"); n != "1" || ids != int64(3) {
		t.Errorf("there are %v permits and %v ids now", n, ids)
	}
}

// A user with the rights for a Mutex sees the lock, and is told that there may be more. With those
// that docs/operations.md has for pawl status, there is no more.
func TestStatusSaysWhatAUserMayNotSee(t *testing.T) {
	t.Parallel()
	const mutex = ` on >w0nder ~orders:* resetchannels &redisson_lock__channel:* +ping +client|setname +script|load +evalsha +eval +subscribe +unsubscribe +publish +hset +hdel +hexists +hlen +hgetall +pttl +pexpire +del`
	const status = ` ~{orders:* ~redisson_lock_queue:{orders:* ~redisson_lock_token:{orders:* +llen +get +time +zrange`
	s := redistest.Start(t, redistest.User("bob"+mutex), redistest.User("ada"+mutex+status))
	s.Do("HSET", "orders:a", "somebody:1", "1")
	s.Do("SET", "redisson_lock_token:{orders:a}", "3")
	s.Do("RPUSH", "redisson_lock_queue:{orders:a}", "somebody:2")
	s.Do("SET", "orders:b", "1")
	s.Do("ZADD", "{orders:b}:timeout", "922337203685477", "fedcba9876543210")
	env := func(user string) []string {
		return []string{target.URLEnv + "=redis://" + user + ":w0nder@" + s.Addr()}
	}
	v := pawl(t, env("ada"), "status", "orders:a", "orders:b")
	v.expect(t, 0, "holder somebody:1", "waiting in its queue: 1", "token is 3", "permits to be had: 1, taken: 1")
	all := pawl(t, env("ada"), "status", "--format", "json", "orders:a", "orders:b")
	all.expect(t, 0, `"kind": "fair"`, `"kind": "permits"`)
	if shown := v.stdout.String() + all.stdout.String(); strings.Contains(shown, "NOPERM") || strings.Contains(shown, "hidden") {
		t.Errorf("with all rights: %s", shown)
	}
	pawl(t, env("bob"), "status", "orders:a").expect(t, 0, "holder somebody:1", "there may be more than this user can see: NOPERM")
	pawl(t, env("bob"), "status", "--format", "json", "orders:a").expect(t, 0, `"kind": "mutex"`, `"hidden": "NOPERM`)
	for _, args := range []string{"status orders:b", "unlock --force orders:b"} {
		v = pawl(t, env("bob"), strings.Fields(args)...)
		v.expect(t, exit.Server, "may not see what else it is", "NOPERM", "docs/operations.md")
		if strings.Contains(v.stderr.String(), "delete the key") {
			t.Errorf("somebody holds a permit: %s", v.stderr.String())
		}
	}
	pawl(t, env("bob"), "unlock", "--force", "orders:a").expect(t, 0, "orders:a: removed")
}

// Who may not look does not know that a lock has no queue, or that nobody holds a permit.
func TestForcedUnlockSaysWhatAUserMayNotSee(t *testing.T) {
	t.Parallel()
	const mutex = ` on >w0nder ~orders:* resetchannels &redisson_lock__channel:* +ping +client|setname +script|load +evalsha +eval +subscribe +unsubscribe +publish +hset +hdel +hexists +hlen +hgetall +pttl +pexpire +del`
	s := redistest.Start(t, redistest.User("bob"+mutex+" +get"), redistest.User("ada"+mutex+" ~redisson_lock_queue:{orders:* +llen"))
	s.Do("HSET", "orders:a", "somebody:1", "1")
	s.Do("RPUSH", "redisson_lock_queue:{orders:a}", "somebody:2")
	s.Do("SET", "orders:b", "1")
	s.Do("ZADD", "{orders:b}:timeout", "922337203685477", "fedcba9876543210")
	s.Do("HSET", "orders:c", "somebody:1", "1")
	env := func(user string) []string {
		return []string{target.URLEnv + "=redis://" + user + ":w0nder@" + s.Addr()}
	}
	pawl(t, env("bob"), "unlock", "--force", "orders:a").expect(t, 0, "orders:a: removed", "its queue was not told", "NOPERM")
	v := pawl(t, env("bob"), "unlock", "--force", "orders:b")
	v.expect(t, exit.Server, "may not see whether permits are taken", "NOPERM")
	if strings.Contains(v.stderr.String(), "nobody holds") {
		t.Errorf("somebody holds a permit: %s", v.stderr.String())
	}
	pawl(t, env("bob"), "status", "--quiet", "orders:b").expect(t, exit.Server, "may not see whether permits are taken", "NOPERM")
	v = pawl(t, env("ada"), "unlock", "--force", "orders:c") // she sees the queue, but no token
	v.expect(t, 0, "orders:c: removed")
	if v.stderr.Len() > 0 {
		t.Errorf("there is no queue: %s", v.stderr.String())
	}
}

// A waiter for a lock of that kind is woken: it has the lock long before it would look by itself.
func TestForcedUnlockWakesTheWaitersOfEveryKind(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	env[0] = target.URLEnv + "=" + s.URL()
	e, other := openEngine(t, s.URL()), openEngine(t, s.URL())
	ctx := t.Context()
	must(e.PermitSemaphore("permits").TrySetPermits(ctx, 2))(t)
	must(e.PermitSemaphore("permits").TryAcquire(ctx, 2))(t)
	must(e.Mutex("mutex").TryLock(ctx))(t)
	must(e.FencedMutex("fenced").TryLock(ctx))(t)
	must(e.FairMutex("fair").TryLock(ctx))(t)
	for range 2 {
		must(e.RWMutex("read").Reader().TryLock(ctx))(t)
	}
	must(e.RWMutex("write").Writer().TryLock(ctx))(t)
	waiters := map[string]<-chan struct{}{
		"mutex":   other.Mutex("mutex").LockAsync(ctx).Done(),
		"fenced":  other.FencedMutex("fenced").LockAsync(ctx).Done(),
		"fair":    queue(t, s, other, "fair", 2)[0].Done(),
		"read":    other.RWMutex("read").Writer().LockAsync(ctx).Done(),
		"write":   other.RWMutex("write").Reader().LockAsync(ctx).Done(),
		"permits": other.PermitSemaphore("permits").AcquireAsync(ctx, 2).Done(),
	}
	eventually(t, "all wait", func() bool { return len(s.Do("PUBSUB", "CHANNELS", "redisson_*{*").([]any)) >= len(waiters) })
	for name, granted := range waiters {
		text := name + ": removed\n"
		if name == "permits" {
			text = name + ": permits given back: 2\n"
		}
		pawl(t, env, "unlock", "--force", name).expect(t, 0, text)
		within, cancel := cputime.WithTimeout(ctx, patience/6) // of a lease of 30 s
		select {
		case <-granted:
		case <-within.Done():
			t.Errorf("%s: nobody was woken", name)
		}
		cancel()
	}
	if n := s.Do("LLEN", "redisson_lock_queue:{fair}"); n != int64(1) {
		t.Errorf("%v are in the queue still, want the second one", n)
	}
}

func TestForcedUnlockWakesAFairWaiterThatCameAfterTheLook(t *testing.T) {
	t.Parallel()
	s, _ := server(t)
	e, other := openEngine(t, s.URL()), openEngine(t, s.URL())
	must(e.FairMutex("fair").TryLock(t.Context()))(t)
	seen := must(e.Inspect(t.Context(), "fair"))(t)
	if seen.Kind != "mutex" {
		t.Fatal(seen.Kind)
	}
	waiter := queue(t, s, other, "fair", 1)[0]
	eventually(t, "it waits", func() bool { return len(s.Do("PUBSUB", "CHANNELS", "*{fair}*").([]any)) >= 1 })
	removed, err := forceUnlock(t.Context(), e, seen, "")
	if err := errors.Join(err, wakeQueue(t.Context(), e, seen)); removed != 1 || err != nil {
		t.Fatal(removed, err)
	}
	within, cancel := cputime.WithTimeout(t.Context(), patience/6) // of a lease of 30 s
	defer cancel()
	select {
	case <-waiter.Done():
	case <-within.Done():
		t.Error("nobody was woken")
	}
}

func TestForcedUnlockFromAHolderOfEveryKind(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	e := openEngine(t, s.URL())
	ctx := t.Context()
	must(e.PermitSemaphore("permits").TrySetPermits(ctx, 3))(t)
	permits := must(e.PermitSemaphore("permits").TryAcquire(ctx, 2))(t)
	must(e.PermitSemaphore("permits").TryAcquire(ctx, 1))(t) // stays, when a renewal has found that one of the two is gone
	reader := must(e.RWMutex("read").Reader().TryLock(ctx))(t)
	must(e.RWMutex("read").Reader().TryLock(ctx, engine.Lease(time.Minute)))(t)
	writer := must(e.RWMutex("write").Writer().TryLock(ctx))(t)
	fair := must(e.FairMutex("fair").TryLock(ctx))(t)
	queue(t, s, e, "fair", 1)[0].Abandon()
	for name, id := range map[string]string{
		"read": reader.Owner(), "write": writer.Owner(), "fair": fair.Owner(), "permits": permits.PermitIDs()[0],
	} {
		nobody := "somebody:1"
		if name == "permits" {
			nobody = strings.Repeat("0", 32)
		}
		pawl(t, env, "unlock", "--force", name, "--if-holder", nobody).expect(t, 1, "not held by "+nobody)
		pawl(t, env, "unlock", "--force", name, "--if-holder", id).expect(t, 0, name+": ")
		pawl(t, env, "unlock", "--force", name, "--if-holder", id).expect(t, 1, "not held by "+id)
	}
	for _, name := range []string{"read", "permits"} { // an id of another kind is nobody's
		pawl(t, env, "unlock", "--force", name, "--if-holder", "x").expect(t, 1, "not held by x")
	}
	pawl(t, env, "status", "read").expect(t, 0, "read by 1")
}

// A count has no holder.
func TestForcedUnlockOfACountIsRefused(t *testing.T) {
	t.Parallel()
	s, env := oneOfEach(t)
	before := fmt.Sprint(s.Do("GET", "latch"), s.Do("GET", "semaphore"))
	for _, name := range []string{"latch", "semaphore"} {
		pawl(t, env, "unlock", "--force", name).expect(t, exit.Server, name+" is a count", "CountDown")
	}
	if after := fmt.Sprint(s.Do("GET", "latch"), s.Do("GET", "semaphore")); before != after {
		t.Errorf("%s, and %s before", after, before)
	}
}

// One of several that is no synchronizer does not hide the others.
func TestStatusOfSeveralShowsThoseThatItCanLookAt(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	s.Do("RPUSH", "list", "a")
	h := must(openEngine(t, s.URL()).Mutex("held").TryLock(t.Context()))(t)
	for _, names := range [][]string{{"list", "held"}, {"held", "list"}} {
		pawl(t, env, append([]string{"status", "--quiet"}, names...)...).expect(t, 0)
		v := pawl(t, env, append([]string{"status"}, names...)...)
		v.expect(t, exit.Server, "list")
		if !strings.Contains(v.stdout.String(), h.Owner()) {
			t.Errorf("status %v: %s", names, v.stdout.String())
		}
	}
	s.Do("RPUSH", "other", "a")
	pawl(t, env, "status", "list", "held", "other").expect(t, exit.Server, "list", h.Owner(), "other")
	for _, flag := range []string{"--quiet", "--format=json"} {
		v := pawl(t, env, "status", flag, "free", "list")
		if v.expect(t, exit.Server, "list"); v.stdout.Len() > 0 {
			t.Errorf("status %s prints %s", flag, v.stdout.String())
		}
	}
}

// A MinHold that a writer leaves beside its reader is nobody's, and reads nothing.
func TestStatusCountsNoReaderThatIsNobody(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	rw := openEngine(t, s.URL()).RWMutex("x")
	writer := must(rw.Writer().TryLock(t.Context(), engine.MinHold(time.Minute)))(t)
	must(rw.Reader().TryLock(writer.Context(t.Context())))(t)
	if err := writer.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	pawl(t, env, "status", "x").expect(t, 0, "read by 1")
}
