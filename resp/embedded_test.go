package resp

import (
	"testing"

	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// The embedded server is what demos and users' tests run on.
func TestEmbeddedServerIsGoodEnough(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	eachTransport(t, func(t *testing.T, cfg Config) {
		cfg.Addr, cfg.Scripts = s.Addr(), []string{"return redis.call('publish', KEYS[1], ARGV[1])"}
		c := ready(t, cfg)
		rec := requesttest.NewRecorder()
		ch := NewChannel(t.Name(), rec)
		c.Subscribe(ch)
		rec.Await(t, Subscribed)
		if v, err := c.Do(testContext(t), "EVAL", cfg.Scripts[0], "1", t.Name(), "hi"); err != nil || v.Int != 1 {
			t.Fatalf("publish in a script: %+v, %v", v, err)
		}
		if got := rec.Await(t, Message); got != "hi" {
			t.Fatalf("message %q", got)
		}
		c.Unsubscribe(ch)
		eventually(t, "the channel is gone", func() bool { return c.Stats().Channels == 0 })
	})
}
