package handover

import (
	"context"
	"net"
	"syscall"
	"testing"

	"tierway/memnet"
)

// peeked is a connection that the gateway looks into before it uses it again, as it does with the kernel's sockets.
// It then detects that a worker has died.
type peeked struct {
	*memnet.Conn
	empty int // descriptor without data
}

// SyscallConn is part of syscall.Conn.
func (c peeked) SyscallConn() (syscall.RawConn, error) { return raw(c), nil }

// raw is the syscall.RawConn of a connection. Only Read has a use.
type raw peeked

// Control is part of syscall.RawConn.
func (raw) Control(func(fd uintptr)) error { return syscall.ENOTSUP }

// Write is part of syscall.RawConn.
func (raw) Write(func(fd uintptr) bool) error { return syscall.ENOTSUP }

// Read is part of syscall.RawConn.
func (c raw) Read(f func(fd uintptr) bool) error {
	if c.Readable() {
		return net.ErrClosed
	}
	f(uintptr(c.empty))
	return nil
}

// dialPeeked returns a Dial of connections into which the gateway can look.
func dialPeeked(t *testing.T, n *memnet.Network) func(ctx context.Context, network, addr string) (net.Conn, error) {
	t.Helper()
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Close(pipe[0])
		_ = syscall.Close(pipe[1])
	})
	if err := syscall.SetNonblock(pipe[0], true); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := n.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return peeked{c.(*memnet.Conn), pipe[0]}, nil
	}
}
