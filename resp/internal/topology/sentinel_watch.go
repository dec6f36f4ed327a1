package topology

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/reply"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The pauses between attempts to listen to a sentinel.
const (
	listenAgainMin = 10 * time.Millisecond
	listenAgainMax = time.Second
)

// watch listens to one sentinel, or to the next one when that is gone; whenever it
// begins to listen, something may have happened before.
func (t *sentinelFinder) watch(ctx context.Context, changed func(hint string)) {
	for pause := listenAgainMin; ctx.Err() == nil; pause = min(2*pause, listenAgainMax) {
		for _, addr := range t.candidates("") {
			begun := t.cfg.Clock.Now()
			if t.listen(ctx, addr, changed) {
				if t.cfg.Clock.Now().Sub(begun) > listenAgainMax {
					pause = listenAgainMin
				}
				break // begin with the best one again
			}
		}
		sleep(ctx, pause, nil)
	}
}

// listen follows one sentinel until it is gone; false if it could not be reached, or
// refuses. After a refusal it is left alone for a while.
func (t *sentinelFinder) listen(ctx context.Context, addr string, changed func(hint string)) bool {
	sentinels := t.cfg.Sentinels
	began := t.cfg.Clock.Now()
	if !sentinels.MayListen(addr) {
		return false
	}
	conn, err := sentinels.Connect(ctx, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err = conn.Write(wire.AppendCommand(nil, "SUBSCRIBE", "+switch-master"))
	in := reply.Stream{Conn: conn}
	for err == nil {
		// A sentinel whose machine is gone says nothing; TCP's keep-alive finds out.
		var v wire.Value
		if v, err = in.Next(); err != nil {
			break
		}
		e := reply.Elements(v)
		switch {
		case v.Kind == wire.KindError:
			err := &unanswered{"SUBSCRIBE", addr, wire.NewServerError(v.Bytes)}
			sentinels.Listened(addr, began, err)
			if !t.warned {
				t.warned = true
				t.cfg.Logger.Warn("resp: a sentinel refuses to announce failovers, so they are noticed later", "err", err)
			}
			return false
		case len(e) == 3 && string(e[0].Bytes) == "subscribe":
			sentinels.Listened(addr, began, nil)
			t.warned = false
			changed(addr)
		case len(e) == 3 && string(e[0].Bytes) == "message" && strings.HasPrefix(string(e[2].Bytes), t.cfg.Master+" "):
			changed(addr)
		}
	}
	return !errors.Is(err, net.ErrClosed)
}
