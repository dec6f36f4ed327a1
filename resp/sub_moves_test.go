package resp

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// Channels come and go while their slots move to and fro and connections break. In
// the end each that is wanted is subscribed at its slot's node, once, and no other.
func TestChannelsThatComeAndGoWhileSlotsMove(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Log("seed", seed)
	f := newFakeCluster(t, 3)
	c := f.client(t)
	const workers, each = 4, 60
	type place struct {
		ch     *Channel
		wanted bool
	}
	places := make([]place, workers*each)
	var all requesttest.EventCounter
	for i := range places {
		places[i].ch = NewChannel(fmt.Sprint("channel", i), &all)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		mine := places[w*each : (w+1)*each]
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p := &mine[random.IntN(each)]
				if p.wanted = !p.wanted; p.wanted {
					c.Subscribe(p.ch)
				} else {
					c.Unsubscribe(p.ch)
				}
				if random.IntN(20) == 0 {
					time.Sleep(time.Millisecond) // a breath, so that commands get out in between
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 99))
	var owners [3]int
	for range 8 {
		for i := range owners {
			owners[i] = random.IntN(3)
		}
		f.serve(owners[:]...)
		looks := f.count(fakenode.Is("CLUSTER", "SLOTS"))
		c.explorer.RefreshNow("")
		f.nodes[random.IntN(3)].ResetAll()
		eventually(t, "a look", func() bool { return f.count(fakenode.Is("CLUSTER", "SLOTS")) > looks })
	}
	close(stop)
	wg.Wait()
	c.explorer.RefreshNow("")

	for _, p := range places {
		part := 0
		for part < 2 && int(SlotOf(p.ch.Name())) >= slot.Count*(part+1)/3 {
			part++
		}
		owner := owners[part]
		eventually(t, fmt.Sprintf("%s is where it belongs, wanted %v", p.ch.Name(), p.wanted), func() bool {
			right := true
			for i, n := range f.nodes {
				want := 0
				if p.wanted && i == owner {
					want = 1
				}
				right = right && n.Publish(p.ch.Name(), "hi") == want
			}
			return right
		})
	}
	if n := c.channels.Waiting(); n != 0 {
		t.Errorf("%d topics are left without a place", n)
	}
}
