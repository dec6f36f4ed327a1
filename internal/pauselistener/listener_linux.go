package pauselistener

import (
	"net"
	"syscall"
)

// stopListening ends listening: the kernel answers with resets, Accept returns, and the
// socket stays bound.
func stopListening(l net.Listener) bool {
	return control(l, func(fd int) error { return syscall.Shutdown(fd, syscall.SHUT_RDWR) })
}

// listenAgain undoes stopListening.
func listenAgain(l net.Listener) bool {
	return control(l, func(fd int) error { return syscall.Listen(fd, syscall.SOMAXCONN) })
}

func control(l net.Listener, f func(fd int) error) bool {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return err == nil && failed == nil
}
