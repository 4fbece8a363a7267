package gateway

import "syscall"

// Lifeline makes the kernel end the child when the test process dies, which
// cleanups do not survive.
func Lifeline() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
