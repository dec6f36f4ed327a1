//go:build !race

package wire

import "testing"

func TestCodec_DecodeAndAppend_AllocateNothing(t *testing.T) {
	message := []byte("*3\r\n$7\r\nmessage\r\n$9\r\nchannel:1\r\n$1\r\n0\r\n")
	dst := make([]byte, 0, 1024)
	var sum int
	for name, f := range map[string]func(){
		"decode short int": func() { v, _, _ := Decode([]byte(":1\r\n")); sum += int(v.Int) },
		"decode long int":  func() { v, _, _ := Decode([]byte(":29990\r\n")); sum += int(v.Int) },
		"decode nil":       func() { _, n, _ := Decode([]byte("$-1\r\n")); sum += n },
		"decode status":    func() { v, _, _ := Decode([]byte("+OK\r\n")); sum += len(v.Bytes) },
		"decode error":     func() { v, _, _ := Decode([]byte("-NOSCRIPT no\r\n")); sum += len(v.Bytes) },
		"decode bulk":      func() { v, _, _ := Decode([]byte("$5\r\nhello\r\n")); sum += len(v.Bytes) },
		"ask for more":     func() { _, n, _ := Decode([]byte("$5\r\nhel")); sum += n },
		"decode pub/sub array": func() {
			v, _, _ := Decode(message)
			v.Each(func(i int, e Value) bool { sum += len(e.Bytes); return true })
		},
		"append command": func() { dst = AppendCommand(dst[:0], "EVALSHA", "sha", "1", "key") },
		"append int":     func() { dst = AppendBulkInt(dst[:0], -1234567890) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
