package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// BinaryEnv names the environment variable that says which server to start.
const BinaryEnv = "PAWL_REDIS_SERVER"

// ErrNotInstalled means that there is no server to start; the error's text says
// how to install one.
var ErrNotInstalled = errors.New("redistest: no redis-server found")

// Binary returns the path of the server: $PAWL_REDIS_SERVER, else redis-server
// on PATH, else valkey-server on PATH.
func Binary() (string, error) {
	if named := os.Getenv(BinaryEnv); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("%w: $%s: %w; correct it, or unset it and install one with `%s`",
				ErrNotInstalled, BinaryEnv, err, installCommand())
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: install it with `%s`, or set $%s to its path", ErrNotInstalled, installCommand(), BinaryEnv)
}

// installCommand returns the command that installs a server on this machine.
func installCommand() string {
	if runtime.GOOS == "darwin" {
		return "brew install redis"
	}
	for _, m := range []struct{ manager, command string }{
		{"apt-get", "sudo apt-get update && sudo apt-get install -y redis-server"},
		{"dnf", "sudo dnf install -y redis"},
		{"apk", "sudo apk add redis"},
		{"pacman", "sudo pacman -S --noconfirm valkey"},
		{"zypper", "sudo zypper install -y redis"},
	} {
		if _, err := exec.LookPath(m.manager); err == nil {
			return m.command
		}
	}
	return "apt-get install -y redis-server"
}
