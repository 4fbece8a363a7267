//go:build !linux

package gateway

import "syscall"

// Lifeline is empty where the kernel knows no such thing.
func Lifeline() *syscall.SysProcAttr { return nil }
