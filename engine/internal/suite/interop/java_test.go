package interop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// program is where Maven puts the Java program, seen from here.
const program = "../../../../bench/peers/redisson/target"

// jvm is a Java process with Redisson in it. It ends with its standard input, so at the
// latest with this process.
type jvm struct {
	cmd        *exec.Cmd
	in         io.WriteCloser
	complaints bytes.Buffer
	ended      chan struct{}

	mu      sync.Mutex
	last    int // the query's number
	waiting map[string]chan string
}

// shared is the JVM that tests use unless they kill it. The first one starts it.
var shared struct {
	sync.Mutex
	*jvm
}

func startedJVM(t testing.TB) *jvm {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.jvm == nil {
		shared.jvm = startJVM(t)
	}
	return shared.jvm
}

// end ends the JVM if there is one.
func (j *jvm) end() {
	if j != nil {
		_ = j.in.Close()
		<-j.ended
	}
}

func startJVM(t testing.TB) *jvm {
	t.Helper()
	if jars, _ := filepath.Glob(program + "/lib/redisson-*.jar"); len(jars) != 1 {
		t.Fatalf("%s has no Redisson: .ci/interop builds it", program)
	}
	j := &jvm{
		cmd: exec.Command("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m",
			"-cp", program+"/classes:"+program+"/lib/*", "Peer"),
		ended: make(chan struct{}), waiting: make(map[string]chan string),
	}
	j.cmd.Stderr = &j.complaints
	in, inErr := j.cmd.StdinPipe()
	out, outErr := j.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, j.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	j.in = in
	go j.listen(out)
	return j
}

// listen gives answers to those who asked, and waits for the process when there are no more.
func (j *jvm) listen(out io.Reader) {
	defer close(j.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		id, text, _ := strings.Cut(lines.Text(), " ")
		j.mu.Lock()
		to := j.waiting[id]
		delete(j.waiting, id)
		j.mu.Unlock()
		if to == nil {
			panic("BUG: Java answers what nobody asked: " + lines.Text())
		}
		to <- text
	}
	_ = j.cmd.Wait() // it was killed, or its input ended
}

// kill ends the process as a crash does.
func (j *jvm) kill(t testing.TB) {
	t.Helper()
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-j.ended
}

// answer is what Java will say.
type answer struct {
	thread   string
	question string
	jvm      *jvm
	text     chan string
}

// ask has a thread of Java do something. It returns at once.
func (j *jvm) ask(thread, verb string, words ...any) answer {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	id := fmt.Sprint(j.last)
	question := strings.TrimSpace(fmt.Sprintln(append([]any{thread, verb}, words...)...))
	a := answer{thread, question, j, make(chan string, 1)}
	j.waiting[id] = a.text
	_, _ = fmt.Fprintln(j.in, id, a.question) // if that fails, the process has ended
	return a
}

// result waits for the answer: what follows "ok", or the error.
func (a answer) result(t testing.TB) (string, error) {
	t.Helper()
	select {
	case text := <-a.text:
		status, rest, _ := strings.Cut(text, " ")
		if status != "ok" {
			return "", errors.New(rest)
		}
		return rest, nil
	case <-a.jvm.ended:
		t.Fatalf("Java has ended before it answered %q: %s", a.question, a.jvm.complaints.String())
	case <-testkit.Within(t, patience).Done():
		t.Fatalf("Java does not answer %q within %v", a.question, patience)
	}
	return "", nil
}

// want waits for an answer without an error.
func (a answer) want(t testing.TB) string {
	t.Helper()
	text, err := a.result(t)
	if err != nil {
		t.Fatalf("Java, asked to %q: %v", a.question, err)
	}
	return text
}

// asleep returns when those who are to give the answers sleep until a message comes.
func (j *jvm) asleep(t testing.TB, all ...answer) {
	t.Helper()
	var threads []any
	for _, a := range all {
		threads = append(threads, a.thread)
	}
	testkit.Eventually(t, "Java waits", func() bool { return j.ask("observer", "asleep", threads...).want(t) == "true" })
}

// timed is when it began and ended, if that was asked, and the rest of the answer.
func (a answer) timed(t testing.TB) (began, ended time.Time, rest string) {
	t.Helper()
	var from, to int64
	text := a.want(t)
	if _, err := fmt.Sscan(text, &from, &to); err != nil {
		t.Fatalf("Java, asked to %q: %q", a.question, text)
	}
	if words := strings.SplitN(text, " ", 3); len(words) == 3 {
		rest = words[2]
	}
	return time.Unix(0, from), time.Unix(0, to), rest
}

// arrived reports whether the answer is there already.
func (a answer) arrived() bool { return len(a.text) > 0 }

var clients atomic.Int64

// connect makes a Redisson client of the JVM, for as long as the test runs, and returns its
// name.
func (j *jvm) connect(t testing.TB, s *site, settings settings) string {
	t.Helper()
	client := fmt.Sprint("client", clients.Add(1))
	kind, sharded := "single", "AUTO"
	if s.cluster != nil {
		kind = "cluster"
	}
	if settings.plainChannels {
		sharded = "OFF"
	}
	j.ask(client, "open", client, kind, strings.Join(s.addrs(), ","), settings.lease.Milliseconds(), sharded).want(t)
	t.Cleanup(func() {
		select {
		case <-j.ended: // the test has killed it
		default:
			j.ask(client, "close", client).want(t)
		}
	})
	return client
}
