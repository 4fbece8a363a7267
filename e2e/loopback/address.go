package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// firstPort is the lowest of the ports of [Address], and ports is their number. They are below the
	// ephemeral ports of Linux (from 32768) and macOS (from 49152), which outgoing connections take.
	firstPort, ports = 10000, 20000
	// stride is the distance between the first ports of processes with consecutive ids, which may
	// have to share an address.
	stride = 100
	// hosts is the number of addresses that a process may claim: 254 for each of the last three numbers.
	hosts = 254 * 254 * 254
	// tries bounds the claims of a process. The first one is for an address that follows from the id of
	// the process, so that a second one is rare.
	tries = 1000
)

// ours claims the address of this process when it is first called.
var ours = sync.OnceValue(claimHost) //nolint:gochecknoglobals // a process has one address

// claim is the address of this process.
type claim struct {
	host  string
	guard net.Listener // keeps other processes from the address; nil: they share it
	given atomic.Int64 // ports that were given out or skipped
}

// Host returns the loopback address of this process. On Linux it is one of 127.0.0.0/8 that no other
// process has while this one runs; on other systems it is 127.0.0.1.
func Host() string { return ours().host }

// Address returns a free address of [Host]. It never returns an address twice, so the caller may
// listen on it, stop and listen again.
func Address() (string, error) {
	c := ours()
	for {
		n := int(c.given.Add(1))
		if n > ports {
			return "", fmt.Errorf("looking for a free port of %s: all %d were given out", c.host, ports)
		}
		addr := net.JoinHostPort(c.host, strconv.Itoa(firstPort+(os.Getpid()*stride+n)%ports))
		// A server on all addresses of the machine may have the port.
		if usable(addr) {
			return addr, nil
		}
	}
}

// claimHost claims the first free address, beginning with that of the id of this process.
func claimHost() *claim {
	for i := range tries {
		host := numbered(os.Getpid() + i)
		guard, err := listenAsGuard(host)
		if errors.Is(err, errTaken) {
			continue
		}
		if err == nil && usable(net.JoinHostPort(host, "0")) {
			return &claim{host: host, guard: guard}
		}
		break // the system has no such guards or only one loopback address
	}
	return &claim{host: "127.0.0.1"}
}

// numbered returns the n-th address. None of them is 127.0.x.y, of which other programs use some.
func numbered(n int) string {
	n %= hosts
	return fmt.Sprintf("127.%d.%d.%d", 1+n/254/254, 1+n/254%254, 1+n%254)
}

// usable reports whether a server can listen on an address.
func usable(addr string) bool {
	l, err := net.Listen("tcp", addr)
	return err == nil && l.Close() == nil
}
