package rig

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"

	"tierway/e2e/gateway"
	"tierway/engines"
)

// Environment is the network of a test's workers, gateways and clients, and the way in which its gateways start. By
// default, gateways are processes on the loopback interface.
type Environment struct {
	gateway.Launcher
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// environments maps each test that has called UseEnvironment to its environment: [testing.TB] to *Environment.
var environments sync.Map //nolint:gochecknoglobals // a test has no place for values of its own

// UseEnvironment makes e the environment of a test until its end. Package bubble calls it.
func UseEnvironment(t testing.TB, e *Environment) {
	environments.Store(t, e)
	t.Cleanup(func() { environments.Delete(t) })
}

// EnvironmentOf returns the environment of a test.
func EnvironmentOf(t testing.TB) *Environment {
	if e, ok := environments.Load(t); ok {
		return e.(*Environment)
	}
	return &Environment{Listen: net.Listen, Dial: (&net.Dialer{}).DialContext}
}

// binaryMissing is the message of tests that are skipped without the binary.
const binaryMissing = "needs the binary: run make soak"

// RequireBinary skips a test that needs the gateway as a separate process unless TIERWAY_BIN names the binary.
func RequireBinary(t testing.TB) {
	t.Helper()
	if os.Getenv("TIERWAY_BIN") == "" {
		t.Skip(binaryMissing)
	}
}

// Soaking reports whether tests run against the binary in real time, because TIERWAY_SOAK is set.
func Soaking() bool { return os.Getenv("TIERWAY_SOAK") != "" }

// Address returns an address of the loopback interface on which nothing listens. No other test takes it.
func Address(t testing.TB) string {
	t.Helper()
	e := EnvironmentOf(t)
	if !e.Virtual {
		return gateway.Address(t)
	}
	l, err := e.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Serve serves h on a free address until the end of the test.
func Serve(t testing.TB, h http.Handler) *engines.Server {
	t.Helper()
	l, err := EnvironmentOf(t).Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := engines.Serve(h, l)
	t.Cleanup(s.Kill)
	return s
}

// Resettable is a connection of [Dial]. After SetLinger(0), its Close resets it.
type Resettable interface {
	net.Conn
	SetLinger(seconds int) error
}

// Dial opens a connection, which ends with the test.
func Dial(t testing.TB, address string) Resettable {
	t.Helper()
	c, err := EnvironmentOf(t).Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(Resettable)
}

// DialTLS is Dial with a TLS handshake, for at most [Patience].
func DialTLS(t testing.TB, address string, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	secure := tls.Client(Dial(t, address), config)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	return secure, secure.HandshakeContext(ctx)
}

// NewClient returns a client that accepts any certificate and follows no redirects. Its connections end with the test.
func NewClient(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true, DialContext: EnvironmentOf(t).Dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // test certificates are self-signed
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// NewHTTP2Client is NewClient for HTTP/2 over TLS.
func NewHTTP2Client(t testing.TB) *http.Client {
	t.Helper()
	c := NewClient(t)
	c.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	return c
}
