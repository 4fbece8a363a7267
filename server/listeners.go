package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"tierway/config"
	"tierway/server/control"
	"tierway/server/proxy"
)

// address is a plane's address before it is opened.
type address struct {
	plane   string
	listen  string
	files   config.TLS
	handler http.Handler
}

// listener is one open address with its server.
type listener struct {
	plane string
	net.Listener
	server *http.Server
}

// listeners are the open addresses of a gateway. They are opened once, before they are
// served.
type listeners struct {
	log     *slog.Logger
	recover *control.Recoverer
	proxy   *proxy.Proxy
	cut     context.CancelCauseFunc // ends the requests of all

	mu     sync.Mutex
	onOpen func() // waits for the addresses; guarded by mu
	all    []listener
}

// addressSettings has the settings of each plane's address, for errors.
var addressSettings = map[string]string{
	"data":    "--listen, or listen in a configuration file",
	"admin":   "--admin-listen, or admin.listen in a configuration file",
	"metrics": "metrics.listen in the configuration file",
}

// open opens all addresses, or none and returns an error. Then it calls what waits for
// them.
func (ls *listeners) open(addresses []address) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	base, cut := context.WithCancelCause(context.Background())
	ls.cut = cut
	for _, a := range addresses {
		l, err := ls.openOne(base, a)
		if err != nil {
			for _, l := range ls.all {
				l.Close()
			}
			ls.all = nil
			return err
		}
		ls.all = append(ls.all, l)
	}
	if f := ls.onOpen; f != nil {
		ls.onOpen = nil
		f()
	}
	return nil
}

// openOne opens one address, whose requests end with base.
func (ls *listeners) openOne(base context.Context, a address) (listener, error) {
	l, err := net.Listen("tcp", a.listen)
	if err != nil {
		return listener{},
			fmt.Errorf("listening for the %s plane: %w (choose another address: %s)",
				a.plane, err, addressSettings[a.plane])
	}
	var secure *tls.Config
	if a.files.Cert != "" {
		certs, err := newCertificates(a.files.Cert, a.files.Key, ls.log)
		if err != nil {
			l.Close()
			return listener{}, fmt.Errorf("the %s plane's certificate: %w", a.plane, err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certs.get, NextProtos: []string{"h2", "http/1.1"}}
	}
	return listener{plane: a.plane, Listener: acceptor{l, a.plane, ls.log, ls.proxy.Exhausted}, server: &http.Server{
		TLSConfig:         secure,
		Handler:           a.handler,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       60 * time.Second, // below the 75 s at which common balancers let go first
		MaxHeaderBytes:    64 << 10,         // bearer keys and traces need a fraction of it
		ErrorLog:          slog.NewLogLogger(ls.log.Handler(), slog.LevelDebug),
	}}, nil
}

// whenOpen calls f when the addresses are open.
func (ls *listeners) whenOpen(f func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.all) == 0 {
		ls.onOpen = f
		return
	}
	f()
}

// address returns the address that a plane listens on, or "".
func (ls *listeners) address(plane string) string {
	for _, l := range ls.all {
		if l.plane == plane {
			return l.Addr().String()
		}
	}
	return ""
}

// serve serves all addresses in goroutines of owned until they are shut. The channel
// gets the error of each that ends before.
func (ls *listeners) serve(owned *sync.WaitGroup) <-chan error {
	failed := make(chan error, len(ls.all))
	for _, l := range ls.all {
		owned.Go(func() {
			var accept net.Listener = plainListener{l.Listener}
			if secure := l.server.TLSConfig; secure != nil {
				accept = newTLSListener(l.Listener, secure, ls.recover.Run)
			}
			if err := l.server.Serve(accept); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving the %s plane: %w", l.plane, err)
			}
		})
	}
	return failed
}

// shut closes the addresses in their order, so that those after the first answer until
// its requests have ended. Requests that are left at the deadline are cut and get a
// moment to send their error frames.
func (ls *listeners) shut(deadline context.Context) {
	for _, l := range ls.all {
		if l.server.Shutdown(deadline) == nil {
			continue
		}
		ls.proxy.Cut()
		ls.cut(proxy.ErrDrainCut)
		last, cancel := context.WithTimeout(context.Background(), 2*time.Second) // an error frame is one write
		if l.server.Shutdown(last) != nil {
			l.server.Close()
		}
		cancel()
	}
}
