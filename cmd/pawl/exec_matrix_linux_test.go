package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The matrix: every way to start a command that users have, times everything that
// happens to one. Each cell is a real bash on a terminal of its own (or none), with
// job control as at a prompt. Where no lock is lost the cell runs twice, with pawl
// exec and with the plain command, and what the shell sees must be the same.

// way is how a command is started.
type way struct {
	name string
	line string // of the shell; "" if there is none
	pid1 bool
}

var ways = []way{
	{name: "foreground", line: `$run`},
	{name: "background", line: `$run & while kill -0 $! && ! stopped; do rest; done 2>"$D/messages"; stopped || wait $!`},
	{name: "pipeline in", line: `echo data | $run`},
	{name: "pipeline out", line: `$run | cat >"$D/out"`},
	{name: "script of sh", line: `sh "$D/script"`},
	{name: "script of bash", line: `bash "$D/script"`},
	{name: "no terminal"},
	{name: "PID 1", pid1: true},
}

// shellScript runs the way's line. The shell survives Ctrl-C, and says when a job has
// come back stopped. It waits without starting processes, which the terminal's signals
// would reach too.
const shellScript = `
	set -m -o pipefail
	trap : INT QUIT
	exec 9<>"$D/quiet"
	rest() { read -t 0.02 -u 9; } # a wait that a trap ends may lose what it waits for
	stopped() { jobs -s >"$D/jobs"; [ -s "$D/jobs" ]; }
	await() { while [ ! -e "$D/$1" ]; do rest; done; }
	LINE
	code=$?
	while stopped; do
		echo "$code" >"$D/back"
		await fg
		fg >"$D/jobs" 2>&1
		code=$?
	done
	echo "$code" >"$D/code"`

// commandScript is the command. It shows that it works by making a file longer, and
// starts no processes: see atTerminal.
const commandScript = `
	exec 9<>"$D/quiet"
	trap 'echo told >"$D/told"; exit 0' TERM
	[ -p /dev/stdin ] && read data && echo "$data" >"$D/got"
	echo up >"$D/up"
	[ -n "$sleeps" ] && ulimit -c 0 && exec sleep 60 # bash itself ignores SIGQUIT
	while [ ! -e "$D/go" ]; do
		printf . >>"$D/beat"
		[ -n "$loud" ] && printf .
		read -t 0.02 -u 9
	done
	exit "$(<"$D/go")"`

// job is one cell, or its plain twin.
type job struct {
	t    *testing.T
	dir  string
	name string // of the lock
	way  way
	term *terminal   // nil without one
	v    *invocation // the shell, or without one the command itself

	redirection string
	reader      *os.File // of its stderr
	env         []string
}

