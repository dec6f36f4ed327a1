package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// clusterWithADeadPrimary has no replicas. One of the names is served, the other one is not any more.
func clusterWithADeadPrimary(t *testing.T) (url, served, dead string) {
	c := redistest.StartCluster(t, false)
	victim := c.Nodes()[2]
	for i := 0; served == "" || dead == ""; i++ {
		if name := fmt.Sprint("job", i); c.Owner(c.Slot(name)) == victim {
			dead = name
		} else {
			served = name
		}
	}
	victim.Kill()
	return c.URL(), served, dead
}

// A command needs the servers of its names, and no others.
func TestCommands_AnotherPrimaryIsDead_WorkAtOnce(t *testing.T) {
	t.Parallel()
	url, name, dead := clusterWithADeadPrimary(t)
	const dial = 30 * time.Second
	env := []string{target.URLEnv + "=" + url + "?dial_timeout=" + dial.String()}
	begun := time.Now()
	pawl(t, env, "status", name).expect(t, 0, "free")
	pawl(t, env, "exec", name, "--wait", "0", "--", "echo", "ran").expect(t, 0, "ran")
	pawl(t, env, "exec", name, "--and", "{"+name+"}:2", "--wait", "20s", "--", "echo", "ran").expect(t, 0, "ran")
	pawl(t, env, "exec", name, "--kind", "semaphore", "--permits", "1", "--", "echo", "ran").expect(t, 0, "ran")
	pawl(t, env, "exec", name+"x", "--and", dead, "--wait", "1s", "--", "true").expect(t, exit.Server)
	hold(t, url, "{"+name+"}:3")
	pawl(t, env, "unlock", "--force", "{"+name+"}:3").expect(t, 0, "removed")
	if took := time.Since(begun); took > dial/2 {
		t.Errorf("they took %v", took)
	}
}

// What can be seen of several names is printed.
func TestStatus_OneOfSeveralNamesHasNoServer_ShowsTheOther(t *testing.T) {
	t.Parallel()
	url, name, dead := clusterWithADeadPrimary(t)
	env := []string{target.URLEnv + "=" + url + "?dial_timeout=500ms&command_timeout=500ms"}
	pawl(t, env, "status", name, dead).expect(t, exit.Server, name+": free", "server is unavailable")
	pawl(t, env, "status", dead).expect(t, exit.Server, "server is unavailable")
}
