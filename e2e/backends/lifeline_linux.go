package backends

import "syscall"

// lifeline makes the kernel end the child when the test process dies, which
// cleanups do not survive.
func lifeline() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
