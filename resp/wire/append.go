package wire

import (
	"strconv"

	"github.com/tidwall/redcon"
)

// AppendCommand appends a whole command: an array of its words.
func AppendCommand(dst []byte, words ...string) []byte {
	dst = AppendArrayHeader(dst, len(words))
	for _, w := range words {
		dst = AppendBulk(dst, w)
	}
	return dst
}

// AppendArrayHeader appends the header of a command of n words; the words
// follow as bulks.
func AppendArrayHeader(dst []byte, n int) []byte { return redcon.AppendArray(dst, n) }

// AppendBulk appends one word.
func AppendBulk(dst []byte, s string) []byte { return redcon.AppendBulkString(dst, s) }

// AppendBulkBytes appends one word.
func AppendBulkBytes(dst, b []byte) []byte { return redcon.AppendBulk(dst, b) }

// AppendBulkInt appends x in decimal as one word. Unlike redcon's function of
// that name it formats on the stack.
func AppendBulkInt(dst []byte, x int64) []byte {
	var digits [len("-9223372036854775808")]byte
	return redcon.AppendBulk(dst, strconv.AppendInt(digits[:0], x, 10))
}
