package lock

import (
	"testing"
	"unsafe"
)

// A program may have a million holds, and as many with a MaxHold or a context. The allocator
// has objects of 128 bytes, of 144, and then of 160.
func TestAHoldWithMoreFitsItsObjects(t *testing.T) {
	t.Parallel()
	for what, size := range map[string]struct{ is, want uintptr }{
		"Hold":      {unsafe.Sizeof(Hold{}), 128},
		"holdExtra": {unsafe.Sizeof(holdExtra{}), 144},
		"Resource":  {unsafe.Sizeof(Entry{}), 192},
	} {
		if size.is > size.want {
			t.Errorf("%s: %d bytes, want at most %d", what, size.is, size.want)
		}
	}
}
