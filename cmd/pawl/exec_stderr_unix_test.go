//go:build unix

package main

import (
	"os"
	"testing"
)

// The reader of what pawl says goes away: that is no reason to end anything.
func TestExecOutlivesTheReaderOfItsWarnings(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	v := prepare(t, env, "exec", "a", "--on-lost", "ignore", "--", "sh", "-c",
		`echo up >`+dir+`/up; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; echo finished >`+dir+`/finished`)
	v.cmd.Stderr = writer
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	started(t, dir+"/up")
	reader.Close()
	s.Do("DEL", "a")
	asked := s.CommandStats()["evalsha"]
	eventually(t, "a renewal has found the loss", func() bool { return s.CommandStats()["evalsha"] > asked })
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 0)
	started(t, dir+"/finished")
}
