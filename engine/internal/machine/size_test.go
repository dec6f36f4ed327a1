package machine

import (
	"testing"
	"unsafe"
)

// A program may have a million holds, and as many with a MaxHold or a context. The allocator
// has objects of 128 bytes, and then of 144.
func TestAHoldWithMoreFitsItsObjects(t *testing.T) {
	t.Parallel()
	for what, size := range map[string]uintptr{"Hold": unsafe.Sizeof(Hold{}), "holdExtra": unsafe.Sizeof(holdExtra{})} {
		if size > 128 {
			t.Errorf("%s: %d bytes, want at most 128", what, size)
		}
	}
}
