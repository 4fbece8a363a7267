//go:build unix

package server

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// maxBacklog is the length of the queue of connections that wait for Accept. The kernel lowers it to its
// own limit, as it does for net.Listen.
const maxBacklog = 1<<16 - 1

// errReserved ends net.Listen after the copy of its socket is bound.
var errReserved = errors.New("the address is reserved")

// reserve binds an address without listening on it. A taken address is an error, as for net.Listen.
func reserve(address string) (*reservedListener, error) {
	fd := -1
	config := net.ListenConfig{Control: func(_, resolved string, c syscall.RawConn) (err error) {
		// net.Listen has made the socket, with the family and the options that the address needs.
		if failed := c.Control(func(socket uintptr) { fd, err = bindCopy(int(socket), resolved) }); failed != nil {
			return failed
		}
		if err != nil {
			return err
		}
		return errReserved
	}}
	l, err := config.Listen(context.Background(), "tcp", address)
	switch {
	case err == nil: // only if Control was not called
		return nil, errors.Join(errors.New("the address cannot be reserved"), l.Close())
	case !errors.Is(err, errReserved):
		return nil, err
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		syscall.Close(fd) // the error of the name is the one to report
		return nil, os.NewSyscallError("getsockname", err)
	}
	return &reservedListener{
		addr:    tcpAddr(bound),
		listen:  func() (net.Listener, error) { return listenOn(fd) },
		release: func() { syscall.Close(fd) }, // nothing was written to it
		ready:   make(chan struct{}),
	}, nil
}

// bindCopy binds a copy of a socket to an address and returns it.
func bindCopy(socket int, address string) (fd int, err error) {
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return -1, err
	}
	family, err := syscall.Getsockname(socket) // an unbound socket has the unspecified address of its family
	if err != nil {
		return -1, os.NewSyscallError("getsockname", err)
	}
	switch a := family.(type) {
	case *syscall.SockaddrInet4:
		a.Port = to.Port
		copy(a.Addr[:], to.IP.To4())
	case *syscall.SockaddrInet6:
		a.Port = to.Port
		if !to.IP.IsUnspecified() { // 0.0.0.0 means all addresses here too
			copy(a.Addr[:], to.IP.To16())
		}
		if i, err := net.InterfaceByName(to.Zone); err == nil {
			a.ZoneId = uint32(i.Index)
		}
	}
	syscall.ForkLock.RLock()
	fd, err = syscall.Dup(socket)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, os.NewSyscallError("dup", err)
	}
	if err := syscall.Bind(fd, family); err != nil {
		syscall.Close(fd) // the error of bind is the one to report
		return -1, os.NewSyscallError("bind", err)
	}
	return fd, nil
}

// listenOn listens on a bound socket, which it owns.
func listenOn(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "data plane")
	defer f.Close()
	if err := syscall.Listen(fd, maxBacklog); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(f)
}

func tcpAddr(a syscall.Sockaddr) net.Addr {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	case *syscall.SockaddrInet6:
		to := &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
		if i, err := net.InterfaceByIndex(int(a.ZoneId)); a.ZoneId > 0 && err == nil {
			to.Zone = i.Name
		}
		return to
	}
	return &net.TCPAddr{}
}
