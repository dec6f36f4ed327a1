package handshake

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// The order is that of the wire: what comes behind AUTH is done by that user, in that database.
func TestConfig_Steps_DependOnThePurpose(t *testing.T) {
	t.Parallel()
	const names = "SETNAME LIB-NAME LIB-VER "
	for name, c := range map[string]struct {
		cfg            Config
		purpose        Purpose
		user, password string
		want           string
	}{
		"commands":                         {Config{}, Commands, "", "", names + "LOAD LOAD HELLO PING"},
		"renewals":                         {Config{}, Renewals, "", "", names + "LOAD LOAD PING"},
		"messages need no scripts":         {Config{}, Messages, "", "", names + "PING"},
		"durable":                          {Config{}, Durable, "", "", names + "LOAD LOAD PING"},
		"durable renewals":                 {Config{}, DurableRenewals, "", "", names + "LOAD LOAD PING"},
		"probing":                          {Config{}, Probing, "", "", names + "PING"},
		"a user":                           {Config{}, Messages, "u", "p", "AUTH:u:p " + names + "PING"},
		"a user without a password":        {Config{}, Messages, "u", "", "AUTH:u: " + names + "PING"},
		"a password alone":                 {Config{}, Messages, "", "p", "AUTH:p " + names + "PING"},
		"a database":                       {Config{DB: 3}, Messages, "", "p", "AUTH:p SELECT:3 " + names + "PING"},
		"a cluster: which node is it?":     {Config{Kind: topology.Cluster}, Commands, "", "", names + "LOAD LOAD CLUSTER:MYID HELLO PING"},
		"a cluster, messages":              {Config{Kind: topology.Cluster}, Messages, "", "", names + "CLUSTER:MYID PING"},
		"a cluster, probing":               {Config{Kind: topology.Cluster}, Probing, "", "", names + "PING"},
		"sentinels: the primary, of whom?": {Config{Kind: topology.Sentinel}, Commands, "", "", names + "LOAD LOAD ROLE INFO:replication HELLO PING"},
		"sentinels, messages":              {Config{Kind: topology.Sentinel}, Messages, "", "", names + "ROLE INFO:replication PING"},
		"sentinels, probing":               {Config{Kind: topology.Sentinel}, Probing, "", "", names + "PING"},
		"replicas, renewals":               {Config{Kind: topology.Replicas}, Renewals, "", "", names + "LOAD LOAD ROLE INFO:replication PING"},
		"replicas, probing":                {Config{Kind: topology.Replicas}, Probing, "", "", strings.TrimSpace(names)},
	} {
		if c.cfg.Kind != topology.Standalone {
			c.cfg.Identity = topology.NewIdentity(c.cfg.Kind, nil, nil, nil)
		}
		c.cfg.Scripts = []string{"return 1", "return 2"}
		var said []string
		for _, s := range c.cfg.steps(c.purpose, c.user, c.password) {
			word := strings.Join(s.words, ":")
			for _, short := range []string{"SETNAME", "LIB-NAME", "LIB-VER", "LOAD", "HELLO"} {
				if slices.Contains(s.words, short) {
					word = short
				}
			}
			said = append(said, word)
		}
		if got := strings.Join(said, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
