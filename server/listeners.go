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
	"tierway/http1"
	"tierway/server/control"
	"tierway/server/proxy"
)

// address is what a plane needs to open its listener.
type address struct {
	plane   string
	listen  string
	files   config.TLS
	handler http.Handler
	later   bool // the address is only reserved, until openReserved
	fast    bool // usual HTTP/1.1 requests are served by http1
}

type listener struct {
	plane string
	net.Listener
	server   *http.Server
	front    *http1.Server     // nil: server accepts the connections
	reserved *reservedListener // nil if the address was opened at once
}

// idleTimeout is the time until an open connection without a request is closed: below 75 s, a common idle timeout of
// balancers.
const idleTimeout = 60 * time.Second

// firstRequestTime is the time in which the first request of an open connection arrives, even if a
// packet is lost and sent again.
const firstRequestTime = time.Second

// listeners are the addresses of a gateway. They are opened or reserved once, before they are
// served.
type listeners struct {
	log         *slog.Logger
	recover     *control.Recoverer
	proxy       *proxy.Proxy
	listen      func(network, address string) (net.Listener, error)
	cutRequests context.CancelCauseFunc // cancels all requests in flight

	mu  sync.Mutex // guards the rest
	all []listener // replaced as a whole
}

// addressSettings names the settings of each plane's address, for errors; immutable.
var addressSettings = map[string]string{
	"data":    "--listen, or listen in a configuration file",
	"admin":   "--admin-listen, or admin.listen in a configuration file",
	"metrics": "metrics.listen in the configuration file",
}

// open opens or reserves all addresses. If one address fails, it closes the others and returns the error.
func (ls *listeners) open(addresses []address) error {
	base, cut := context.WithCancelCause(context.Background())
	ls.cutRequests = cut
	var all []listener
	for _, a := range addresses {
		l, err := ls.openOne(base, a)
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return err
		}
		all = append(all, l)
	}
	ls.mu.Lock()
	ls.all = all
	ls.mu.Unlock()
	return nil
}

// opened returns the open or reserved addresses.
func (ls *listeners) opened() []listener {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.all
}

// openOne opens or reserves one address. base is the parent context of its requests.
func (ls *listeners) openOne(base context.Context, a address) (listener, error) {
	l, reserved, err := ls.listenOrReserve(a)
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
			return listener{}, fmt.Errorf("loading the certificate of the %s plane: %w", a.plane, err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certs.get, NextProtos: []string{"h2", "http/1.1"}}
	}
	l = &onceListener{Listener: l, once: sync.OnceValue(l.Close)}
	accept := acceptor{l, a.plane, ls.log, ls.proxy.Exhausted}
	ready := listener{plane: a.plane, reserved: reserved, Listener: accept, server: &http.Server{
		TLSConfig:         secure,
		Handler:           a.handler,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10, // keys and trace headers need a fraction of it
		ErrorLog:          slog.NewLogLogger(ls.log.Handler(), slog.LevelDebug),
	}}
	if a.fast && secure == nil {
		ready.front = &http1.Server{Handler: a.handler, Base: base, HeadTimeout: headerTimeout, IdleTimeout: idleTimeout,
			OnPanic: func(p any) { ls.recover.Panicked(p, slog.String("plane", a.plane)) }}
	}
	return ready, nil
}

// listenOrReserve returns the listener of an address. reserved is nil, or the listener that must be opened.
func (ls *listeners) listenOrReserve(a address) (l net.Listener, reserved *reservedListener, err error) {
	if !a.later {
		l, err = ls.listen("tcp", a.listen)
		return l, nil, err
	}
	if reserved, err = reserve(a.listen); err != nil {
		return nil, nil, err
	}
	return reserved, reserved, nil
}

// openReserved opens the addresses that are only reserved. If one fails, serve reports it.
func (ls *listeners) openReserved() error {
	var errs []error
	for _, l := range ls.opened() {
		if l.reserved != nil {
			errs = append(errs, l.reserved.open())
		}
	}
	return errors.Join(errs...)
}

// address returns the address that a plane listens on, or "".
func (ls *listeners) address(plane string) string {
	for _, l := range ls.opened() {
		if l.plane == plane {
			return l.Addr().String()
		}
	}
	return ""
}

// serve serves all addresses in goroutines of owned until shut is called. The channel receives the
// error of each address that fails before that.
func (ls *listeners) serve(owned *sync.WaitGroup) <-chan error {
	all := ls.opened()
	failed := make(chan error, len(all))
	for _, l := range all {
		owned.Go(func() {
			if err := ls.serveOne(l, owned); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving the %s plane: %w", l.plane, err)
			}
		})
	}
	return failed
}

// serveOne serves one address until it fails or is shut.
func (ls *listeners) serveOne(l listener, owned *sync.WaitGroup) error {
	if secure := l.server.TLSConfig; secure != nil {
		return l.server.Serve(newTLSListener(l.Listener, secure, ls.recover.Run))
	}
	if l.front == nil {
		return l.server.Serve(plainListener{l.Listener})
	}
	rest := newHandedOver(l.Addr())
	l.front.Fallback = rest.serveConn
	owned.Go(func() { _ = l.server.Serve(rest) }) // it ends when it is shut
	return l.front.Serve(l.Listener)
}

// onceListener is a listener that may be closed more than once.
type onceListener struct {
	net.Listener
	once func() error
}

// Close is part of net.Listener. Every call returns the error of the first one.
func (l *onceListener) Close() error { return l.once() }

// frameTime is the time in which the cut requests of all addresses send their error frames, each of which
// is one write. A client that does not read delays a stop by this time.
const frameTime = 1500 * time.Millisecond

// lastHandlerTime limits the wait for handlers after their connections are closed. Their writes fail at
// once, and they publish the record and the usage of their requests.
const lastHandlerTime = time.Second

// shut closes the addresses in order: the admin plane and the metrics stay open until the requests of
// the data plane have ended. Requests that still run when cut ends are cut, and get frameTime to send their
// error frames. The data plane still serves the first request of each connection that it has accepted,
// if the request arrives within firstRequestTime, and within grace if that is shorter.
func (ls *listeners) shut(cut context.Context, grace time.Duration) {
	frames, endFrames := context.WithCancel(context.Background())
	defer endFrames()
	defer context.AfterFunc(cut, func() {
		ls.proxy.Cut()
		ls.cutRequests(proxy.ErrDrainCut)
		time.AfterFunc(frameTime, endFrames)
	})()
	for _, l := range ls.opened() {
		if l.plane == "data" {
			// Shutdown would close such a connection without an answer. A balancer that does not check
			// /readyz opens connections until one is refused, and must not send a request again.
			l.Close() // Shutdown returns the error
			select {
			case <-time.After(min(grace, firstRequestTime)):
			case <-cut.Done():
			}
		}
		// Shutdown polls at growing intervals. The second call begins with short ones.
		if l.front != nil {
			l.server.SetKeepAlivesEnabled(false) // closes its idle connections at once
			if l.front.Shutdown(cut) != nil && l.front.Shutdown(frames) != nil {
				l.front.Close()
			}
		}
		if l.server.Shutdown(cut) != nil && l.server.Shutdown(frames) != nil {
			l.server.Close()
		}
	}
	ls.waitForHandlers()
}

// waitForHandlers waits until no request of the data plane is in flight, for at most lastHandlerTime.
func (ls *listeners) waitForHandlers() {
	const every = 5 * time.Millisecond
	for range lastHandlerTime / every {
		if ls.proxy.Inflight() == 0 {
			return
		}
		<-time.After(every)
	}
}
