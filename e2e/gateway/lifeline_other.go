//go:build !linux

package gateway

import "syscall"

// lifeline is empty where the kernel knows no such thing.
func lifeline() *syscall.SysProcAttr { return nil }
