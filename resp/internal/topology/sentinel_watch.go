package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The pauses between attempts to listen to a sentinel.
const (
	listenAgainMin = 10 * time.Millisecond
	listenAgainMax = time.Second
)

// watched is a sentinel that announces failovers.
type watched struct {
	addr string
	in   replyreader.Stream
}

// watch listens to one sentinel, or to the next one when that is gone; whenever it
// begins to listen, something may have happened before.
func (t *sentinelFinder) watch(ctx context.Context, changed func(hint string)) {
	for pause := listenAgainMin; ctx.Err() == nil; pause = min(2*pause, listenAgainMax) {
		begun := t.cfg.Clock.Now()
		if w, ok := t.subscribeToOne(ctx); ok {
			t.listen(ctx, w, changed)
			if t.cfg.Clock.Now().Sub(begun) > listenAgainMax {
				pause = listenAgainMin
			}
		}
		sleep(ctx, pause, nil)
	}
}

// subscribeToOne subscribes to the first sentinel that lets it, by a race as that of a search:
// those that are listed may be gone. It does not ask those that belong to another deployment.
func (t *sentinelFinder) subscribeToOne(ctx context.Context) (w *watched, ok bool) {
	addrs := slices.DeleteFunc(t.candidates(""), t.cfg.Identity.foreign)
	if len(addrs) == 0 {
		return nil, false
	}
	good := func(f result[*watched]) bool { return f.err == nil }
	for _, f := range hedge(ctx, addrs, HedgeDelay, t.cfg.DialTimeout, t.subscribe, good) {
		switch {
		case !good(f):
		case ok: // overtaken by a moment
			hangUp(f.answer.in.Conn)
		default:
			w, ok = f.answer, true
		}
	}
	return w, ok
}

// errLeftAlone is for a sentinel that has refused a moment ago.
var errLeftAlone = errors.New("resp: the sentinel has refused, and is left alone for a while")

// subscribe subscribes to the announcements of the sentinel at addr. After a refusal that one is
// left alone for a while.
func (t *sentinelFinder) subscribe(ctx context.Context, addr string) (*watched, error) {
	sentinels := t.cfg.Sentinels
	asked := t.cfg.Clock.Now()
	if !sentinels.MayListen(addr) {
		return nil, errLeftAlone
	}
	conn, err := sentinels.Connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { hangUp(conn) })
	w := &watched{addr, replyreader.Stream{Conn: conn}}
	var v wire.Value
	if _, err = conn.Write(wire.AppendCommand(nil, "SUBSCRIBE", "+switch-master")); err == nil {
		v, err = w.in.Next()
	}
	switch e := replyreader.Elements(v); {
	case err != nil:
	case v.Kind == wire.KindError:
		err = &unanswered{"SUBSCRIBE", addr, wire.NewServerError(v.Bytes)}
		sentinels.Listened(addr, asked, err)
		t.warnOfRefusal(err)
	case len(e) != 3 || string(e[0].Bytes) != "subscribe":
		err = fmt.Errorf("%w: SUBSCRIBE with %s was answered with something else", wire.ErrProtocol, addr)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx) // conn is closed, or about to be
	}
	if err != nil {
		hangUp(conn)
		return nil, err
	}
	sentinels.Listened(addr, asked, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.warned = false
	return w, nil
}

// warnOfRefusal says, once, that a sentinel refuses to announce failovers.
func (t *sentinelFinder) warnOfRefusal(err error) {
	t.mu.Lock()
	warned := t.mu.warned
	t.mu.warned = true
	t.mu.Unlock()
	if !warned {
		t.cfg.Logger.Warn("resp: a sentinel refuses to announce failovers, so they are noticed later", "err", err)
	}
}

// listen follows one sentinel until it is gone, or turns out to be another deployment's.
func (t *sentinelFinder) listen(ctx context.Context, w *watched, changed func(hint string)) {
	defer hangUp(w.in.Conn)
	defer context.AfterFunc(ctx, func() { hangUp(w.in.Conn) })()
	t.mu.Lock()
	t.mu.watched = w
	t.mu.Unlock()
	t.leaveForeign() // a search may have found that out since
	changed(w.addr)  // the search checks this sentinel
	for ctx.Err() == nil {
		// A sentinel whose machine is gone says nothing; TCP's keep-alive finds out.
		v, err := w.in.Next()
		if err != nil {
			return
		}
		e := replyreader.Elements(v)
		if len(e) == 3 && string(e[0].Bytes) == "message" && strings.HasPrefix(string(e[2].Bytes), t.cfg.Master+" ") {
			changed(w.addr)
		}
	}
}

// leaveForeign ends the connection to a sentinel that belongs to another deployment.
func (t *sentinelFinder) leaveForeign() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.mu.watched; w != nil && t.cfg.Identity.foreign(w.addr) {
		hangUp(w.in.Conn)
	}
}
