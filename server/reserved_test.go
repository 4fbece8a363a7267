package server

import (
	"errors"
	"net"
	"testing"

	"tierway/e2e/loopback"
)

// TestReservedAddressRefusesConnectionsUntilItIsOpen, for each form of an address.
func TestReservedAddressRefusesConnectionsUntilItIsOpen(t *testing.T) {
	both := []string{"127.0.0.1", "::1"}
	for address, hosts := range map[string][]string{"127.0.0.1:0": both[:1], "localhost:0": nil, "[::1]:0": both[1:],
		":0": both, "0.0.0.0:0": both, "[::]:0": both} {
		probe, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s is skipped: %v", address, err) // a machine without IPv6
			continue
		}
		probe.Close()
		l, err := reserve(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		reserved, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil || port == "0" || l.Addr().Network() != "tcp" {
			t.Errorf("%s is reserved as %v", address, l.Addr())
		}
		if hosts == nil {
			hosts = []string{reserved}
		}
		var dialed []string
		for _, host := range hosts {
			if c, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
				c.Close()
				t.Errorf("%s: a connection to %s is accepted", address, host)
			}
		}
		if err := l.open(); err != nil {
			t.Errorf("%s: opening: %v", address, err)
		}
		for _, host := range hosts {
			c, err := net.Dial("tcp", net.JoinHostPort(host, port))
			if err != nil {
				continue
			}
			dialed = append(dialed, host)
			s, err := l.Accept()
			if _, tcp := s.(*net.TCPConn); err != nil || !tcp {
				t.Errorf("%s: accepted %T, %v", address, s, err)
			}
			s.Close()
			c.Close()
		}
		if wild := address[0] == ':' || address == "0.0.0.0:0"; len(dialed) == 0 ||
			wild && probe.Addr().(*net.TCPAddr).IP.To4() == nil && len(dialed) != 2 {
			t.Errorf("%s accepts connections to %v", address, dialed)
		}
		l.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: after Close: %v", address, err)
		}
	}
}

// TestTakenAddressCannotBeReserved: the error is that of net.Listen.
func TestTakenAddressCannotBeReserved(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, want := net.Listen("tcp", taken.Addr().String())
	if _, err := reserve(taken.Addr().String()); err == nil || want == nil || err.Error() != want.Error() {
		t.Errorf("reserving: %v, want %v", err, want)
	}
}

// TestClosedReservationIsFree: Accept returns, the address can be taken, and it is not opened any more.
func TestClosedReservationIsFree(t *testing.T) {
	addr, err := loopback.Address() // no other process takes it
	if err != nil {
		t.Fatal(err)
	}
	l, err := reserve(addr)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	l.Close()
	l.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returned %v", err)
	}
	if err := l.open(); err != nil {
		t.Errorf("opening a closed one: %v", err)
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestAddressThatIsTakenMeanwhileIsAnError of open and of Accept: a listener takes the address that was
// reserved.
func TestAddressThatIsTakenMeanwhileIsAnError(t *testing.T) {
	l, err := reserve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	thief, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Skip("the system keeps the address for its first owner")
	}
	defer thief.Close()
	if err := l.open(); err == nil {
		t.Error("two listeners have one address")
	}
	if _, err := l.Accept(); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returned %v", err)
	}
	l.Close()
}
