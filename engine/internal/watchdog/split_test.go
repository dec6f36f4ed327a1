package watchdog

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// otherWords are refusals of several keys that no table has.
var otherWords = []string{
	"ERR 'EVAL' command keys must in same slot",
	"ERR Number of keys can't be greater than 1 in EVAL",
	"ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
	"forbidden: cross-shard",
}

func refusal(text string) *resp.ServerError { return wire.NewServerError([]byte(text)) }

func TestRenewer_SeveralRefusedInAnyWords_GoOneByOneAndThenBySlot(t *testing.T) {
	t.Parallel()
	for _, text := range otherWords {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			holds := l.holds(60, time.Second) // of three slots
			l.advance(time.Second)
			l.fail(l.take(1)[0], refusal(text))
			for _, s := range l.take(60) {
				l.answer(s, all(script.Renewed))
			}
			for _, s := range holds {
				if s.times() != 1 || !s.live() {
					t.Errorf("hold %d: renewed %d times, live %v", s.n, s.times(), s.live())
				}
			}
			l.holds(60, time.Second)
			l.advance(time.Second)
			for _, s := range l.take(3) {
				l.answer(s, all(script.Renewed))
			}

			l.r.Resume() // another connection, perhaps to another server
			l.holds(60, time.Second)
			l.advance(time.Second)
			l.take(1)
		})
	}
}

// If a part is refused as well it was not their being together, and nothing is learnt.
func TestRenewer_OneOfSeveralRefused_LeavesTheOthersTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.holds(60, time.Second) // of three slots
	l.advance(time.Second)
	l.fail(l.take(1)[0], refusal("ERR the name of a key is reserved"))
	for i, s := range l.take(60) {
		if i == 7 {
			l.fail(s, refusal("ERR the name of a key is reserved"))
			continue
		}
		l.answer(s, all(script.Renewed))
	}
	if l.r.slotted.Load() {
		t.Error("from now on a script has locks of one slot")
	}
}

// What is refused for now says nothing of the command: it is sent again as it was.
func TestRenewer_SeveralRefusedForNow_StayTogether(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "CLUSTERDOWN The cluster is down", "NOAUTH Authentication required."} {
		l := newLab(t)
		l.holds(60, time.Second)
		l.advance(time.Second)
		l.fail(l.take(1)[0], refusal(text))
		l.advance(l.r.cfg.Lease / 100)
		if s := l.take(1)[0]; len(s.chunk.list) != 60 {
			t.Errorf("%s: %d locks in the next script", text, len(s.chunk.list))
		}
	}
}

// A server that refuses the command itself, alone too, is not flooded with scripts of one lock.
func TestRenewer_CommandRefusedInAnyWords_IsAskedForSeldom(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	holds := l.holds(batchSize, 10*time.Second)
	l.advance(10 * time.Second)
	for holds[0].live() {
		for _, s := range l.take(len(l.flying())) {
			l.fail(s, refusal("ERR command 'EVAL' is not supported"))
		}
		l.advance(100 * time.Millisecond)
	}
	if n := l.sent(); n < 3*batchSize || n > 6*batchSize {
		t.Errorf("%d scripts for %d locks in 20 s", n, batchSize)
	}
}
