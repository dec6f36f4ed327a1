//go:build !race

package pubsub

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/wire"
)

func TestSubs_Message_AllocatesNothing(t *testing.T) {
	m := newSubModel(t)
	m.connect()
	p := newProbe(m, "redisson_lock__channel:{some:lock:name:of:usual:length}")
	p.subscribe()
	m.drain()
	m.publish(p.ch.Name())
	v, _, err := wire.Decode(m.replies)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { m.subs.reply(&m.reader, m.conn, v) }); n != 0 {
		t.Fatalf("%v allocations per message", n)
	}
}
