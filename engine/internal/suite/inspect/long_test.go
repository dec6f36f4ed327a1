package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// The names of a page of locks fit into a reply, however long they are.
func TestList_LongNames_AreListed(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected, testkit.Patient)
	const locks = 300
	s.Do("EVAL", `for i = 1, ARGV[1] do local k = string.rep('x', 65000) .. i
		redis.call('HSET', k, '0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11:39', 1); redis.call('PEXPIRE', k, 600000) end`, "0", fmt.Sprint(locks))
	before := e.Stats()
	n := 0
	for _, err := range e.List(testkit.Ctx(t), "*") {
		if err != nil {
			t.Error(err)
			break
		}
		n++
	}
	after := e.Stats()
	if n != locks || after.Reconnects != before.Reconnects {
		t.Errorf("%d locks, %d reconnects", n, after.Reconnects-before.Reconnects)
	}
}

// A reply that is too long to be read costs the connection. So it is not asked for again, and what others ask is.
func TestInspect_RepliesTooLong_AreAskedForOnce(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		prepare func(s *redistest.Server)
		look    func(e *engine.Engine) error
	}{
		"a text": {
			func(s *redistest.Server) { s.Do("SET", "x", strings.Repeat("x", 9<<20)) },
			func(e *engine.Engine) error {
				_, err := e.Inspect(testkit.Ctx(t), "x")
				if !errors.Is(err, engine.ErrUnavailable) || !errors.Is(err, resp.ErrProtocol) {
					return fmt.Errorf("want ErrProtocol, got %w", err)
				}
				return nil
			},
		},
		"the list of connections": {
			func(s *redistest.Server) {
				s.Do("EVAL", `redis.call('HSET', 'x', '0f5ae6ca-8d7b-4d28-a2f6-3d5f6b9c7a11:39', 1) redis.call('PEXPIRE', 'x', 600000)`, "0")
				client := testkit.Client(testkit.Open(t, s.URL()))
				if _, err := client.Do(context.Background(), "CLIENT", "SETNAME", strings.Repeat("n", 9<<20)); err != nil {
					t.Fatal(err)
				}
			},
			func(e *engine.Engine) error {
				info, err := e.Inspect(testkit.Ctx(t), "x")
				if err == nil && !errors.Is(info.Holders[0].Engine.Hidden, resp.ErrProtocol) {
					return fmt.Errorf("%+v", info.Holders[0].Engine)
				}
				return err
			},
		},
		"the fields of a hash": {
			func(s *redistest.Server) {
				s.Do("EVAL", `for i = 1, 1000 do redis.call('HSET', 'session', string.rep('f', 20000) .. i, 'v') end redis.call('PEXPIRE', 'session', 600000)`, "0")
			},
			func(e *engine.Engine) error {
				n := 0
				for _, err := range e.List(testkit.Ctx(t), "*") {
					if err != nil {
						return err
					}
					n++
				}
				if n != 1 {
					return fmt.Errorf("%d locks", n)
				}
				return nil
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			e := testkit.Open(t, s.URL(), inspected, testkit.Patient)
			testkit.MustLock(t, e.Mutex("lock"))
			c.prepare(s)
			before := e.Stats().Reconnects
			if err := c.look(e); err != nil {
				t.Error(err)
			}
			if _, err := e.Mutex("lock").State(testkit.Ctx(t)); err != nil { // by then it is connected again
				t.Error(err)
			}
			if n := e.Stats().Reconnects - before; n > 2 { // with that of messages
				t.Errorf("it cost %d connections", n)
			}
		})
	}
}
