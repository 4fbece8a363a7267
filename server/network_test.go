package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"tierway/http1"
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

// newGateway serves a gateway on the test's network. closeGateway closes it. http1 serves the usual requests, unless
// the variable TIERWAY_NET_HTTP is set: make soak runs the tests both ways.
func newGateway(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := newUnstartedServer(t, h)
	if os.Getenv("TIERWAY_NET_HTTP") == "" {
		putInFront(t, s, h)
	}
	s.Start()
	return s
}

// closeGateway closes a gateway's server and waits until its requests have ended.
func closeGateway(s *httptest.Server) {
	s.Close()
	if wait, ok := fronts.Load(s); ok {
		wait.(func())()
	}
}

// putInFront lets http1 serve the usual requests of a server that is not started.
func putInFront(t testing.TB, s *httptest.Server, h http.Handler) {
	l, rest := s.Listener, newHandedOver(s.Listener.Addr())
	front := &http1.Server{Handler: h, Fallback: rest.serveConn, Base: context.Background(), HeadTimeout: headerTimeout,
		IdleTimeout: 24 * time.Hour, OnPanic: func(p any) { t.Errorf("a handler panicked: %v", p) }}
	ended := make(chan error, 1)
	go func() { ended <- front.Serve(l) }()
	s.Listener = frontListener{rest, front}
	fronts.Store(s, func() {
		<-ended
		_ = front.Shutdown(context.Background())
	})
	t.Cleanup(func() { fronts.Delete(s) })
}

// fronts has a function that waits for the requests of a closed server, by its *httptest.Server.
var fronts sync.Map

// frontListener is the listener of a server behind an http1.Server, which it closes first.
type frontListener struct {
	*handedOver
	front *http1.Server
}

// Close is part of net.Listener.
func (l frontListener) Close() error {
	_ = l.front.Close()
	return l.handedOver.Close()
}
