//go:build !linux

package gateway

import "syscall"

// EndWithParent returns nil, because only Linux can end a child with its parent.
func EndWithParent() *syscall.SysProcAttr { return nil }