// newJob prepares a job. Redirection, as 2>file, and env may be added before begin.
func newJob(t *testing.T, w way, env ...string) *job {
	t.Helper()
	j := &job{t: t, dir: t.TempDir(), way: w, env: env, name: strings.NewReplacer(" ", "_", "/", ":").Replace(t.Name())}
	j.write("command", commandScript)
	if err := syscall.Mkfifo(j.path("quiet"), 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

// begin starts the job, with pawl or plain, and waits until its command works.
func (j *job) begin(plain bool) {
	t := j.t
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := "bash " + j.path("command") // to execute a file that was just written may fail: a fork has it open
	if !plain {
		run = self + " exec " + j.name + " --grace 1s -- " + run
	}
	redirected := run + j.redirection
	j.write("script", redirected+"\necho $? >\"$D/inner\"\necho went on >\"$D/next\"\n")
	env := append([]string{"D=" + j.dir}, j.env...)
	if j.way.line != "" {
		line := strings.ReplaceAll(j.way.line, "$run", redirected)
		j.write("shell", strings.Replace(shellScript, "LINE", line, 1))
		// A file: given with -c, a job that Ctrl-C ends makes bash give up the rest.
		j.term = onTerminal(t, env, "/bin/bash", j.path("shell"))
		j.v = j.term.v
	} else {
		j.v = prepare(t, env)
		j.v.cmd.Path, j.v.cmd.Args = "/bin/bash", []string{"bash", "-c", "exec " + redirected}
		j.v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if j.way.pid1 {
			j.v.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID
		}
		if err := j.v.cmd.Start(); errors.Is(err, unix.EPERM) {
			t.Skipf("this user may not make a PID namespace: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(j.clear)
	j.await("up")
}

func (j *job) beginWithPawl() { j.begin(false) }

func (j *job) path(name string) string { return filepath.Join(j.dir, name) }

func (j *job) write(name, content string) {
	j.t.Helper()
	whole := j.path(name) + ".new" // what looks for the file reads it at once
	if err := os.WriteFile(whole, []byte(content), 0o600); err != nil {
		j.t.Fatal(err)
	}
	if err := os.Rename(whole, j.path(name)); err != nil {
		j.t.Fatal(err)
	}
}

// read returns a file's line, "-" if there is none.
func (j *job) read(name string) string {
	content, err := os.ReadFile(j.path(name))
	if err != nil || !strings.HasSuffix(string(content), "\n") {
		return "-"
	}
	return strings.TrimSpace(string(content))
}

func (j *job) await(name string) string {
	j.t.Helper()
	for deadline := time.Now().Add(patience - 5*time.Second); j.read(name) == "-"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			shown := ""
			if j.term != nil {
				shown = j.term.shown()
			}
			j.t.Fatalf("%s is not written:\n%s\n%s", name, shown, j.processes())
		}
	}
	return j.read(name)
}

// processes shows what runs, for a failure.
func (j *job) processes() string {
	out, _ := exec.Command("ps", "-s", fmt.Sprint(j.v.cmd.Process.Pid), "-o", "pid,pgid,tpgid,stat,args").CombinedOutput()
	for _, name := range []string{"jobs", "back", "go", "inner", "told"} {
		out = fmt.Appendf(out, "%s: %s\n", name, j.read(name))
	}
	return string(out)
}

// clear ends what a failed cell has left.
func (j *job) clear() {
	_ = os.WriteFile(j.path("go"), []byte("0\n"), 0o600)
	for _, p := range j.members() {
		_ = syscall.Kill(p.pid, syscall.SIGCONT)
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if j.v.cmd.ProcessState == nil {
		_ = j.v.cmd.Process.Kill()
		_ = j.v.cmd.Wait()
	}
}

type process struct {
	pid, parent int
	args        []string
}

// members returns the processes of the session that the job's first process leads.
func (j *job) members() (all []process) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// The files of /proc are slow, and most processes are not ours.
		if session, err := unix.Getsid(pid); err != nil || session != j.v.cmd.Process.Pid {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + entry.Name() + "/stat")
		_, after, _ := strings.Cut(string(stat), ") ") // state, parent
		args, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		p := process{pid: pid, args: strings.Split(string(args), "\x00")}
		if fields := strings.Fields(after); len(fields) > 1 {
			p.parent, _ = strconv.Atoi(fields[1])
		}
		all = append(all, p)
	}
	return all
}

// beats is how far the command has got.
func (j *job) beats() int64 {
	info, err := os.Stat(j.path("beat"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// awaitWork waits until the command has got further.
func (j *job) awaitWork() {
	j.t.Helper()
	from := j.beats()
	eventually(j.t, "the command works", func() bool { return j.beats() > from })
}

// rests reports whether the command does nothing for a while.
func (j *job) rests() bool {
	for from, n := j.beats(), 0; n < 10; n++ {
		time.Sleep(10 * time.Millisecond) // ten times: nothing may happen for that long
		if j.beats() > from {
			return false
		}
	}
	return true
}

// awaitRest waits until the command does nothing any more.
func (j *job) awaitRest() {
	j.t.Helper()
	eventually(j.t, "the command does nothing", j.rests)
}

// finish lets the command end with a code.
func (j *job) finish(code int) { j.write("go", fmt.Sprintf("%d\n", code)) }

// key types on the terminal. Without one it sends to the first process the signal
// that the key stands for.
func (j *job) key(key string, s syscall.Signal) {
	j.t.Helper()
	if j.term != nil {
		j.term.typeKeys(key)
	} else if err := j.v.cmd.Process.Signal(s); err != nil {
		j.t.Fatal(err)
	}
}

// running returns the process that runs a program or script, nil if there is none.
func (j *job) running(program string) *process {
	for _, p := range j.members() {
		for _, arg := range p.args[:min(2, len(p.args))] {
			if arg == program {
				return &p
			}
		}
	}
	return nil
}

// awaitEnd waits until none of these runs.
func (j *job) awaitEnd(programs ...string) {
	j.t.Helper()
	for deadline := time.Now().Add(patience - 5*time.Second); ; time.Sleep(30 * time.Millisecond) { // /proc is large
		if !slices.ContainsFunc(programs, func(p string) bool { return j.running(p) != nil }) {
			return
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("still running:\n%s", j.processes())
		}
	}
}

// killCommand kills the command alone.
func (j *job) killCommand() {
	j.t.Helper()
	p := j.running(j.path("command"))
	if p == nil {
		j.t.Fatalf("no command:\n%s", j.processes())
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		j.t.Error(err)
	}
}

// suspend types Ctrl-Z. A job in the background does not hear that, and gets the
// signal.
func (j *job) suspend() {
	j.t.Helper()
	if j.way.name != "background" {
		j.key("\x1a", syscall.SIGTSTP)
		return
	}
	for _, p := range j.members() {
		if p.parent == j.v.cmd.Process.Pid {
			_ = syscall.Kill(-p.pid, syscall.SIGTSTP)
		}
	}
}

// result waits for the end and returns what a user can see of it.
func (j *job) result() string {
	j.t.Helper()
	code := ""
	if j.term != nil {
		code = j.await("code")
		j.v.wait(j.t)
	} else {
		code = fmt.Sprint(j.v.wait(j.t).code)
	}
	return fmt.Sprintf("code %s, in the script %s, then %s, input %s, told %s",
		code, j.read("inner"), j.read("next"), j.read("got"), j.read("told"))
}

// onServer runs a cell for every way, beside each other on one server: they mostly
// wait.
func onServer(t *testing.T, cell func(t *testing.T, w way, s *redistest.Server)) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash, whose job control this needs")
	}
	s := redistest.Start(t)
	var all sync.WaitGroup
	for _, w := range ways {
		all.Go(func() { t.Run(w.name, func(t *testing.T) { cell(t, w, s) }) })
	}
	all.Wait()
}

func TestShellSeesOfExecWhatItSeesOfTheCommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env    string
		happen func(j *job)
		// asPID1 is what is seen of a pawl that is PID 1. The plain command is no measure:
		// signals that it does not catch do nothing to PID 1.
		asPID1 int
	}{
		"end":      {happen: func(j *job) { j.finish(0) }, asPID1: 0},
		"non-zero": {happen: func(j *job) { j.finish(7) }, asPID1: 7},
		"killed":   {happen: func(j *job) { j.killCommand() }, asPID1: 128 + 9},
		"Ctrl-C": {happen: func(j *job) {
			j.key("\x03", syscall.SIGINT)
			if j.way.name == "background" { // it is not meant
				j.awaitWork()
				j.finish(3)
			}
		}, asPID1: 128 + 2},
		"Ctrl-backslash": {env: "sleeps=yes", happen: func(j *job) {
			eventually(j.t, "the command sleeps", func() bool { return j.running("sleep") != nil })
			j.key("\x1c", syscall.SIGQUIT)
			if j.way.name == "background" {
				_ = syscall.Kill(j.running("sleep").pid, syscall.SIGTERM)
			}
		}, asPID1: 128 + 3},
		"Ctrl-Z and fg": {happen: func(j *job) {
			j.suspend()
			if j.term != nil {
				j.await("back")
				j.awaitRest()
				j.write("fg", "\n")
			}
			j.awaitWork()
			j.finish(5)
		}, asPID1: 5},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, w way, s *redistest.Server) {
				j := newJob(t, w, target.URLEnv+"="+s.URL()+"?lease=1m", c.env)
				j.begin(false)
				c.happen(j)
				got := j.result()
				// A shell that a signal ends does not wait for what it has run.
				eventually(t, "the lock is free", func() bool { return s.Do("EXISTS", j.name) == int64(0) })
				if w.pid1 {
					if want := fmt.Sprintf("code %d,", c.asPID1); !strings.HasPrefix(got, want) {
						t.Errorf("got %s, want %s", got, want)
					}
					return
				}
				twin := newJob(t, w, c.env)
				twin.begin(true)
				c.happen(twin)
				if want := twin.result(); got != want {
					t.Errorf("with pawl: %s\nplain:     %s", got, want)
				}
			})
		})
	}
}

