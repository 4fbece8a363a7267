package server

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"tierway/memnet"
	"tierway/workers/zmtp"
)

// network is a test's network. It exists from its first use to the end of the test.
type network struct {
	*memnet.Network
	client    *http.Client // on the network; it follows redirects
	transport *http.Transport
}

// networks are the networks of the running tests, by their testing.TB.
var networks sync.Map

// networkOf returns the network of a test.
func networkOf(t testing.TB) *network {
	if n, ok := networks.Load(t); ok {
		return n.(*network)
	}
	n := &network{Network: memnet.New()}
	n.transport = &http.Transport{DialContext: n.Dial}
	n.client = &http.Client{Transport: n.transport}
	networks.Store(t, n)
	t.Cleanup(func() {
		n.transport.CloseIdleConnections()
		networks.Delete(t)
	})
	return n
}

// zmtp returns the network for ZeroMQ sockets.
func (n *network) zmtp() zmtp.Network { return zmtp.Network{DialFunc: n.Dial, ListenFunc: n.Listen} }

// newUnstartedServer is httptest.NewUnstartedServer on the test's network. It is closed with the test.
func newUnstartedServer(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := networkOf(t).Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	t.Cleanup(s.Close)
	return s
}

// newServer is httptest.NewServer on the test's network. It is closed with the test.
func newServer(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := newUnstartedServer(t, h)
	s.Start()
	return s
}
