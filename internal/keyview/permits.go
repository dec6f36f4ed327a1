package keyview

import (
	"context"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// Permit is one that is taken.
type Permit struct {
	ID  string        // as engine.Hold.IDs has it
	TTL time.Duration // what is left of its lease, negative if it has none
}

// forever is the lease, in ms, from which on it counts as none: a Duration has no room for it.
// Redisson's permits without a lease have thirty thousand years.
const forever = math.MaxInt64 / int64(time.Millisecond)

// permits looks for the holders of permits of a count. Without any, it stays a count. Those whose lease
// has ended count as given back, as for everybody who asks for one.
func (l *Viewer) permits(ctx context.Context, s *View) error {
	// The clock comes first: what ends between the two is shown, and not counted twice.
	clock, err := l.ask(ctx, s, "TIME")
	if err != nil || s.Hidden != nil {
		return err
	}
	held, err := l.ask(ctx, s, "ZRANGE", tagged(s.Name)+":timeout", "0", "-1", "WITHSCORES")
	if err != nil || held.Len() == 0 {
		return err
	}
	s.Kind, s.Available, s.Count = Permits, s.Count, 0
	now := float64(milliseconds(clock))
	var id []byte
	held.Each(func(i int, e resp.Value) bool {
		if i%2 == 0 {
			id = e.Bytes
			return true
		}
		switch end, err := strconv.ParseFloat(string(e.Bytes), 64); {
		case err != nil || end-now >= float64(forever):
			s.Taken = append(s.Taken, Permit{hex.EncodeToString(id), -1})
		case end <= now:
			s.Available++
		default:
			s.Taken = append(s.Taken, Permit{hex.EncodeToString(id), time.Duration((end - now) * float64(time.Millisecond))})
		}
		return true
	})
	return nil
}

// milliseconds is the answer to TIME, in ms since 1970.
func milliseconds(v resp.Value) (ms int64) {
	v.Each(func(i int, e resp.Value) bool {
		if i == 0 {
			ms = 1000 * number(e)
		} else {
			ms += number(e) / 1000 // microseconds
		}
		return true
	})
	return ms
}

// number is that of a text; 0 if there is none.
func number(v resp.Value) int64 {
	n, _ := strconv.ParseInt(string(v.Bytes), 10, 64)
	return n
}