// fifo makes a pipe that the job finds as $D/name. This end is closed with the test.
func (j *job) fifo(name string) *os.File {
	j.t.Helper()
	if err := syscall.Mkfifo(j.path(name), 0o600); err != nil {
		j.t.Fatal(err)
	}
	f, err := os.OpenFile(j.path(name), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { f.Close() })
	return f
}

func TestLostLockEndsTheCommandWhateverTheTerminalDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		needsTerminal bool
		env           string
		before, after func(j *job) // the command works, the lock is lost
		finally       func(j *job)
	}{
		"quiet": {},
		"Ctrl-S": {
			needsTerminal: true, env: "loud=yes",
			after: func(j *job) { j.key("\x13", 0) },
			finally: func(j *job) {
				j.awaitEnd("exec", j.path("command"))
				j.key("\x11", 0) // for the shell, which may have something to say
			}},
		"Ctrl-Z and fg": {
			needsTerminal: true,
			after:         func(j *job) { j.suspend(); j.await("back"); j.awaitRest() },
			finally:       func(j *job) { j.write("fg", "\n") },
		},
		"stderr blocked": {before: func(j *job) {
			j.redirection = ` 2>"$D/err"`
			fill(j.t, j.fifo("err"))
		}},
		"stderr without a reader": {before: func(j *job) {
			j.redirection = ` 2>"$D/err"`
			j.reader = j.fifo("err")
		}, after: func(j *job) { j.reader.Close() }},
		"stderr closed": {before: func(j *job) { j.redirection = ` 2>&-` }},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, w way, s *redistest.Server) {
				if c.needsTerminal && w.line == "" {
					t.Skip("this needs a terminal")
				}
				j := newJob(t, w, target.URLEnv+"="+s.URL()+"?lease=4s", c.env)
				for _, do := range []func(*job){c.before, (*job).beginWithPawl, c.after} {
					if do != nil {
						do(j)
					}
				}
				s.Do("DEL", j.name)
				if c.finally != nil {
					c.finally(j)
				}
				got := j.result()
				if !strings.Contains(got, "code 76,") && !strings.Contains(got, "in the script 76,") {
					t.Errorf("got %s", got)
				}
				if !j.rests() {
					t.Error("the command works without the lock")
				}
			})
		})
	}
}

// The server freezes under all of them at once, and stays so.
func TestOnADeadServerNothingTakesLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lease  string
		happen func(j *job)
		code   string
	}{
		"loss": {lease: "2s", code: "76"},
		"end":  {lease: "1m", code: "4", happen: func(j *job) { j.finish(4) }},
	} {
		t.Run(name, func(t *testing.T) {
			var working sync.WaitGroup
			working.Add(len(ways))
			dead := make(chan struct{})
			var once sync.Once
			onServer(t, func(t *testing.T, w way, s *redistest.Server) {
				ready := sync.OnceFunc(working.Done)
				defer ready()
				j := newJob(t, w, target.URLEnv+"="+s.URL()+"?lease="+c.lease)
				j.begin(false)
				ready()
				once.Do(func() { working.Wait(); s.Stop(); close(dead) })
				<-dead
				if c.happen != nil {
					c.happen(j)
				}
				j.awaitEnd(j.path("command"))
				ended := cputime.Now()
				got := j.result()
				quick(t, ended, 4*time.Second, "what follows the command's end")
				if !strings.Contains(got, "code "+c.code+",") && !strings.Contains(got, "in the script "+c.code+",") {
					t.Errorf("got %s", got)
				}
			})
		})
	}
}
