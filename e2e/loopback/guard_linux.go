package loopback

import (
	"errors"
	"net"
	"syscall"
)

// errTaken means that another process has claimed an address.
var errTaken = errors.New("another process has this address")

// listenAsGuard claims an address until this process ends. The guard is a Unix socket without a file,
// which the kernel removes with its process. Such sockets belong to a network namespace, as
// addresses do.
func listenAsGuard(address string) (net.Listener, error) {
	l, err := net.Listen("unix", "@tierway-e2e-"+address)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = errTaken
	}
	return l, err
}
