package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Every command takes the URL of every deployment.
func TestCommandsOnEveryTopology(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"cluster":  func(t *testing.T) string { return redistest.StartCluster(t, false).URL() },
		"sentinel": func(t *testing.T) string { return redistest.StartSentinel(t).URL() },
		"replicas": func(t *testing.T) string { return redistest.StartReplicated(t, 1).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{target.URLEnv + "=" + start(t)}
			pawl(t, env, "ping").expect(t, 0)
			pawl(t, env, "status", "free").expect(t, 0, "free")
			pawl(t, env, "exec", "job", "--", "true").expect(t, 0)
			pawl(t, env, "unlock", "--force", "free").expect(t, 1, "nothing to remove")
			addr := env[0][len(target.URLEnv)+1:]
			// Two commands a pair, and a few at the beginning: a busy machine does not get to many pairs.
			cputime.Steady(t, 20*time.Millisecond, func(t testing.TB) {
				pawl(t, nil, brief("uncontended", "--addr", addr)...).expect(t, 0, " 2.0", " commands", name)
			})
			pawl(t, nil, "bench", "waiters", "--count", "500", "--own-names", "--duration", "200ms", "--addr", addr).expect(t, 0, "500 served")
			pawl(t, nil, "bench", "held", "--count", "500", "--duration", "500ms", "--addr", addr).expect(t, 0, "0 lost")
			pawl(t, nil, "demo", "--increments", "20", "--lease", "1s", "--addr", addr).expect(t, 0, "Nothing was lost with the lock")
		})
	}
}

// The first address of several may be of a server that is away.
func TestPingNamesNoServerThatDidNotAnswer(t *testing.T) {
	t.Parallel()
	for want, addr := range map[string]string{
		"a node of the cluster of 127.0.0.1:1, ": redistest.StartCluster(t, false).URL(),
		`the primary "`:                          redistest.StartSentinel(t).URL(),
		"the primary among 127.0.0.1:1, ":        redistest.StartReplicated(t, 1).URL(),
	} {
		addr = strings.Replace(addr, "://", "://127.0.0.1:1,", 1)
		v := pawl(t, nil, "ping", "--addr", addr)
		if v.expect(t, 0, " answered in "); !strings.HasPrefix(v.stdout.String(), want) {
			t.Errorf("%s: %q, want %q", addr, v.stdout.String(), want)
		}
	}
}

// A job that is skipped because replicas are away is not one that somebody else does.
func TestExecTellsMissingReplicasFromALockThatIsTaken(t *testing.T) {
	t.Parallel()
	env := []string{target.URLEnv + "=" + redistest.Start(t).URL() + "?replicas=all"}
	pawl(t, env, "exec", "job", "--wait", "0", "--conflict-exit-code", "0", "--", "true").expect(t, exit.Server, "0 of 1 replicas")
}

// Nor does a password get onto a command line in a list of hosts.
func TestPasswordInAListOfHostsIsRefusedOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{
		"redis+cluster://:hunter2@127.0.0.1:1,127.0.0.1:2", "redis+sentinel://ada:hunter2@h,i/m",
		"redis+sentinel://h,i/m?sentinel_password=hunter2", "redis+sentinel://h,i/m?sentinel%5Fpassword=hunter2",
	} {
		pawl(t, nil, "ping", "--addr", addr).expect(t, exit.Usage, "a password on the command line")
	}
}

// Nor is one that the server refuses to this user.
func TestExecTellsARefusalFromALockThatIsTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("ada on >secret ~other:* &* +@all"))
	env := []string{target.URLEnv + "=redis://ada:secret@" + s.Addr()}
	pawl(t, env, "exec", "job", "--wait", "0", "--conflict-exit-code", "0", "--", "true").expect(t, exit.Server, "NOPERM")
}

// A user without the right to listen has not used pawl wrongly.
func TestExecTellsAChannelThatIsRefusedFromWrongUsage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("ada on >secret ~* resetchannels +@all"))
	hold(t, s.URL(), "job")
	env := []string{target.URLEnv + "=redis://ada:secret@" + s.Addr()}
	pawl(t, env, "exec", "job", "--", "true").expect(t, exit.Server, "the server refuses channel", "NOPERM")
}

func TestConnect_WrongPassword_IsDistinctFromTheSentinels(t *testing.T) {
	t.Parallel()
	r := redistest.StartSentinel(t, redistest.Password("lock"), redistest.SentinelPassword("guard"))
	pawl(t, []string{target.URLEnv + "=" + r.URL()}, "ping").expect(t, 0)
	for old, hint := range map[string]string{"sentinel_password=guard": "put the sentinels' password into $", ":lock@": "put the right password into $"} {
		wrong := strings.NewReplacer("guard", "wrong", "lock", "wrong").Replace(old)
		env := []string{target.URLEnv + "=" + strings.Replace(r.URL(), old, wrong, 1)}
		pawl(t, env, "status", "x").expect(t, exit.Server, hint)
	}
}
