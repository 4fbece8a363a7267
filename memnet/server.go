package memnet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
)

// NewServer serves h at a free address of the network, as httptest.NewServer does. The caller closes the
// server.
func (n *Network) NewServer(h http.Handler) *httptest.Server {
	s := n.NewUnstartedServer(h)
	s.Start()
	return s
}

// NewUnstartedServer returns a server that listens on the network; the caller starts the server.
func (n *Network) NewUnstartedServer(h http.Handler) *httptest.Server {
	l, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("memnet: listening on a free port: %v", err))
	}
	return &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
}

// Transport returns a transport whose connections are those of the network.
func (n *Network) Transport() *http.Transport { return &http.Transport{DialContext: n.Dial} }
