package lock

import (
	"errors"
	"runtime"
	"testing"
)

// Many waiters that fail together, since the server refuses their channel or the engine is closed, are told by their
// own links: the shard, whose lock is held meanwhile, needs no room for each of them.
func TestEffects_ManyWaitersFailTogether_NeedNoRoomEach(t *testing.T) {
	const n = 20_000
	for what, fail := range map[string]func(r *Entry, rd *Ready){
		"the channel is refused": func(r *Entry, rd *Ready) { r.sub.ChannelRefused("channel", errors.New("NOPERM"), rd) },
		"the engine is closed":   (*Entry).StopWaiting,
	} {
		l := newLab(t)
		r := l.name()
		l.ask(r, false)
		l.reply(r, Outcome{Reply: HeldByOther, TTL: LongestSleep})
		for range n {
			l.ask(r, false)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var rd Ready
		fail(r, &rd)
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 8 {
			t.Errorf("%s: %d effects of %d waiters, %d bytes each", what, len(l.effects), n, each)
		}
		l.settle()
		tell(&rd)
	}
}
