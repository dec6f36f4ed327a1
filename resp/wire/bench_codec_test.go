package wire

import "testing"

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct{ name, in string }{
		{"one-digit", ":1\r\n"},
		{"int", ":29990\r\n"},
		{"nil", "$-1\r\n"},
		{"OK", "+OK\r\n"},
		{"error", "-NOSCRIPT No matching script. Please use EVAL.\r\n"},
		{"message", "*3\r\n$7\r\nmessage\r\n$9\r\nchannel:1\r\n$1\r\n0\r\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			in := []byte(c.in)
			var d Decoder
			b.ReportAllocs()
			for b.Loop() {
				v, _, _ := d.Decode(in)
				if v.Kind == KindArray {
					v.Each(func(int, Value) bool { return true })
				}
			}
		})
	}
}

func BenchmarkAppendCommand(b *testing.B) {
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendArrayHeader(dst[:0], 6)
		dst = AppendBulk(dst, "EVALSHA")
		dst = AppendBulk(dst, "0123456789abcdef0123456789abcdef01234567")
		dst = AppendBulk(dst, "1")
		dst = AppendBulk(dst, "orders:42")
		dst = AppendBulkInt(dst, 30000)
		dst = AppendBulk(dst, "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f:1234567890123456789")
	}
}
