//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package socket

import "golang.org/x/sys/unix"

// hasUnread reports whether bytes lie in a socket, or its end, that nobody has read.
func hasUnread(fd int) bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil
}
