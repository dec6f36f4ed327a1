package topology

import (
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// A user of before may not ask a server who it is. Everything works, and the log says once that
// nothing is checked.
func TestACL_UserWithoutTheRightToAskWhoAServerIs_Works(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rights  []string
		without string
		start   func(users ...redistest.Option) (*testkit.Site, string)
	}{
		"cluster": {[]string{"- Cluster: `"}, "+cluster|myid", func(users ...redistest.Option) (*testkit.Site, string) {
			c := redistest.StartCluster(t, false, users...)
			return testkit.Clustered(c), c.URL() + "?sharded_pubsub=off"
		}},
		"sentinel": {[]string{"- Sentinel: `"}, "+info", func(users ...redistest.Option) (*testkit.Site, string) {
			r := redistest.StartSentinel(t, users...)
			return testkit.Replicated(r), r.URL()
		}},
	} {
		rule := leastRights(t, c.rights...)
		if !strings.Contains(rule, " "+c.without) {
			t.Fatalf("%s: the page does not ask for %s", name, c.without)
		}
		at, url := c.start(redistest.User(rule), redistest.User("old"+strings.Replace(rule, " "+c.without, "", 1)))
		for user, lines := range map[string]int{"pawl": 0, "oldpawl": 1} {
			var log journal
			at.URL = strings.Replace(url, "://", "://"+user+":secret@", 1)
			e := at.Open(t, log.use)
			testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("orders:1")))
			cutOff(at.Servers()...)
			testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("orders:1")))
			log.mu.Lock()
			if text := log.text.String(); strings.Count(text, "not checked") != lines || strings.Count(text, "NOPERM") != lines {
				t.Errorf("%s, %s:\n%s", name, user, text)
			}
			log.mu.Unlock()
		}
	}
}
