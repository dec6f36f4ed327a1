//go:build unix

package main

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestBenchProcesses_CoordinatorEnds_TheyEndToo(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		s := redistest.Start(t)
		v := prepare(t, nil, "bench", "hot", "--processes", "3", "--duration", "5m", "--addr", s.URL())
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		v.cmd.Stderr = writer // the processes have it, too, so it ends with the last of them
		if err := v.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		engines := func() int {
			list, _ := s.Do("CLIENT", "LIST").(string)
			return strings.Count(list, "name=pawl-bench")
		}
		eventually(t, "all contend", func() bool { return engines() >= 9 && s.CommandStats()["subscribe"] >= 3 })
		to := v.cmd.Process.Pid
		if sig == syscall.SIGINT {
			to = -to // Ctrl-C reaches the whole group
		}
		if err := syscall.Kill(to, sig); err != nil {
			t.Fatal(err)
		}
		v.wait(t).expect(t, 128+int(sig))
		eventually(t, "no process is connected", func() bool { return engines() == 0 })
		if err := reader.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(reader)
		if err != nil {
			t.Errorf("after %v a process has not ended: %v", sig, err)
		}
		if want := map[syscall.Signal]string{syscall.SIGINT: "pawl: ended by signal: interrupt\n"}[sig]; string(said) != want {
			t.Errorf("after %v: %q on stderr", sig, said)
		}
		if n := s.Do("DBSIZE"); n != int64(0) {
			t.Errorf("after %v: %v keys are left", sig, n)
		}
	}
}
