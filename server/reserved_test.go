package server

import (
	"errors"
	"net"
	"testing"
)

// TestReservedAddressRefusesConnectionsUntilItIsOpen, for each form of an address.
func TestReservedAddressRefusesConnectionsUntilItIsOpen(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "localhost:0", "[::1]:0", ":0", "0.0.0.0:0", "[::]:0"} {
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
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil || port == "0" || l.Addr().Network() != "tcp" {
			t.Errorf("%s is reserved as %v", address, l.Addr())
		}
		var dialed []string
		for _, host := range []string{"127.0.0.1", "::1"} {
			if c, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
				c.Close()
				t.Errorf("%s: a connection to %s is accepted", address, host)
			}
		}
		if err := l.open(); err != nil {
			t.Errorf("%s: opening: %v", address, err)
		}
		for _, host := range []string{"127.0.0.1", "::1"} {
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
	var err error
	for range 10 { // another process may take a free address
		l, failed := reserve("127.0.0.1:0")
		if failed != nil {
			t.Fatal(failed)
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
		var again net.Listener
		if again, err = net.Listen("tcp", l.Addr().String()); err == nil {
			again.Close()
			return
		}
	}
	t.Error(err)
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
