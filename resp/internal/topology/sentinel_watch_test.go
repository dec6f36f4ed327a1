package topology

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sentinelAmong is a sentinel that names p:1 and lists others.
func sentinelAmong(others ...string) func([]string) string {
	hostPort := func(addr string) (string, string) {
		host, port, _ := net.SplitHostPort(addr)
		return bulk(host), bulk(port)
	}
	return func(words []string) string {
		switch strings.Join(words[:2], " ") {
		case "SUBSCRIBE +switch-master":
			return "*3\r\n" + bulk("subscribe") + bulk(words[1]) + ":1\r\n"
		case "SENTINEL GET-MASTER-ADDR-BY-NAME":
			return "*2\r\n" + bulk("p") + bulk("1")
		case "SENTINEL MASTER":
			return "*2\r\n" + bulk("config-epoch") + bulk("1")
		case "SENTINEL SENTINELS":
			list := fmt.Sprintf("*%d\r\n", len(others))
			for _, addr := range others {
				host, port := hostPort(addr)
				list += "*4\r\n" + bulk("ip") + host + bulk("port") + port
			}
			return list
		}
		return "-ERR unknown command\r\n"
	}
}

// deadSentinels are a sentinel that lists 16 others, whose machines are gone.
func deadSentinels(w *world) {
	var dead []string
	for i := range maxKnown {
		dead = append(dead, fmt.Sprintf("10.0.0.%d:1", i))
		w.set(dead[i], pipeServer{slow: time.Hour})
	}
	w.set("s:1", pipeServer{answer: sentinelAmong(dead...)})
	w.set("p:1", pipeServer{answer: saysPrimary})
}

func TestSentinelFinder_DeadAddressesThatAreListed_CostAHedgeDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.close()
		deadSentinels(w)
		cfg := w.config(Sentinel, "s:1")
		s := newProbes(t.Context(), cfg, SearchTimeout)
		defer s.close()
		f := newFinder(cfg, s)
		for range 8 {
			began := time.Now()
			if _, err := f.find(t.Context(), "", false); err != nil {
				t.Fatal(err)
			}
			s.tidy(false)
			if took := time.Since(began); took > HedgeDelay {
				t.Errorf("a search took %v", took)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

func TestSentinelFinder_Watch_DeadAddressesThatAreListed_CostAHedgeDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.close()
		deadSentinels(w)
		cfg := w.config(Sentinel, "s:1")
		s := newProbes(t.Context(), cfg, SearchTimeout)
		defer s.close()
		f := newFinder(cfg, s)
		for range 8 {
			if _, err := f.find(t.Context(), "", false); err != nil {
				t.Fatal(err)
			}
			s.tidy(false)
			ctx, cancel := context.WithCancel(t.Context())
			reported, ended := make(chan string, 1), make(chan struct{})
			began := time.Now()
			go func() {
				defer close(ended)
				f.watch(ctx, func(hint string) { reported <- hint })
			}()
			select {
			case hint := <-reported:
				if took := time.Since(began); hint != "s:1" || took > HedgeDelay {
					t.Errorf("%s is listened to, after %v", hint, took)
				}
			case <-time.After(time.Hour):
				t.Error("nobody is listened to")
			}
			cancel()
			<-ended
			time.Sleep(10 * time.Second)
		}
	})
}

// Sentinels that are slow are raced: the first that lets it is listened to, and the others' are
// closed.
func TestSentinelFinder_Watch_TheFirstOfSlowSentinelsIsListenedTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.close()
		for i := range 4 {
			w.set(fmt.Sprintf("s%d:1", i), pipeServer{answer: sentinelAmong(), slow: 2 * time.Second})
		}
		cfg := w.config(Sentinel, "s0:1", "s1:1", "s2:1", "s3:1")
		s := newProbes(t.Context(), cfg, SearchTimeout)
		defer s.close()
		f := newFinder(cfg, s).(*sentinelFinder)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		one, ok := f.subscribeToOne(ctx)
		if !ok {
			t.Fatal("nobody is listened to")
		}
		if asked := w.asked(); len(asked) != 4 {
			t.Errorf("%v were asked", asked)
		}
		hangUp(one.in.Conn)
	})
}

// What is subscribed at a sentinel that turns out to be somebody else's is given up, and another
// is listened to.
func TestSentinelFinder_Watch_LeavesAForeignSentinel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.close()
		w.set("s:1", pipeServer{answer: sentinelAmong("x:1")})
		w.set("p:1", pipeServer{answer: saysPrimary})
		w.set("x:1", pipeServer{answer: sentinelAmong()})
		cfg := w.config(Sentinel, "s:1")
		s := newProbes(t.Context(), cfg, SearchTimeout)
		defer s.close()
		f := newFinder(cfg, s)
		if _, err := f.find(t.Context(), "", false); err != nil {
			t.Fatal(err)
		}
		w.set("s:1", pipeServer{slow: 2 * HedgeDelay, answer: sentinelAmong("x:1")}) // so that x is listened to
		ctx, cancel := context.WithCancel(t.Context())
		reported, ended := make(chan string, 8), make(chan struct{})
		go func() {
			defer close(ended)
			f.watch(ctx, func(hint string) { reported <- hint })
		}()
		if hint := <-reported; hint != "x:1" {
			t.Fatalf("%s is listened to", hint)
		}
		// It is somebody else's from now on.
		foreign := sentinelAmong()
		w.set("x:1", pipeServer{answer: func(words []string) string {
			if words[1] == "GET-MASTER-ADDR-BY-NAME" {
				return "*2\r\n" + bulk("f") + bulk("1")
			}
			return foreign(words)
		}})
		w.set("f:1", pipeServer{answer: func(words []string) string {
			return strings.ReplaceAll(saysPrimary(words), "master_replid:A", "master_replid:F")
		}})
		if l, err := f.find(t.Context(), "x:1", false); err != nil || l.Shards[0].Primary != "p:1" {
			t.Fatal(l, err)
		}
		if hint := <-reported; hint != "s:1" {
			t.Errorf("%s is listened to", hint)
		}
		cancel()
		<-ended
	})
}
