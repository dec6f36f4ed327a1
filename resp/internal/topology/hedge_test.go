package topology

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

var errUnwell = errors.New("unwell")

// oracle answers questions by address: "silent" ones never, "unwell" ones with an error at
// once, others after that duration with their address.
type oracle struct{ asked, out atomic.Int64 }

func (o *oracle) ask(ctx context.Context, addr string) (string, error) {
	o.asked.Add(1)
	o.out.Add(1)
	defer o.out.Add(-1)
	switch addr {
	case "silent":
		<-ctx.Done()
		return "", context.Cause(ctx)
	case "unwell":
		return "", errUnwell
	}
	d, err := time.ParseDuration(addr)
	if err != nil {
		return "", err
	}
	select {
	case <-time.After(d):
		return addr, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// patient are probes without connections.
func patient() *probes { return &probes{clock: clock.System(), timeout: SearchTimeout} }

func TestAskFirst_SeveralAnswer_FirstGoodOneWins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addrs []string
		want  string // "": nobody
		took  time.Duration
		asked int64
	}{
		{[]string{"10ms", "1ms"}, "10ms", 10 * time.Millisecond, 1},
		{[]string{"silent", "10ms"}, "10ms", HedgeDelay + 10*time.Millisecond, 2},
		{[]string{"silent", "silent", "silent", "10ms"}, "10ms", 3*HedgeDelay + 10*time.Millisecond, 4},
		{[]string{"unwell", "unwell", "10ms"}, "10ms", 10 * time.Millisecond, 3},
		{[]string{"silent", "unwell", "10ms"}, "10ms", HedgeDelay + 10*time.Millisecond, 3},
		// A slow one still wins while the others are silent.
		{[]string{"900ms", "silent"}, "900ms", 900 * time.Millisecond, 2},
		{[]string{"unwell", "unwell"}, "", 0, 2},
		// The last one gets a second, the others more.
		{[]string{"silent", "silent"}, "", HedgeDelay + SearchTimeout, 2},
		{[]string{"silent", "unwell"}, "", HedgeDelay + SearchTimeout, 2},
		{nil, "", 0, 0},
	} {
		t.Run(fmt.Sprint(c.addrs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o oracle
				start := time.Now()
				got, err := askFirst(t.Context(), patient(), c.addrs, o.ask)
				if got != c.want || (err == nil) != (c.want != "") {
					t.Errorf("%q, %v", got, err)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if o.asked.Load() != c.asked || o.out.Load() != 0 {
					t.Errorf("%d asked, want %d; %d still out", o.asked.Load(), c.asked, o.out.Load())
				}
			})
		})
	}
}

func TestAskAll_SilentServers_AreNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o oracle
		start := time.Now()
		results := askAll(t.Context(), patient(), []string{"silent", "20ms", "unwell", "10ms"}, o.ask)
		if took := time.Since(start); took != SearchTimeout || o.out.Load() != 0 {
			t.Errorf("it took %v, %d are out", took, o.out.Load())
		}
		text := ""
		for _, f := range results {
			text += fmt.Sprintf("%s %v; ", f.addr, f.err)
		}
		if want := "unwell unwell; 10ms <nil>; 20ms <nil>; silent no answer yet, after 1s; "; text != want {
			t.Errorf("%s", text)
		}
		start = time.Now()
		askAll(t.Context(), patient(), []string{"20ms", "unwell"}, o.ask)
		if took := time.Since(start); took != 20*time.Millisecond {
			t.Errorf("when all had answered it went on for %v", took)
		}
	})
}

func TestHedge_ContextEnds_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		var o oracle
		start := time.Now()
		_, err := askFirst(ctx, patient(), []string{"silent", "silent"}, o.ask)
		if took := time.Since(start); !errors.Is(err, context.Canceled) || took != 10*time.Millisecond || o.out.Load() != 0 {
			t.Errorf("%v after %v, %d are out", err, took, o.out.Load())
		}
	})
}
