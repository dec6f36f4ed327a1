package execlock

import "syscall"

// dieWithParent has the kernel kill the command if this process is killed: nobody
// would renew its lock. It reaches the command itself, not what that has started.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
