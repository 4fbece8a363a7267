package memnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
)

// firstPort is the first port that is assigned: the start of Linux's range of such ports.
const firstPort = 32768

// Network is a set of listeners. It is safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	port      uint16 // the last one that was assigned
	listeners map[netip.AddrPort]*listener
}

// New returns a network without listeners.
func New() *Network {
	return &Network{port: firstPort - 1, listeners: map[netip.AddrPort]*listener{}}
}

// Listen listens on an address as net.Listen does. The host is an IP address; localhost and an empty host stand for
// 127.0.0.1. Port 0 stands for a free port. An address can be used again after its listener is closed.
func (n *Network) Listen(network, address string) (net.Listener, error) {
	at, err := parse(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), n.nextPortLocked())
	}
	addr := net.TCPAddrFromAddrPort(at)
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: addr, Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := newListener(addr, func() { n.remove(at) })
	n.listeners[at] = l
	return l, nil
}

// Dial connects to a listener as net.Dialer.DialContext does. It does not wait until the connection is
// accepted. An address without a listener refuses the connection. If the backlog of the listener is full,
// Dial waits.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	at, err := parse(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	n.mu.Lock()
	l := n.listeners[at]
	local := net.TCPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), n.nextPortLocked()))
	n.mu.Unlock()
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(at), Err: err}
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	if l == nil {
		return fail(refused)
	}
	client, server := connect(local, l.addr)
	switch err := l.enqueue(ctx, server); {
	case err == nil:
		return client, nil
	case errors.Is(err, net.ErrClosed):
		return fail(refused)
	default:
		return fail(err)
	}
}

func (n *Network) remove(at netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.listeners, at)
}

// nextPortLocked returns a port that was not assigned recently.
func (n *Network) nextPortLocked() uint16 {
	if n.port++; n.port < firstPort {
		n.port = firstPort
	}
	return n.port
}

// parse parses an address host:port. The host is an IP address; localhost and an empty host stand for 127.0.0.1.
func parse(address string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w (an in-memory network has no names)", err)
	}
	return at, nil
}
