package engine

import (
	"errors"
	"testing"
	"time"
)

// A writer waits for a reader of its process, whose lock ends without a message. As soon as the reader
// knows, the writer tries: it was told of a lease of an hour.
func TestAWriterTriesWhenAReaderOfItsProcessEndsInSilence(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, del func(), refuse func(), reader *Hold){
		"deleted, the reader unlocks": func(t *testing.T, del, _ func(), reader *Hold) {
			del()
			if err := reader.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		},
		"deleted, the reader extends": func(t *testing.T, del, _ func(), reader *Hold) {
			del()
			if err := reader.Extend(ctxT(t), time.Hour); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		},
		"deleted, a re-entry unlocks": func(t *testing.T, del, _ func(), reader *Hold) {
			inner, err := reader.h.engine().RWMutex("x").Reader().TryLock(reader.Context(ctxT(t)))
			if err != nil {
				t.Fatal(err)
			}
			del()
			if err := inner.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		},
		"the message is refused": func(t *testing.T, _, refuse func(), reader *Hold) {
			refuse()
			mustUnlock(t, reader)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			e := open(t, s.URL())
			reader := mustLock(t, e.RWMutex("x").Reader(), Lease(time.Hour))
			writer := e.RWMutex("x").Writer().LockAsync(ctxT(t))
			// It tries once more when it listens: then it sleeps.
			tries := func() int64 { return s.CommandStats()["evalsha"] }
			eventually(t, "it listens", func() bool { return e.table.Client.Stats().ChannelsConfirmed > 0 })
			eventually(t, "it has tried again", func() bool { return tries() >= 3 && e.Stats().InFlight == 0 })
			end(t, func() { s.Do("DEL", "x") }, func() { s.Do("ACL", "SETUSER", "default", "-publish", "-spublish") }, reader)
			h, err := writer.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, h)
		})
	}
}
