package workers

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
	"tierway/memnet"
)

// TestFailedCheckTriesTheNextAddress, for as long as the address with the failed check is avoided, also after the name
// was looked up again.
func TestFailedCheckTriesTheNextAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"},
			hosts: map[string]error{"10.0.0.1:8000": nil, "10.0.0.2:8000": nil, "10.0.0.3:8000": nil}}
		d := n.dialer()
		check := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			if to := n.connect(t, d); to != want+":8000" {
				t.Errorf("connected to %s, want %s", to, want)
			}
		}
		avoid := func(address string) {
			failed := netip.MustParseAddr(address)
			d.avoid(&failed)
		}
		check("10.0.0.1")
		avoid("10.0.0.1")
		check("10.0.0.2")
		time.Sleep(freshFor)
		check("10.0.0.2")
		avoid("10.0.0.2")
		check("10.0.0.3")
		avoid("10.0.0.3")
		check("10.0.0.1") // all have failed: the one that failed first
		avoid("10.0.0.1")
		check("10.0.0.2")
		time.Sleep(avoidFor + time.Second)
		check("10.0.0.1")
		if got := strings.Count(n.log.String(), "several addresses"); got != 1 {
			t.Errorf("%d warnings of several addresses, want one: %s", got, n.log.String())
		}
	})
}

// TestAddressesOfOneServerAreNotSeveral: a host with an address of each family is one server.
func TestAddressesOfOneServerAreNotSeveral(t *testing.T) {
	for addresses, want := range map[string]bool{
		"": false, "10.0.0.1": false, "10.0.0.1 fd00::1": false, "::1 127.0.0.1": false,
		"10.0.0.1 10.0.0.2": true, "fd00::1 fd00::2": true, "10.0.0.1 fd00::1 fd00::2": true, "::ffff:10.0.0.1 10.0.0.2": true,
	} {
		var all []netip.Addr
		for _, a := range strings.Fields(addresses) {
			all = append(all, netip.MustParseAddr(a))
		}
		if severalServers(all) != want {
			t.Errorf("%q: want %t", addresses, want)
		}
	}
}

// TestWorkerWithSeveralAddressesStaysUp while one of them answers its checks.
func TestWorkerWithSeveralAddressesStaysUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		var status [2]atomic.Int32
		var served [2]atomic.Int32
		hosts := map[string]string{}
		for i, address := range []string{"10.0.0.1:8000", "10.0.0.2:8000"} {
			status[i].Store(200)
			engine := network.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				served[i].Add(1)
				w.WriteHeader(int(status[i].Load()))
			}))
			defer engine.Close()
			hosts[address] = engine.Listener.Addr().String()
		}
		d := newDialer("engine:8000", slog.New(slog.DiscardHandler))
		d.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil
		}
		d.dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			return network.Dial(ctx, "tcp", hosts[address])
		}
		fleet := NewFleet(Options{Rand: noJitter, send: func(Spec) Sender {
			return addressed{http1.New(http1.Config{Network: "tcp", Host: "engine", Dial: d.DialContext}), d}
		}})
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		fleet.Sync([]Spec{{Config: Config{Name: "w", URL: "http://engine:8000", Health: &Health{Path: "/health"}}}})
		go fleet.Run(ctx)
		time.Sleep(30 * time.Second)
		status[0].Store(500)
		for range 600 {
			time.Sleep(time.Second)
			if s := fleet.Get("w").Status(); !s.Up {
				t.Fatalf("the worker is down: %s", s.LastError)
			}
		}
		if served[1].Load() < 50 {
			t.Errorf("the second address has served %d checks", served[1].Load())
		}
		fleet.Close()
	})
}

// TestFailedCheckAvoidsItsOwnAddress, although a request has connected to another address meanwhile.
func TestFailedCheckAvoidsItsOwnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		d := newDialer("engine:8000", slog.New(slog.DiscardHandler))
		d.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return []netip.Addr{first, second}, nil }
		healthy := network.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer healthy.Close()
		failing := network.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.mu.Lock()
			d.known = []netip.Addr{second, first} // as after a lookup
			d.mu.Unlock()
			conn, err := d.DialContext(r.Context(), "tcp", "")
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			w.WriteHeader(http.StatusInternalServerError)
		}))
		defer failing.Close()
		d.dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			if address == "10.0.0.1:8000" {
				return network.Dial(ctx, "tcp", failing.Listener.Addr().String())
			}
			return network.Dial(ctx, "tcp", healthy.Listener.Addr().String())
		}
		fleet := NewFleet(Options{Rand: noJitter, send: func(Spec) Sender {
			return addressed{http1.New(http1.Config{Network: "tcp", Host: "engine", Dial: d.DialContext}), d}
		}})
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		fleet.Sync([]Spec{{Config: Config{Name: "w", URL: "http://engine:8000", Health: &Health{Path: "/health"}}}})
		go fleet.Run(ctx)
		time.Sleep(20 * time.Second)
		if s := fleet.Get("w").Status(); s.Failed != 1 || s.Passed == 0 {
			t.Errorf("%d checks failed and %d passed, want one failure: %s", s.Failed, s.Passed, s.LastError)
		}
		fleet.Close()
	})
}

// TestConnectionsHaveAMaximumAge, also those that are always in use, with and without TLS.
func TestConnectionsHaveAMaximumAge(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			network := memnet.New()
			engine := network.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "x")
			}))
			defer engine.Close()
			var dials atomic.Int32
			dial := func(ctx context.Context, kind, address string) (net.Conn, error) {
				dials.Add(1)
				return network.Dial(ctx, kind, address)
			}
			var send Sender
			if secure {
				engine.StartTLS()
				to, err := parseAddress(engine.URL)
				if err != nil {
					t.Fatal(err)
				}
				roots := engine.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
				send = newStandard(standardConfig{address: to, rootCAs: roots, dial: dial})
			} else {
				engine.Start()
				send = newSender(Spec{Config: Config{URL: engine.URL}}, dial, slog.New(slog.DiscardHandler))
			}
			defer send.Close()
			for range 31 * 60 / 5 {
				answer, err := send.Send(t.Context(), postRequest("/", "x"))
				readAll(t, answer, err)
				time.Sleep(5 * time.Second)
			}
			if got := dials.Load(); got < 6 || got > 8 {
				t.Errorf("TLS %t: %d connections in 31 minutes, want one per five minutes", secure, got)
			}
		})
	}
}
