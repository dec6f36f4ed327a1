package topology

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// routes is a client that keeps the layout.
type routes struct {
	mu       sync.Mutex
	explorer *Explorer
	primary  string // of slot 0
	searches int
}

func (r *routes) Counting() bool { return false }

func (r *routes) Impaired() bool { return false }

func (r *routes) Follow(ctx context.Context, l *Layout) (changed, gaps bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = r.primary != l.Shards[0].Primary
	r.primary = l.Shards[0].Primary
	return changed, !l.Complete(), nil
}

func (r *routes) Lost() (changed bool) { return false }

func (r *routes) Searched() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.searches++
}

func (r *routes) state() (primary string, searches int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.primary, r.searches
}

// servesAll answers CLUSTER SLOTS: one primary serves all.
func servesAll(addr string) func([]string) string {
	return func(words []string) string {
		if strings.Join(words, " ") != "CLUSTER SLOTS" {
			return "-ERR unknown command\r\n"
		}
		host, port, _ := net.SplitHostPort(addr)
		return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	}
}

// explore runs an explorer until the test has ended, within its bubble.
func explore(t *testing.T, w *world, c *Config) (r *routes, end func()) {
	r = new(routes)
	ctx, cancel := context.WithCancel(t.Context())
	r.explorer = NewExplorer(ctx, c, r)
	var running sync.WaitGroup
	running.Go(func() { r.explorer.Run(ctx) })
	running.Go(func() { r.explorer.Watch(ctx) })
	return r, func() {
		cancel()
		running.Wait()
		w.close()
	}
}

func TestExplorer_Searches_FollowTheLatestLayout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a:1", pipeServer{answer: servesAll("a:1")})
		r, end := explore(t, w, w.config(Cluster, "a:1"))
		defer end()
		synctest.Wait()
		expect := func(when, primary string, searches int) {
			t.Helper()
			synctest.Wait()
			if p, n := r.state(); p != primary || n != searches {
				t.Fatalf("%s: %q serves after %d searches, want %q after %d", when, p, n, primary, searches)
			}
		}
		expect("at once", "a:1", 1)
		if found, _, err := r.explorer.Progress(); !found || err != nil {
			t.Errorf("found: %v, %v", found, err)
		}
		w.set("a:1", pipeServer{answer: servesAll("b:1")})
		time.Sleep(22 * time.Second)
		expect("nobody asks", "a:1", 1)
		time.Sleep(8 * time.Second)
		expect("after the period", "b:1", 2)
		time.Sleep(time.Second)
		w.set("b:1", pipeServer{answer: servesAll("c:1")})
		w.asked()
		r.explorer.RefreshNow("b:1")
		expect("who knows more is asked at once", "c:1", 3)
		if asked := w.asked(); !slices.Equal(asked, []string{"b:1"}) {
			t.Errorf("%v were asked", asked)
		}
	})
}

// What is said while a search is out may have come too late for it.
func TestExplorer_ChangeDuringASearch_SearchesAgain(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(x *Explorer){
		"now": func(x *Explorer) { x.RefreshNow("") }, "soon": (*Explorer).RefreshSoon,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.set("a:1", pipeServer{answer: servesAll("a:1"), slow: HedgeDelay / 2})
				r, end := explore(t, w, w.config(Cluster, "a:1"))
				defer end()
				time.Sleep(HedgeDelay / 4)
				ask(r.explorer)
				time.Sleep(HedgeDelay / 4)
				synctest.Wait()
				if _, n := r.state(); n != 1 {
					t.Fatalf("%d searches", n)
				}
				time.Sleep(ExploreEvery - time.Millisecond)
				synctest.Wait()
				if asked := w.asked(); len(asked) != 1 {
					t.Errorf("%v were asked", asked)
				}
				time.Sleep(ExploreEvery/2 + HedgeDelay/2 + time.Millisecond)
				synctest.Wait()
				if _, n := r.state(); n != 2 {
					t.Errorf("%d searches", n)
				}
			})
		})
	}
}

// Thousands of commands find out at the same moment.
func TestExplorer_ManyRefreshes_AreOneSearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("a:1", pipeServer{answer: servesAll("a:1")})
		r, end := explore(t, w, w.config(Cluster, "a:1"))
		defer end()
		synctest.Wait()
		for range 10_000 {
			r.explorer.RefreshNow("a:1")
			r.explorer.RefreshSoon()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if _, n := r.state(); n != 2 {
			t.Errorf("%d searches", n)
		}
	})
}

// There is nothing to find where there is one server.
func TestExplorer_Nil_HasFound(t *testing.T) {
	t.Parallel()
	var x *Explorer
	x.RefreshNow("a:1")
	x.RefreshSoon()
	if found, _, err := x.Progress(); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}
