package workers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"

	"tierway/http1"
)

// Peer is a server that is not a worker but is reached like one: with a key, certificates, and a dialer that rejects
// metadata services. It has neither health checks nor a load. It is safe for concurrent use.
type Peer struct {
	link *link
	tls  TLS
	dial dialFunc
}

// NewPeer returns a peer at spec's URL, which is http or https. It opens no connection. dial replaces the network in
// tests; nil: net.Dialer.
func NewPeer(spec Spec, dial func(ctx context.Context, network, address string) (net.Conn, error),
	log *slog.Logger) *Peer {
	none := func() string { return "" }
	p := &Peer{tls: spec.tls(), link: newLink(newSender(spec, dial, log), spec, none, func() Headers { return nil }, log)}
	if to, err := parseAddress(spec.URL); err == nil {
		d := newDialer(to.host, log)
		if dial != nil {
			d.dial = dial
		}
		p.dial = d.DialContext
	}
	return p
}

// Send sends a request with the peer's key, as Sender.Send does.
func (p *Peer) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	if p.link.authorize != nil {
		p.link.authorize(r.Header)
	}
	return p.link.sender.Send(ctx, r)
}

// Key returns the peer's key, which may change with its file; "" without one.
func (p *Peer) Key() string { return p.link.key() }

// Dial opens a connection to the peer, without TLS.
func (p *Peer) Dial(ctx context.Context) (net.Conn, error) { return p.dial(ctx, "tcp", "") }

// TLSConfig returns the configuration of a TLS connection to the peer. It reads the file of the authorities.
func (p *Peer) TLSConfig() (*tls.Config, error) {
	var roots *x509.CertPool
	if p.tls.CA != "" {
		var err error
		if roots, err = readAuthorities(p.tls.CA); err != nil {
			return nil, err
		}
	}
	return p.tls.config(roots), nil
}

// Close closes the idle connections of Send. Exchanges in flight continue to their end.
func (p *Peer) Close() { p.link.sender.Close() }
