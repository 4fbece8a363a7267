package gateway

import "syscall"

// EndWithParent returns process attributes that make the kernel kill a child when the test
// process dies, because cleanups do not run then.
func EndWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
