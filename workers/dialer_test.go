package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
)

// network is a name server and the hosts behind it.
type network struct {
	mu      sync.Mutex
	answer  []string // addresses of the only name
	err     error    // of a lookup; errHang: it ends only with its context
	lookups int
	hosts   map[string]error // result of a connection to an address; absent: it ends only with its context
	dialled []string
	log     bytes.Buffer
}

var (
	errHang     = errors.New("no answer")
	errNoServer = &net.DNSError{Err: "server misbehaving", Name: "engine", IsTemporary: true}
	errNoName   = &net.DNSError{Err: "no such host", Name: "engine", IsNotFound: true}
)

func (n *network) dialer() *dialer {
	d := newDialer("engine:8000", slog.New(slog.NewTextHandler(&n.log, nil)))
	d.lookup, d.dial = n.lookup, n.dial
	return d
}

func (n *network) lookup(ctx context.Context, _, host string) (all []netip.Addr, err error) {
	n.mu.Lock()
	answer, err := n.answer, n.err
	n.lookups++
	n.mu.Unlock()
	if errors.Is(err, errHang) {
		<-ctx.Done()
		return nil, &net.DNSError{Err: ctx.Err().Error(), Name: host, IsTimeout: true}
	}
	for _, a := range answer {
		all = append(all, netip.MustParseAddr(a))
	}
	return all, err
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	err, known := n.hosts[address]
	n.dialled = append(n.dialled, address)
	n.mu.Unlock()
	switch {
	case !known:
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
	case err != nil:
		return nil, &net.OpError{Op: "dial", Err: err}
	}
	conn, _ := net.Pipe()
	return conn, nil
}

// setLookup sets the result of lookups.
func (n *network) setLookup(err error, answer ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err, n.answer = err, answer
}

// connect opens a connection within 2 s. It returns all dialled addresses, or the text of the error.
func (n *network) connect(t *testing.T, d *dialer) string {
	t.Helper()
	n.dialled = nil
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := d.DialContext(ctx, "tcp", "ignored:1"); err != nil {
		return err.Error()
	}
	return strings.Join(n.dialled, " ")
}

func TestNameIsLookedUpOncePerFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: []string{"10.0.0.1"}, hosts: map[string]error{"10.0.0.1:8000": nil, "10.0.0.2:8000": nil}}
		d := n.dialer()
		for range 10 {
			if to := n.connect(t, d); to != "10.0.0.1:8000" {
				t.Errorf("connected to %s", to)
			}
		}
		n.setLookup(nil, "::ffff:10.0.0.2")
		time.Sleep(freshFor)
		if to := n.connect(t, d); to != "10.0.0.2:8000" || n.lookups != 2 {
			t.Errorf("connected to %s after %d lookups", to, n.lookups)
		}
	})
}

// An error of the name server causes no delay; a name server that hangs delays one connection per five
// seconds by half a second.
func TestLastAddressesAreUsedWhileLookupsFail(t *testing.T) {
	for err, delay := range map[error]time.Duration{errNoServer: 0, errHang: lookupTimeout} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{answer: []string{"10.0.0.1"}, hosts: map[string]error{"10.0.0.1:8000": nil}}
			d := n.dialer()
			n.connect(t, d)
			n.setLookup(err)
			for range 3 {
				time.Sleep(freshFor)
				for i := range 4 {
					began := time.Now()
					want := delay
					if i > 0 {
						want = 0
					}
					if to := n.connect(t, d); to != "10.0.0.1:8000" || time.Since(began) != want {
						t.Errorf("%v: connection %d to %s took %v", err, i, to, time.Since(began))
					}
				}
			}
			if n.lookups != 4 {
				t.Errorf("%v: %d lookups", err, n.lookups)
			}
			n.setLookup(nil, "10.0.0.1")
			time.Sleep(freshFor)
			n.connect(t, d)
			if log := n.log.String(); strings.Count(log, "\n") != 2 ||
				!strings.Contains(log, "does not resolve; using its last addresses") || !strings.Contains(log, "resolves again") {
				t.Errorf("%v: the log is %s", err, log)
			}
		})
	}
}

func TestHangingLookupDelaysOneConnectionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: []string{"10.0.0.1"}, hosts: map[string]error{"10.0.0.1:8000": nil}}
		d := n.dialer()
		n.connect(t, d)
		n.setLookup(errHang)
		time.Sleep(freshFor)
		var waits sync.WaitGroup
		var took [8]time.Duration
		for i := range took {
			waits.Go(func() {
				began := time.Now()
				if _, err := d.DialContext(t.Context(), "tcp", ""); err != nil {
					t.Error(err)
				}
				took[i] = time.Since(began)
			})
		}
		waits.Wait()
		slices.Sort(took[:])
		if took[6] != 0 || took[7] != lookupTimeout || n.lookups != 2 {
			t.Errorf("the connections took %v with %d lookups", took, n.lookups)
		}
	})
}

