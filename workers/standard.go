package workers

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"

	"tierway/http1"
)

const (
	// maxIdleConnections limits the idle connections to one worker. It exceeds the usual max_inflight,
	// so that the next burst needs no new connections.
	maxIdleConnections = 512
	// idleTimeout is shorter than the idle time of common TLS front ends (60 s and more), so that the
	// gateway closes a connection first.
	idleTimeout = 55 * time.Second
	// connectionMaxAge is the age at which connections are replaced, as in the HTTP/1.1 client, so that new addresses
	// of a host receive requests.
	connectionMaxAge = 5 * time.Minute
	// maxHeaderBytes limits an answer's header: eight times what proxies send.
	maxHeaderBytes = 64 << 10
	// defaultConnectTimeout is the configuration's default; a worker is on a near network.
	defaultConnectTimeout = 2 * time.Second
	// socketHost is the Host header for a Unix socket.
	socketHost = "localhost"
	// pingAfter and pingTimeout detect an HTTP/2 connection whose peer vanished while a stream was
	// silent.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// newSender returns the Sender for spec's URL: the HTTP/1.1 client, or net/http for TLS. dial is Options.Dial.
func newSender(spec Spec, dial dialFunc, log *slog.Logger) Sender {
	to, err := parseAddress(spec.URL)
	if err != nil { // every exchange fails with the cause and sends nothing
		return http1.New(http1.Config{Host: "none", Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, err
		}})
	}
	dialer := newDialer(to.host, log)
	if dial != nil {
		dialer.dial = dial
	}
	switch to.scheme {
	case "unix":
		return http1.New(http1.Config{
			Network:        "unix",
			Address:        to.socket,
			Host:           socketHost,
			ConnectTimeout: spec.ConnectTimeout,
		})
	case "http":
		return addressed{http1.New(http1.Config{Network: "tcp", Address: to.host, Host: to.host,
			ConnectTimeout: spec.ConnectTimeout, Dial: dialer.DialContext}), dialer}
	}
	c := standardConfig{address: to, connectTimeout: spec.ConnectTimeout, dial: dialer.DialContext, tls: spec.tls(),
		log: log}
	if dial == nil && !internal(dialer.host) {
		c.proxy, c.proxyDial = httpproxy.FromEnvironment().ProxyFunc(), new(net.Dialer).DialContext
		if through, err := c.proxy(&url.URL{Scheme: to.scheme, Host: to.host}); err == nil && through != nil {
			log.Info("a worker is reached through the proxy of HTTPS_PROXY", "worker", spec.Name, "proxy", through.Host,
				"way_out", "for a direct connection, list the worker's host in NO_PROXY")
		}
	}
	return addressed{newStandard(c), dialer}
}

// internal reports whether a host is in the gateway's own network, where a proxy of the environment is not for: an
// address of a private, link-local or loopback network, a name without a dot, or a name of an internal domain.
func internal(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		return ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	at := strings.LastIndexByte(host, '.')
	return at < 0 || slices.Contains([]string{"internal", "local", "svc"}, host[at+1:])
}

// addressed is a Sender to a host that may have several addresses.
type addressed struct {
	Sender
	*dialer
}

// standardConfig configures a standard Sender.
type standardConfig struct {
	address        address
	connectTimeout time.Duration  // for the connection, and again for the TLS handshake; 0: 2 s
	rootCAs        *x509.CertPool // nil: the system's
	dial           dialFunc
	tls            TLS
	log            *slog.Logger // may be nil without tls
	// proxy returns the proxy for a URL, or nil; proxyDial opens connections to it. Nil: no proxy.
	proxy     func(*url.URL) (*url.URL, error)
	proxyDial dialFunc
}

// standard is the Sender for https. It uses net/http.
type standard struct {
	scheme, host string
	closed       atomic.Bool

	current atomic.Pointer[transportPair]

	mu     sync.Mutex // held while current is replaced; guards config
	config standardConfig
}

// transportPair has the transports of a standard Sender.
type transportPair struct {
	kept  *http.Transport // keeps connections
	fresh *http.Transport // one connection per exchange, HTTP/1.1 only
	since time.Time
}

func newStandard(c standardConfig) *standard {
	s := &standard{scheme: c.address.scheme, host: c.address.host, config: c}
	s.renewLocked(time.Now())
	return s
}

// transports returns the transport that keeps connections, and the one that does not. Both are replaced after
// connectionMaxAge: exchanges in flight end on the old ones, which close their connections once they are idle. One
// exchange replaces them and reads the files for it; the others use the old ones meanwhile.
func (s *standard) transports() (kept, fresh *http.Transport) {
	p := s.current.Load()
	if now := time.Now(); now.Sub(p.since) >= connectionMaxAge && s.mu.TryLock() {
		defer s.mu.Unlock()
		if s.current.Load() == p {
			s.renewLocked(now)
			p.kept.CloseIdleConnections()
		}
		p = s.current.Load()
	}
	return p.kept, p.fresh
}

