package zmtp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// endpoint splits a ZeroMQ address into Go's network and address: tcp://HOST:PORT, or
// ipc://PATH, where a PATH that begins with @ is a name in Linux's abstract namespace.
// Host * means all interfaces; it is valid only with listen.
func endpoint(text string, listen bool) (network, address string, err error) {
	scheme, rest, _ := strings.Cut(text, "://")
	switch {
	case scheme == "ipc" && rest != "":
		return "unix", rest, nil
	case scheme == "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil || port == "" || host == "" || host == "*" && !listen {
			break
		}
		if host == "*" {
			host = ""
		}
		return "tcp", net.JoinHostPort(host, port), nil
	}
	return "", "", fmt.Errorf("%q is no ZeroMQ address: write tcp://HOST:PORT or ipc://PATH", text)
}

// keepAlive returns a configuration that detects a lost peer within Heartbeat + Patience.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: Heartbeat, Interval: time.Second, Count: int(Patience / time.Second)}
}

// Network opens sockets. The zero value uses the network of the operating system. Its functions replace that
// network in tests.
type Network struct {
	DialFunc   func(ctx context.Context, network, address string) (net.Conn, error) // nil: net.Dialer's
	ListenFunc func(network, address string) (net.Listener, error)                  // nil: net.ListenConfig's
}

// Dial connects to a socket that is bound to an address and exchanges the handshake. The
// context bounds both; afterwards it has no effect on the connection.
func (n Network) Dial(ctx context.Context, address string, socket Socket, limits Limits) (*Conn, error) {
	network, at, err := endpoint(address, false)
	if err != nil {
		return nil, err
	}
	dial := n.DialFunc
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: keepAlive()}).DialContext
	}
	c, err := dial(ctx, network, at)
	if err != nil {
		return nil, err
	}
	return Handshake(ctx, c, socket, limits)
}

// Listener accepts connections of publishers that dial. Pass each accepted connection to [Handshake] in a
// goroutine of its own, because a peer may delay its greeting.
type Listener struct{ net.Listener }

// Listen binds an address for publishers that dial.
func (n Network) Listen(ctx context.Context, address string) (*Listener, error) {
	network, at, err := endpoint(address, true)
	if err != nil {
		return nil, err
	}
	listen := n.ListenFunc
	if listen == nil {
		listen = func(network, address string) (net.Listener, error) {
			config := net.ListenConfig{KeepAliveConfig: keepAlive()}
			return config.Listen(ctx, network, address)
		}
	}
	l, err := listen(network, at)
	if err != nil {
		return nil, err
	}
	return &Listener{l}, nil
}
