//go:build !linux

package backends

import "syscall"

// lifeline is empty where the kernel knows no such thing.
func lifeline() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
