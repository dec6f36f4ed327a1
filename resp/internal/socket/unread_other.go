//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package socket

// hasUnread cannot tell: on Windows what arrives goes straight into the buffer of the
// read that waits for it, and no descriptor shows it.
func hasUnread(int) bool { return false }
