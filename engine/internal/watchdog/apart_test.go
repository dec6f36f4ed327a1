package watchdog

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
)

// apart is readers whose script a node has refused because their keys are at two nodes: they
// are renewed one by one then, and each key by key.
func (l *lab) apart(n int) (readers []*subject, out []*sending) {
	l.t.Helper()
	for i := range n {
		s := l.subject(i)
		s.k = kind.RenewsReaders
		l.r.Join(&s.m, l.clock.Now().Add(10*time.Second))
		readers = append(readers, s)
	}
	l.advance(10 * time.Second)
	again := &resp.ServerError{Code: "TRYAGAIN"}
	out = l.take(1)
	if n > 1 {
		l.fail(out[0], again)
		out = l.take(n)
	}
	for _, s := range out {
		l.fail(s, again)
	}
	return readers, l.take(n)
}

// calls names the script that is out.
func (s *sending) calls(want *script.Script) bool {
	return strings.Contains(string(s.chunk.AppendCommand(nil, resp.EvalSHA)), want.SHA)
}

func TestReadersWhoseKeysAreApartAreRenewedKeyByKey(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	readers, out := l.apart(2)
	began := l.clock.Now()
	for _, s := range out {
		if !s.calls(script.Renew) {
			t.Fatal("the hash is not renewed first")
		}
		l.answer(s, all(script.Renewed))
	}
	if readers[0].times() != 0 {
		t.Error("renewed, with its timeout key not asked for")
	}
	l.advance(time.Second)
	for _, s := range l.take(2) {
		if !s.calls(script.Raise) {
			t.Fatal("the timeout key is not renewed next")
		}
		l.answer(s, all(script.Renewed))
	}
	if readers[0].times() != 0 {
		t.Error("renewed, with a hash that a reader who left may have made shorter")
	}
	for _, s := range l.take(2) {
		if !s.calls(script.Renew) {
			t.Fatal("the hash is not renewed once more")
		}
		l.answer(s, all(script.Renewed))
	}
	for _, r := range readers {
		if r.times() != 1 || r.renewed[0] != began {
			t.Errorf("renewed %v, want once, as of %v, when the first key was", r.renewed, began)
		}
	}
	// The next one is all at once again.
	l.advance(12 * time.Second)
	for _, s := range l.take(len(l.flying())) {
		if !s.calls(script.ReadRenew) {
			t.Error("they go on key by key")
		}
		l.answer(s, all(script.Renewed))
	}
}

func TestAReaderWhoseHashIsGoneIsReportedKeyByKeyToo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	readers, out := l.apart(1)
	l.answer(out[0], all(script.Gone))
	if readers[0].live() || len(readers[0].gone) != 1 {
		t.Errorf("gone %v", readers[0].gone)
	}
	l.empty()
}

// Another reader leaves between the commands, finds that the timeout key has ended, and takes the
// hash away.
func TestAReaderWhoseHashGoesBetweenTheCommandsIsReported(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	readers, out := l.apart(1)
	l.answer(out[0], all(script.Renewed))
	l.answer(l.take(1)[0], all(script.Renewed))
	l.answer(l.take(1)[0], all(script.Gone))
	if readers[0].live() || readers[0].times() != 0 {
		t.Errorf("live %v, renewed %d times", readers[0].live(), readers[0].times())
	}
	l.empty()
}

// A connection that breaks, or a timeout key that is not there, has all of it tried again soon.
func TestAReaderIsAskedForAgainIfOneOfItsKeysIsNotRenewed(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{true, false} {
		l := newLab(t)
		readers, out := l.apart(1)
		l.answer(out[0], all(script.Renewed))
		if second := l.take(1)[0]; lost {
			l.fail(second, resp.OutcomeUnknown(resp.ErrDown))
		} else {
			l.answer(second, all(script.Refused))
		}
		if readers[0].times() != 0 || !readers[0].live() {
			t.Fatalf("renewed %d times, live %v", readers[0].times(), readers[0].live())
		}
		l.advance(2 * time.Second)
		s := l.take(1)[0]
		if !s.calls(script.ReadRenew) {
			t.Error("not all of it is tried again")
		}
		l.answer(s, all(script.Renewed))
		if readers[0].times() != 1 {
			t.Error("it is not renewed")
		}
	}
}
