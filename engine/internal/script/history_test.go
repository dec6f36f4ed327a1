package script

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// A history is what a few clients do to one lock over a network that loses replies
// and delivers commands twice, and late. Each client behaves as the engine does: a
// fresh owner per acquisition, none used again after an acquire in doubt, every
// other command repeated until it is answered.
//
// Checked at every step: of the owners that believe to hold the lock at most one is
// right by the server, and no owner that believes so has been deprived of it. At the
// end, after every in-doubt owner was released, the hash is gone.
type history struct {
	t     *testing.T
	c     *caller
	rng   *rand.Rand
	key   string
	ids   int64
	holds map[Owner]int // live holds by the clients' own belief: owner -> count
	stale []func([]byte, resp.ScriptForm) []byte
	burnt []Owner
	log   []string
}

// send delivers a command, or not quite. An acquire is written once, so there is
// never a second copy of one that was answered.
func (h *history) send(name string, once bool, encode func([]byte, resp.ScriptForm) []byte) (reply int64, lost bool) {
	// A lost command may be executed later; a repeated one is executed twice.
	switch h.rng.IntN(10) {
	case 0:
		h.log = append(h.log, name+" (lost, to come later)")
		h.stale = append(h.stale, encode)
		return 0, true
	case 1:
		v := h.exec(encode)
		h.log = append(h.log, fmt.Sprintf("%s -> %d (reply lost)", name, v))
		return 0, true
	case 2:
		if !once {
			h.stale = append(h.stale, encode) // a copy stays in some buffer
		}
	}
	v := h.exec(encode)
	h.log = append(h.log, fmt.Sprintf("%s -> %d", name, v))
	return v, false
}

func (h *history) exec(encode func([]byte, resp.ScriptForm) []byte) int64 {
	v, err := h.c.run(encode)
	if err != nil {
		h.t.Fatalf("%v\n%v", err, h.log)
	}
	code := v.Int
	v.Each(func(_ int, e resp.Value) bool { code = e.Int; return true })
	return code
}

// until repeats a command that may be repeated until it is answered.
func (h *history) until(name string, encode func([]byte, resp.ScriptForm) []byte) int64 {
	for {
		if v, lost := h.send(name, false, encode); !lost {
			return v
		}
	}
}

func (h *history) encodeAcquire(o Owner) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte { return AppendAcquire(b, f, h.key, o, time.Minute) }
}

func (h *history) encodeRelease(o Owner) func([]byte, resp.ScriptForm) []byte {
	return func(b []byte, f resp.ScriptForm) []byte {
		return AppendRelease(b, f, h.key, o, Channel{Prefix: "c", Lock: h.key, Verb: "PUBLISH"})
	}
}

func (h *history) step() {
	switch op := h.rng.IntN(10); {
	case op < 3 && len(h.holds) == 0: // somebody acquires
		h.ids++
		o := Owner{Engine: fmt.Sprintf("client-%d", h.rng.IntN(3)), ID: h.ids}
		v, lost := h.send(fmt.Sprintf("acquire %v", o), true, h.encodeAcquire(o))
		switch {
		case lost:
			h.burnt = append(h.burnt, o)
			h.until(fmt.Sprintf("release burnt %v", o), h.encodeRelease(o))
		case v == Granted:
			h.holds[o] = 1
		}
	case op < 3: // a contender, while it is held
		h.ids++
		o := Owner{Engine: "contender", ID: h.ids}
		v, lost := h.send(fmt.Sprintf("acquire %v", o), true, h.encodeAcquire(o))
		if lost {
			h.burnt = append(h.burnt, o)
			h.until(fmt.Sprintf("release burnt %v", o), h.encodeRelease(o))
		} else if v == Granted {
			h.t.Fatalf("double hold: %v came in beside %v\n%v", o, h.holds, h.log)
		}
	case op < 8:
		for o, n := range h.holds {
			switch h.rng.IntN(4) {
			case 0:
				if v := h.until(fmt.Sprintf("reenter %v %d", o, n+1), func(b []byte, f resp.ScriptForm) []byte {
					return AppendReenter(b, f, h.key, o, time.Minute, n+1)
				}); v != Granted {
					h.t.Fatalf("re-enter of a live hold: %d\n%v", v, h.log)
				}
				h.holds[o] = n + 1
			case 1:
				if v := h.until(fmt.Sprintf("renew %v", o), func(b []byte, f resp.ScriptForm) []byte {
					return AppendRenew(b, f, []Renewal{{h.key, o, time.Minute}})
				}); v != Renewed {
					h.t.Fatalf("renewal of a live hold: %d\n%v", v, h.log)
				}
			case 2:
				if n > 1 {
					if v := h.until(fmt.Sprintf("leave %v %d", o, n-1), func(b []byte, f resp.ScriptForm) []byte {
						return AppendLeave(b, f, h.key, o, n-1)
					}); v != StillHeld {
						h.t.Fatalf("leave of a live hold: %d\n%v", v, h.log)
					}
					h.holds[o] = n - 1
				}
			default:
				h.until(fmt.Sprintf("release %v", o), h.encodeRelease(o))
				delete(h.holds, o)
			}
			break
		}
	default: // an old copy arrives
		if len(h.stale) > 0 {
			i := h.rng.IntN(len(h.stale))
			v := h.exec(h.stale[i])
			h.log = append(h.log, fmt.Sprintf("stale %d -> %d", i, v))
			h.stale = append(h.stale[:i], h.stale[i+1:]...)
			h.settleBurnt()
		}
	}
}

// settleBurnt stands for the second release of an in-doubt owner, which the engine
// sends when a copy of its acquire may have come in.
func (h *history) settleBurnt() {
	for _, o := range h.burnt {
		h.exec(h.encodeRelease(o))
	}
}

func (h *history) run(steps int) {
	for range steps {
		h.step()
	}
	for o := range h.holds {
		h.until(fmt.Sprintf("release %v", o), h.encodeRelease(o))
	}
	for _, encode := range h.stale {
		h.exec(encode)
	}
	h.settleBurnt()
	if left := h.c.s.Do("EXISTS", h.key); left != int64(0) {
		h.t.Fatalf("left after the last unlock: %v\n%v", h.c.s.Do("HGETALL", h.key), h.log)
	}
}

func TestRandomHistoriesWithLostAndStaleCommands(t *testing.T) {
	t.Parallel()
	histories := 4_000
	if testing.Short() {
		histories = 1_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newCaller(t)
	const workers = 8
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < histories && !t.Failed(); i += workers {
				h := &history{
					t: t, c: c, rng: rand.New(rand.NewPCG(seed, uint64(i))),
					key: fmt.Sprintf("h%d", i), holds: make(map[Owner]int),
				}
				h.run(20)
			}
		})
	}
	wg.Wait()
}
