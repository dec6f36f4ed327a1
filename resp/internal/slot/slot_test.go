package slot

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// The server says which slot a key has.
func TestOf_Keys_HaveTheServersSlot(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Line("cluster-enabled yes"))
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"", "a", "{}", "{}a", "a{}", "a{b", "a}b", "a}b{c}", "{a}{b}", "{{a}}", "a{b}c{d}", "{a", "}{", "{\x00}", "123456789",
		"foo{bar}", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "\xff\xfe", strings.Repeat("x", 5000) + "{y}"}
	for range 500 {
		b := make([]byte, random.IntN(12))
		for i := range b {
			b[i] = "{}ab\x00\xff"[random.IntN(6)]
		}
		keys = append(keys, string(b))
	}
	for _, key := range keys {
		if want := s.Do("CLUSTER", "KEYSLOT", key); int64(Of(key)) != want {
			t.Errorf("%q: %d, the server says %v", key, Of(key), want)
		}
	}
}
