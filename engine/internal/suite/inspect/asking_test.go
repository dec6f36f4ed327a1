package inspect

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	questions "github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// listeners is how many listen for questions.
func listeners(s *redistest.Server) int64 {
	list, _ := s.Do("PUBSUB", "NUMSUB", questions.Channel).([]any)
	if len(list) < 2 {
		return -1
	}
	n, _ := list[1].(int64)
	return n
}

func TestEngine_NobodyAsks_SubscribesOnceAndSendsNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	s.Do("CONFIG", "RESETSTAT")
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("short"))) // nothing is held by the time of the look
	h := testkit.MustLock(t, e.Mutex("long"))
	testkit.Eventually(t, "it listens", func() bool { return listeners(s) == 1 })
	began := time.Now()
	testkit.Eventually(t, "it has looked again", func() bool { return time.Since(began) > 2500*time.Millisecond })
	used := s.CommandStats()
	if used["subscribe"] != 1 || used["publish"] != 1 || used["unsubscribe"] != 0 { // the release of the short one
		t.Errorf("the server counts %v", used)
	}
	if n := e.Stats().Channels; n != 0 {
		t.Errorf("%d channels of locks", n)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, e)
	if used := s.CommandStats(); used["subscribe"] != 1 || used["unsubscribe"] != 1 {
		t.Errorf("at the end the server counts %v", used)
	}
}