func (s *standard) renewLocked(now time.Time) {
	if s.config.tls.CA != "" {
		pool, err := readAuthorities(s.config.tls.CA)
		switch {
		case err == nil:
			s.config.rootCAs = pool
		default:
			s.config.rootCAs = cmp.Or(s.config.rootCAs, x509.NewCertPool()) // without authorities, none is trusted
			s.config.log.Warn("the authorities of a worker cannot be read; the last ones apply", "file", s.config.tls.CA,
				"cause", err.Error())
		}
	}
	p := &transportPair{kept: newTransport(s.config), fresh: newTransport(s.config), since: now}
	p.kept.ForceAttemptHTTP2 = s.scheme == "https"
	// An HTTP/2 connection carries many exchanges and repeats some by itself; an exchange that must
	// not be sent twice has its own connection.
	p.fresh.DisableKeepAlives = true
	p.fresh.Protocols = new(http.Protocols)
	p.fresh.Protocols.SetHTTP1(true)
	s.current.Store(p)
}

// readAuthorities returns the certificates in a PEM file.
func readAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in PEM form")
	}
	return pool, nil
}

// config returns the configuration of connections with these certificates. Nil roots are the system's authorities.
func (t TLS) config(roots *x509.CertPool) *tls.Config {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if t.Cert != "" {
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			own, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("the gateway's certificate for the worker: %w", err)
			}
			return &own, nil
		}
	}
	return secure
}

// newTransport returns a transport, which unlike an http.Client follows no redirect.
func newTransport(c standardConfig) *http.Transport {
	timeout := c.connectTimeout
	if timeout <= 0 {
		timeout = defaultConnectTimeout
	}
	secure := c.tls.config(c.rootCAs)
	var proxy func(*http.Request) (*url.URL, error)
	if c.proxy != nil {
		proxy = func(r *http.Request) (*url.URL, error) { return c.proxy(r.URL) }
	}
	return &http.Transport{
		Proxy: proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			if c.proxy != nil && address != c.address.host {
				return c.proxyDial(ctx, network, address)
			}
			return c.dial(ctx, network, address)
		},
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    timeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdleConnections,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// Send sends r. A kept connection may break before the first byte of the answer because the worker
// has just closed it. The request is then sent once more on a new connection, unless r.Fresh or
// r.Once forbids it.
func (s *standard) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	err := r.Check() // net/http is more permissive
	var target *url.URL
	if err == nil {
		target, err = s.target(r.Path)
	}
	if err != nil {
		return nil, &http1.SendError{Phase: http1.PhasePrepare, Err: err}
	}
	r.BodyInUse = true // net/http may read the body until the answer is closed
	kept, fresh := s.transports()
	if r.Fresh || r.Upload != nil || s.closed.Load() {
		response, attempt, err := s.sendOver(ctx, fresh, r, target)
		return response, attempt.failure(err)
	}
	response, first, err := s.sendOver(ctx, kept, r, target)
	if err == nil || r.Once || !first.staleConnection(ctx, err) {
		return response, first.failure(err)
	}
	response, second, err := s.sendOver(ctx, fresh, r, target)
	if err == nil {
		return response, nil
	}
	// The worker may have read the first copy, so the phase of the second is not lower.
	second.advance(first.phase())
	return nil, second.failure(fmt.Errorf("%w (on a new connection, after a kept one broke)", err))
}

// Close closes the idle connections. Exchanges in flight continue to their end; their connections
// are not kept, nor is one of a later Send.
func (s *standard) Close() {
	s.closed.Store(true)
	kept, fresh := s.transports()
	kept.CloseIdleConnections()
	fresh.CloseIdleConnections()
}

