package resp

import (
	"log/slog"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestAPlainAddressThatIsANodeOfAClusterIsWarnedOf(t *testing.T) {
	t.Parallel()
	warned := func(addr string) int {
		var log syncBuffer
		ready(t, Config{Addr: addr, Lanes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		return log.count("redis+cluster://")
	}
	if n := warned(redistest.StartCluster(t, false).Nodes()[0].Addr()); n != 1 {
		t.Errorf("a node of a cluster: warned %d times, want once", n)
	}
	if n := warned(redistest.Start(t).Addr()); n != 0 {
		t.Errorf("a single server: warned %d times", n)
	}
	mute := fakenode.New(t)
	mute.On(fakenode.Is("HELLO"), fakenode.Error("NOPERM this user has no permissions to run the 'hello' command"))
	if n := warned(mute.Addr()); n != 0 {
		t.Errorf("a server that does not say: warned %d times", n)
	}
}
