//go:build !unix

package server

import "net"

// reserve checks that an address is free. It is not taken until it is opened.
func reserve(address string) (*reservedListener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	addr := l.Addr()
	if err := l.Close(); err != nil {
		return nil, err
	}
	return &reservedListener{
		addr:    addr,
		listen:  func() (net.Listener, error) { return net.Listen("tcp", addr.String()) },
		release: func() {},
		ready:   make(chan struct{}),
	}, nil
}