// After half a minute, another server may have the last addresses of a name that does not exist.
func TestMissingNameLosesItsAddressesAfterHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{err: errNoServer, hosts: map[string]error{"10.0.0.1:8000": nil}}
		d := n.dialer()
		if to := n.connect(t, d); !strings.Contains(to, "looking up the worker's host: lookup engine: server misbehaving") {
			t.Errorf("without any address: %s", to)
		}
		n.setLookup(nil, "10.0.0.1")
		n.connect(t, d)
		n.setLookup(errNoName)
		for range missingFor / freshFor {
			time.Sleep(freshFor)
			if to := n.connect(t, d); to != "10.0.0.1:8000" {
				t.Errorf("a name that was just removed: %s", to)
			}
		}
		time.Sleep(freshFor)
		for range 2 {
			if to := n.connect(t, d); !strings.Contains(to, "no such host") {
				t.Errorf("a name that is gone: %s", to)
			}
		}
		n.setLookup(errNoServer)
		if to := n.connect(t, d); !strings.Contains(to, "server misbehaving") {
			t.Errorf("and then no name server: %s", to)
		}
		n.setLookup(nil)
		if to := n.connect(t, d); !strings.Contains(to, "no address") {
			t.Errorf("a name without addresses: %s", to)
		}
	})
}

// With search domains, a resolver may report that the name does not exist in the last domain, although
// the lookup in the first domain failed.
func TestFailedNameServerDoesNotDropAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: []string{"10.0.0.1"}, hosts: map[string]error{"10.0.0.1:8000": nil}}
		d := n.dialer()
		n.connect(t, d)
		for i := range 40 {
			n.setLookup([]error{errNoName, errNoServer}[i/3%2])
			time.Sleep(freshFor)
			if to := n.connect(t, d); to != "10.0.0.1:8000" {
				t.Errorf("after %d lookups: %s", i+1, to)
			}
		}
	})
}

// The address that works is tried first for the next connection.
func TestAllAddressesAreTriedWithinTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: []string{"2001:db8::1", "10.0.0.1", "10.0.0.2", "10.0.0.3"},
			hosts: map[string]error{"10.0.0.1:8000": syscall.ECONNREFUSED, "10.0.0.2:8000": nil}}
		d := n.dialer()
		began := time.Now()
		if to := n.connect(t, d); to != "[2001:db8::1]:8000 10.0.0.1:8000 10.0.0.2:8000" ||
			time.Since(began) != 500*time.Millisecond {
			t.Errorf("after %v: %s", time.Since(began), to)
		}
		if to := n.connect(t, d); to != "10.0.0.2:8000" {
			t.Errorf("the next connection: %s", to)
		}
		n.hosts["10.0.0.2:8000"] = syscall.ECONNREFUSED
		began = time.Now()
		if to := n.connect(t, d); !strings.Contains(to, "connection refused") || time.Since(began) != 4*time.Second/3 ||
			len(n.dialled) != 4 {
			t.Errorf("without a working address, after %v: %s", time.Since(began), to)
		}
		n.hosts = map[string]error{"10.0.0.2:8000": syscall.EMFILE, "10.0.0.3:8000": nil}
		if to := n.connect(t, d); !strings.Contains(to, "too many open files") {
			t.Errorf("without descriptors: %s", to)
		}
	})
}

// The old address refuses the connection, so the name is looked up again before freshFor has passed.
func TestMovedWorkerIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: []string{"10.0.0.1"}, hosts: map[string]error{"10.0.0.1:8000": nil}}
		d := n.dialer()
		n.connect(t, d)
		n.setLookup(nil, "10.0.0.9")
		n.hosts = map[string]error{"10.0.0.1:8000": syscall.ECONNREFUSED, "10.0.0.9:8000": nil}
		if to := n.connect(t, d); to != "10.0.0.1:8000 10.0.0.9:8000" {
			t.Errorf("connected to %s", to)
		}
		n.hosts = map[string]error{"10.0.0.9:8000": syscall.ECONNREFUSED}
		if to := n.connect(t, d); !strings.Contains(to, "refused") || len(n.dialled) != 1 {
			t.Errorf("a worker that has not moved: %s, dialled %q", to, n.dialled)
		}
	})
}

// A literal address never leads there either.
func TestNoLookupLeadsToAMetadataAddress(t *testing.T) {
	for _, address := range []string{"169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254"} {
		d := newDialer("engine:80", slog.New(slog.DiscardHandler))
		d.lookup = (&network{answer: []string{address}}).lookup
		literal := newDialer(net.JoinHostPort(address, "80"), slog.New(slog.DiscardHandler))
		for _, d := range []*dialer{d, literal} {
			if _, err := d.DialContext(t.Context(), "tcp", ""); err == nil || !strings.Contains(err.Error(), "metadata") {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
}

// The name of the worker exists only in the lookup of the dialer.
func TestBothSendersUseTheDialer(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		engine := loopback.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Host)
		}))
		if scheme == "https" {
			engine.StartTLS()
		} else {
			engine.Start()
		}
		_, port, err := net.SplitHostPort(engine.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		d := newDialer("example.com:"+port, slog.New(slog.DiscardHandler)) // the name in httptest's certificate
		n := &network{answer: []string{"127.0.0.1"}}
		d.lookup, d.dial = n.lookup, loopback.Dial
		var s Sender
		if scheme == "https" {
			s = newStandard(standardConfig{address: address{scheme: scheme, host: "example.com:" + port}, dial: d.DialContext,
				rootCAs: engine.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
		} else {
			s = http1.New(http1.Config{Network: "tcp", Address: "example.com:" + port, Host: "example.com:" + port,
				Dial: d.DialContext})
		}
		for range 2 {
			r := postRequest("/")
			r.Fresh = true
			answer, err := s.Send(t.Context(), r)
			if got := readAll(t, answer, err); got != "example.com:"+port {
				t.Errorf("%s: %s", scheme, got)
			}
		}
		if n.lookups != 1 {
			t.Errorf("%s: %d lookups", scheme, n.lookups)
		}
		s.Close()
		engine.Close()
	}
}
