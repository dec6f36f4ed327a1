package pipeline

import (
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestLaneDeliversReplies(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		l, server := w.attached(nil, nil)
		go sockettest.Echo(server)
		for i := range 100 {
			c := requesttest.NewCall(i)
			l.Submit(c)
			r := c.Await(t)
			if r.Err != nil || r.Value.Kind != wire.KindInt || r.Value.Int != int64(i) {
				t.Fatalf("call %d: got %+v", i, r)
			}
			if r.Sent == 0 || r.Now.Before(r.Sent) {
				t.Fatalf("call %d: sent %v, answered %v", i, r.Sent, r.Now)
			}
		}
	})
}
