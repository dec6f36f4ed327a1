package latency

import (
	"testing"
	"time"
)

func TestHistogramsOfManyWorkersAreAsFineAsThoseOfFew(t *testing.T) {
	t.Parallel()
	const workers = 4 * maxRecorders
	all, exact := Recorders(workers), NewHistogram()
	if len(all) != maxRecorders {
		t.Fatalf("%d histograms", len(all))
	}
	for i := range 100_000 {
		d := 100*time.Microsecond + time.Duration(i)*37
		all[i%workers%len(all)].Record(d)
		Record(exact, d)
	}
	for _, q := range []float64{50, 99, 99.9} {
		if got, want := Merged(all).ValueAtQuantile(q), exact.ValueAtQuantile(q); got != want {
			t.Errorf("p%v is %d, want %d", q, got, want)
		}
	}
}
