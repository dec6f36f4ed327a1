package main

import (
	"fmt"
	"strings"
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
	run := func(args ...string) *invocation {
		began := time.Now()
		v := pawl(t, env, args...)
		if took := time.Since(began); took > dial/2 { // each: to start many processes may take long
			t.Errorf("%q took %v", args, took)
		}
		return v
	}
	run("status", name).expect(t, 0, "free")
	run("exec", name, "--wait", "0", "--", "echo", "ran").expect(t, 0, "ran")
	run("exec", name, "--and", "{"+name+"}:2", "--wait", "20s", "--", "echo", "ran").expect(t, 0, "ran")
	run("exec", name, "--kind", "semaphore", "--permits", "1", "--", "echo", "ran").expect(t, 0, "ran")
	run("exec", name+"x", "--and", dead, "--wait", "1s", "--", "true").expect(t, exit.Server)
	hold(t, url, "{"+name+"}:3")
	run("unlock", "--force", "{"+name+"}:3").expect(t, 0, "removed")
}

// What can be seen of several names is printed.
func TestStatus_OneOfSeveralNamesHasNoServer_ShowsTheOther(t *testing.T) {
	t.Parallel()
	url, name, dead := clusterWithADeadPrimary(t)
	env := []string{target.URLEnv + "=" + url + "?dial_timeout=500ms&command_timeout=500ms"}
	eventually(t, "the other is shown", func() bool { // a process that is late has not connected to its server in time either
		v := pawl(t, env, "status", name, dead)
		v.expect(t, exit.Server, "server is unavailable")
		return strings.Contains(v.stdout.String(), name+": free")
	})
	pawl(t, env, "status", dead).expect(t, exit.Server, "server is unavailable")
}