func (s *standard) sendOver(ctx context.Context, over *http.Transport, r *http1.Request,
	target *url.URL) (*http1.Response, *attempt, error) {
	a := new(attempt)
	a.at.Store(uint32(http1.PhaseConnect))
	request := &http.Request{
		Method: r.Method, URL: target, Host: s.host, Header: forwardable(r.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	body := &pieces{rest: slices.Clone(r.Body)} // pieces removes its parts as they are read
	for _, piece := range r.Body {
		request.ContentLength += int64(len(piece))
	}
	if request.ContentLength > 0 {
		request.Body = body
	}
	up := newUploadBody(r.Upload)
	if up != nil {
		request.Body, request.ContentLength = up, r.UploadLength
	}
	answer, err := over.RoundTrip(request.WithContext(httptrace.WithClientTrace(ctx, a.trace())))
	if err == nil && up != nil && answer.StatusCode < http.StatusBadRequest {
		select { // a worker may answer while it still reads
		case <-up.sent:
		case <-ctx.Done():
		}
	}
	if err == nil && ctx.Err() != nil {
		// A worker that sees the cancellation may still answer properly.
		_ = answer.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		body.stop()
		return nil, a, err
	}
	return &http1.Response{
		Status:        answer.StatusCode,
		Header:        answer.Header,
		ContentLength: answer.ContentLength,
		Body: &answerBody{
			ReadCloser: answer.Body,
			request:    body,
			sender:     s,
			cancelled:  func() error { return context.Cause(ctx) },
		},
	}, a, nil
}

// target returns the URL of a path with query; both are sent as the caller wrote them.
func (s *standard) target(raw string) (*url.URL, error) {
	escaped, query, hasQuery := strings.Cut(raw, "?")
	if !strings.HasPrefix(escaped, "/") {
		return nil, fmt.Errorf("the path %q does not begin with a slash", escaped)
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, fmt.Errorf("the path %q: %w", escaped, err)
	}
	return &url.URL{Scheme: s.scheme, Host: s.host, Path: plain, RawPath: escaped,
		RawQuery: query, ForceQuery: hasQuery && query == ""}, nil
}

// forwardable returns a copy of the header without the fields of the client's connection.
func forwardable(h http.Header) http.Header {
	out := maps.Clone(h)
	if out == nil {
		return http.Header{}
	}
	for _, names := range h["Connection"] {
		for name := range strings.SplitSeq(names, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	maps.DeleteFunc(out, func(name string, _ []string) bool { return http1.IsConnectionField(name) })
	return out
}

// attempt records the progress of one exchange. net/http calls its trace from several goroutines.
type attempt struct {
	at       atomic.Uint32 // the current http1.Phase
	reused   atomic.Bool
	answered atomic.Bool // a byte of the answer has arrived
}

func (a *attempt) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			a.reused.Store(info.Reused)
			a.advance(http1.PhaseWrite)
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				a.advance(http1.PhaseAwait)
			}
		},
		GotFirstResponseByte: func() { a.answered.Store(true) },
	}
}

func (a *attempt) phase() http1.Phase { return http1.Phase(a.at.Load()) }

func (a *attempt) advance(p http1.Phase) {
	for {
		at := a.at.Load()
		if at >= uint32(p) || a.at.CompareAndSwap(at, uint32(p)) {
			return
		}
	}
}

func (a *attempt) failure(err error) error {
	if err == nil {
		return nil
	}
	return &http1.SendError{Phase: a.phase(), Err: err}
}

// staleConnection reports whether err is only the end of a kept connection: not the caller's
// cancellation, a slow worker or an invalid answer.
func (a *attempt) staleConnection(ctx context.Context, err error) bool {
	if !a.reused.Load() || a.answered.Load() || ctx.Err() != nil {
		return false
	}
	if reset, ok := errors.AsType[streamReset](err); ok {
		return reset.Code == refusedStream || reset.Code == http11Required
	}
	timed, ok := errors.AsType[net.Error](err)
	return !ok || !timed.Timeout()
}

// streamReset has the fields of net/http's HTTP/2 stream error, so errors.As can convert that error.
// The worker has ended one exchange; the connection continues.
type streamReset struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamReset) Error() string { return fmt.Sprintf("stream reset with code %d", e.Code) }

// RFC 9113, section 7: codes that mean that the worker has not processed the request.
const (
	refusedStream  = 0x7
	http11Required = 0xd
)

// pieces reads a request's body. After stop it no longer reads the caller's slices, even if
// net/http still wants to send them.
type pieces struct {
	mu      sync.Mutex
	rest    net.Buffers
	stopped bool
}

func (p *pieces) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return 0, net.ErrClosed
	}
	return p.rest.Read(b)
}

// Close is called by net/http when it no longer needs the body.
func (p *pieces) Close() error {
	p.stop()
	return nil
}

func (p *pieces) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.rest = true, nil
}

// answerBody is an answer's body; its failures are SendErrors.
type answerBody struct {
	io.ReadCloser
	request   *pieces
	sender    *standard
	cancelled func() error // the cause of a cancellation, or nil
}

func (a *answerBody) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if err == nil {
		return n, nil
	}
	// As in try, a clean end after a cancellation is not a complete answer.
	if cause := a.cancelled(); cause != nil {
		err = cause
	}
	// Only a bare EOF is the worker's proper end.
	if err != io.EOF { //nolint:errorlint // a wrapped one is a failure
		err = &http1.SendError{Phase: http1.PhaseBody, Err: err}
	}
	return n, err
}

func (a *answerBody) Close() error {
	err := a.ReadCloser.Close()
	a.request.stop()
	if a.sender.closed.Load() {
		kept, _ := a.sender.transports()
		kept.CloseIdleConnections()
	}
	return err
}
