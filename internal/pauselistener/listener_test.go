package pauselistener_test

import (
	"net"
	"testing"

	"github.com/pawl-lock/pawl/internal/pauselistener"
)

func TestListener_Paused_RefusesUntilItIsResumed(t *testing.T) {
	t.Parallel()
	d, err := pauselistener.Free("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := d.Addr().String()
	for range 3 {
		go func() {
			defer close(d.Ended)
			for {
				c, err := d.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("the listener is not paused: %v", err)
		}
		c.Close()
		d.Pause()
		<-d.Ended
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			t.Fatal("a paused listener accepts")
		}
		if d, err = d.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
}
