package main

import (
	"strconv"
	"testing"
)

func TestExecsCommandDiesWithAKilledPawl(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	dir := t.TempDir()
	v := start(t, env, "exec", "a", "--", "sh", "-c", `echo $$ >`+dir+`/pid; exec sleep 60`)
	pid, err := strconv.Atoi(started(t, dir+"/pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 128+9)
	eventually(t, "the command is dead", func() bool { return !alive(pid) })
}
