package execlock

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMessages_WriterBlocks_NobodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe() // nobody reads
		n := NewNotices(write)
		began := time.Now()
		for range 1000 {
			n.Say("line")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("saying it took %v", took)
		}
		n.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("closing took %v, want 1s", took)
		}
		read.Close() // ends the writer
		<-n.written
	})
}

func TestMessages_Close_WritesAllBefore(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	n := NewNotices(&out)
	n.Say("%d of %d", 1, 2)
	n.Say("%d of %d", 2, 2)
	n.Close(time.Minute)
	n.Say("too late")
	if got, want := out.String(), "pawl: 1 of 2\npawl: 2 of 2\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
