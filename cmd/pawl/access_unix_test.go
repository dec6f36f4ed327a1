//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// A shell's <(command) is a pipe: it can be read once, and there are several connections.
func TestPasswordFile_OfAPipe(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("right"), redistest.TLS())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("bash", "-c", asPawlEnv+"=1 '"+self+"' status a --addr '"+"rediss://"+s.Addr()+"' --cacert <(cat '"+
		filepath.Join(s.Dir(), "cert.pem")+"') --password-file <(echo right)").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "a: free") {
		t.Errorf("%v: %s", err, out)
	}
}
