package clock

import "testing"

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		_ = System().Now()
	}
}

func BenchmarkStamp(b *testing.B) {
	for b.Loop() {
		_ = System().Stamp()
	}
}
