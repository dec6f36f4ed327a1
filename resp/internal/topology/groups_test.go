package topology

import (
	"slices"
	"testing"
)

func TestGroup_ReplicasAway_AreNamed(t *testing.T) {
	t.Parallel()
	g := &Group{Replicas: 2, peers: []peer{
		{[]string{"10.0.0.1:1"}, []string{"x:1"}}, {[]string{"10.0.0.2:1", "two:1"}, []string{"x:2", "two:1"}}, {[]string{"10.0.0.3:1"}, []string{"x:3"}},
	}}
	for _, test := range []struct {
		self     string
		attached []string
		want     []string
	}{
		{"x:1", []string{"10.0.0.2:1"}, []string{"10.0.0.3:1"}},
		{"x:1", []string{"two:1"}, []string{"10.0.0.3:1"}},
		{"x:1", nil, []string{"10.0.0.2:1", "10.0.0.3:1"}},
		{"two:1", []string{"10.0.0.3:1"}, []string{"10.0.0.1:1"}},
		{"x:1", []string{"gateway:1"}, nil}, // behind NAT: which of the two is it?
		{"elsewhere", []string{"10.0.0.3:1"}, nil},
	} {
		if got := g.Away(test.self, test.attached); !slices.Equal(got, test.want) {
			t.Errorf("%s with %v: %v, want %v", test.self, test.attached, got, test.want)
		}
	}
}
