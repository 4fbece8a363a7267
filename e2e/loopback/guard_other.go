//go:build !linux

package loopback

import (
	"errors"
	"net"
)

// errTaken means that another process has claimed an address.
var errTaken = errors.New("another process has this address")

// listenAsGuard returns an error, because other systems have one loopback address.
func listenAsGuard(string) (net.Listener, error) { return nil, errors.ErrUnsupported }