func TestEngine_NoInspect_IsNotAsked(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	quiet, e := testkit.Open(t, s.URL()), testkit.Open(t, s.URL(), inspected)
	h := testkit.MustLock(t, quiet.Mutex("x"))
	testkit.MustLock(t, e.Mutex("y"))
	testkit.Eventually(t, "the other listens", func() bool { return listeners(s) == 1 })
	info, err := e.Inspect(testkit.Ctx(t), "x")
	if err != nil || len(info.Holders) != 1 || info.Holders[0].ID != h.Owner() || info.Holders[0].Engine.Answered || info.Holders[0].Engine.Addr == "" {
		t.Errorf("%+v, %v", info, err)
	}
	// It knows of itself.
	info, err = quiet.Inspect(testkit.Ctx(t), "x")
	if err != nil || info.NotAsked == nil || len(info.Holders) != 1 || !info.Holders[0].Engine.Answered || len(info.Holders[0].Uses) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestInspect_FiftyEngines_AllAnswerInTime(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const n = 50
	for range n {
		e := testkit.Open(t, s.URL(), inspected, func(c *engine.Config) { c.EventLoops = 1 })
		e.Mutex("hot").LockAsync(ctx)
	}
	e := testkit.Open(t, s.URL(), inspected)
	var info *engine.LockInfo
	testkit.Eventually(t, "they answer within 200 ms", func() bool { // not at once if the machine is busy
		var took time.Duration
		info, took = inspectUntil(t, e, "hot", "all answer", func(i *engine.LockInfo) bool { return i.Waiting == n-1 && answers(i) })
		t.Logf("%d engines answered in %v", n, took)
		return took <= 200*time.Millisecond
	})
	if len(info.Engines) < n {
		t.Errorf("%d engines", len(info.Engines))
	}
}

func TestInspect_Readers_AreListedEach(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	rw := e.RWMutex("x")
	for range 3 {
		testkit.MustLock(t, rw.Reader())
	}
	rw.Writer().LockAsync(testkit.Ctx(t))
	info, _ := inspectUntil(t, e, "x", "all are seen", func(i *engine.LockInfo) bool {
		return i.Waiting == 1 && len(i.Holders) == 1 && len(i.Holders[0].Uses) == 3
	})
	if info.Kind != "read-write" || info.Mode != "read" || info.Holders[0].Uses[0].Kind != "read" || info.Waiters[0].Kind != "write" {
		t.Errorf("%+v", info)
	}
}

func TestInspect_EachKind_IsDescribed(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	ctx := testkit.Ctx(t)
	p := e.PermitSemaphore("permits")
	if ok, err := p.TrySetPermits(ctx, 3); !ok || err != nil {
		t.Fatal(ok, err)
	}
	held, err := p.Acquire(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	p.AcquireAsync(ctx, 2)
	if ok, err := e.Semaphore("semaphore").TrySetPermits(ctx, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	e.Semaphore("semaphore").AcquireAsync(ctx, 1)
	testkit.MustLock(t, e.FencedMutex("fenced"))
	testkit.MustLock(t, e.FairMutex("fair"))
	e.FairMutex("fair").LockAsync(ctx)
	reentered := testkit.MustLock(t, e.Mutex("mutex"))
	testkit.MustReenter(t, e.Mutex("mutex"), reentered)
	for name, ok := range map[string]func(*engine.LockInfo) bool{
		"permits": func(i *engine.LockInfo) bool {
			return i.Kind == "permits" && i.Available == 1 && len(i.Holders) == 2 && i.Holders[0].Engine.ID == e.ID() && len(i.Holders[1].Uses) == 1 &&
				i.Holders[0].TTL > 0 && i.Waiting == 1 && i.Waiters[0].Kind == "permit" && len(i.Unconfirmed) == 0
		},
		"semaphore": func(i *engine.LockInfo) bool {
			return i.Kind == "count" && i.Waiting == 1 && i.Waiters[0].Kind == "semaphore"
		},
		"fenced": func(i *engine.LockInfo) bool {
			return i.Kind == "fenced" && i.Token == 1 && len(i.Holders[0].Uses) == 1
		},
		"fair": func(i *engine.LockInfo) bool { return i.Kind == "fair" && i.Queue == 1 && i.Waiting == 1 },
		"mutex": func(i *engine.LockInfo) bool {
			return i.Kind == "mutex" && i.Holders[0].Count == 2 && i.Holders[0].Uses[0].Depth == 2
		},
		"nothing": func(i *engine.LockInfo) bool { return i.Kind == "" && !i.Locked },
	} {
		inspectUntil(t, e, name, name+" is described", ok)
	}
	if prefix := strings.ReplaceAll(e.ID(), "-", "")[:14]; !strings.HasPrefix(held.PermitIDs()[0], prefix) {
		t.Errorf("the permit %s does not begin as the engine %s", held.PermitIDs()[0], e.ID())
	}
}

// liar answers every question, with what it likes.
type liar struct {
	client *resp.Client
	answer func(q *questions.Question) []byte
}

func (l *liar) ChannelEvent(ev resp.ChannelEvent, message []byte, _ error) {
	var q questions.Question
	if ev == resp.Message && json.Unmarshal(message, &q) == nil {
		go func() { _, _ = l.client.Do(context.Background(), "PUBLISH", q.Reply, string(l.answer(&q))) }()
	}
}

func TestInspect_Lies_AreClaims(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	h := testkit.MustLock(t, e.Mutex("x"))
	for _, text := range []string{"", "{", `{"v":1}`, strings.Repeat("x", 1<<20)} {
		s.Do("PUBLISH", questions.Channel, text)
	}
	client := testkit.Client(testkit.Open(t, s.URL()))
	lies := resp.NewChannel(questions.Channel, &liar{client, func(q *questions.Question) []byte {
		a := questions.Answer{Question: q.ID, Engine: "liar", Host: "\x1b[31m<b>", Names: []questions.Name{{Waiting: 1 << 40}}}
		for range 1000 { // it claims what others hold, and what nobody does
			a.Names[0].Uses = append(a.Names[0].Uses, questions.Use{Held: true, Kind: "mutex", Owner: h.Owner(), Millis: 1 << 60})
		}
		return a.Encode()
	}})
	client.Subscribe(lies)
	defer client.Unsubscribe(lies)
	noise := resp.NewChannel(questions.Channel, &liar{client, func(*questions.Question) []byte { return []byte("{{") }})
	client.Subscribe(noise)
	defer client.Unsubscribe(noise)
	info, _ := inspectUntil(t, e, "x", "both answer", func(i *engine.LockInfo) bool { return answers(i) && len(i.Unconfirmed) > 0 })
	if info.Holders[0].Engine.ID != e.ID() || len(info.Unconfirmed) > 100 || info.Unconfirmed[0].Engine.ID != "liar" {
		t.Errorf("%+v", info)
	}
	if h.Err() != nil {
		t.Error(h.Err())
	}
}

// lines collects what a logger writes.
type lines struct {
	sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(text string) int {
	l.Lock()
	defer l.Unlock()
	return strings.Count(l.text.String(), text)
}

func TestEngine_ChannelRefused_GoesOnWithoutIt(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	s.Do("ACL", "SETUSER", "narrow", "on", ">secret", "~*", "resetchannels", "&redisson_lock__channel:{*", "+@all")
	var log lines
	e := testkit.Open(t, "redis://narrow:secret@"+s.Addr(), inspected, func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	h := testkit.MustLock(t, e.Mutex("x"))
	testkit.Eventually(t, "it says so", func() bool { return log.count("cannot be inspected") == 1 })
	info, err := e.Inspect(testkit.Ctx(t), "x")
	if err != nil || info.NotAsked == nil || !info.Locked || info.Holders[0].ID != h.Owner() {
		t.Errorf("%+v, %v", info, err)
	}
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	if n := log.count("cannot be inspected"); n != 1 {
		t.Errorf("it says so %d times", n)
	}
	if log.count("may not listen") != 0 {
		t.Error("it says that nobody can wait")
	}
}

// inspectUntil looks until ok, and returns what it saw then, and how long the fastest of some such looks took.
func inspectUntil(t *testing.T, e *engine.Engine, name, what string, ok func(*engine.LockInfo) bool) (seen *engine.LockInfo, fastest time.Duration) {
	t.Helper()
	for range 5 {
		testkit.Eventually(t, what, func() bool {
			began := time.Now()
			info, err := e.Inspect(testkit.Ctx(t), name)
			if err != nil {
				t.Fatal(err)
			}
			if !ok(info) {
				return false
			}
			if took := time.Since(began); seen == nil || took < fastest {
				seen, fastest = info, took
			}
			return true
		})
	}
	return seen, fastest
}

// answers reports whether the one holder of the lock has answered.
func answers(i *engine.LockInfo) bool {
	return len(i.Holders) == 1 && len(i.Holders[0].Uses) == 1 && i.Holders[0].Engine.Answered
}
