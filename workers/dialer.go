package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// freshFor is the time for which addresses are used without another lookup. If a worker moves,
	// its next health check finds the new address.
	freshFor = 5 * time.Second
	// lookupTimeout is the timeout of a lookup while older addresses are known. A name server
	// answers in milliseconds. If it is down, one connection per freshFor is delayed by this time.
	lookupTimeout = 500 * time.Millisecond
	// missingFor is the time for which lookups must report that the name does not exist before its
	// addresses are dropped. A resolver with search domains also reports this while one of its name
	// servers is down. Name servers cache addresses for about as long.
	missingFor = 30 * time.Second
)

// dialFunc opens a connection, as net.Dialer.DialContext does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer opens connections to one worker's host and port. It keeps the addresses of the host for
// freshFor, and longer while lookups fail, so a failed name server takes no worker down. It is safe
// for concurrent use.
type dialer struct {
	host, port string
	lookup     func(ctx context.Context, network, host string) ([]netip.Addr, error)
	dial       dialFunc
	log        *slog.Logger

	mu      sync.Mutex   // guards the rest
	known   []netip.Addr // from the last successful lookup; the slice is immutable
	due     time.Time    // time of the next lookup
	looking bool         // a lookup is in progress
	failing bool         // the last lookup failed
	missing time.Time    // since when all lookups report that the name does not exist; zero: the name exists
}

// newDialer returns a dialer for an address host:port. It rejects every address of a cloud's
// metadata service, whatever name resolves to it.
func newDialer(address string, log *slog.Logger) *dialer {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, "" // the dial then fails
	}
	return &dialer{host: host, port: port, log: log, lookup: net.DefaultResolver.LookupNetIP,
		dial: (&net.Dialer{Control: refuseMetadata}).DialContext}
}

// DialContext opens a connection before ctx ends. It ignores its address argument and uses the
// dialer's own.
func (d *dialer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	if ip, err := netip.ParseAddr(d.host); err == nil {
		return d.dialAny(ctx, network, []netip.Addr{ip})
	}
	addresses, fresh, err := d.addresses(ctx, false)
	if err != nil {
		return nil, err
	}
	conn, err := d.dialAny(ctx, network, addresses)
	if err == nil || fresh || ctx.Err() != nil || OutOfResources(err) {
		return conn, err
	}
	// No kept address works: the worker may have moved.
	now, fresh, lookupErr := d.addresses(ctx, true)
	moved := slices.DeleteFunc(slices.Clone(now), func(a netip.Addr) bool { return slices.Contains(addresses, a) })
	if lookupErr != nil || !fresh || len(moved) == 0 {
		return nil, err
	}
	return d.dialAny(ctx, network, moved)
}

// addresses returns the addresses of the host. It looks them up if refresh is set, if they are older
// than freshFor, or if there are none; fresh reports whether it did.
func (d *dialer) addresses(ctx context.Context, refresh bool) (all []netip.Addr, fresh bool, err error) {
	d.mu.Lock()
	known := d.known
	if len(known) > 0 && (d.looking || !refresh && time.Now().Before(d.due)) {
		d.mu.Unlock()
		return known, false, nil
	}
	d.looking = true
	d.mu.Unlock()
	if len(known) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookupTimeout)
		defer cancel()
	}
	found, err := d.lookup(ctx, "ip", d.host)
	if err == nil && len(found) == 0 {
		err = &net.DNSError{Err: "no address", Name: d.host, IsNotFound: true}
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return d.storeLookup(found, err)
}

// storeLookup stores the result of a lookup. A name that has not existed for missingFor has no
// addresses; after any other failure the last addresses stay in use.
func (d *dialer) storeLookup(found []netip.Addr, err error) (all []netip.Addr, fresh bool, _ error) {
	var dns *net.DNSError
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.looking, d.due = false, now.Add(freshFor)
	switch denied := errors.As(err, &dns) && dns.IsNotFound; {
	case !denied:
		d.missing = time.Time{}
	case d.missing.IsZero():
		d.missing = now
	case now.Sub(d.missing) >= missingFor:
		d.known = nil
	}
	switch {
	case err == nil:
		d.known = found
		d.logLookupLocked(nil)
		return found, true, nil
	case len(d.known) > 0:
		d.logLookupLocked(err)
		return d.known, false, nil
	}
	return nil, false, fmt.Errorf("looking up the worker's host: %w", err)
}

// logLookupLocked logs when lookups begin to fail and when they succeed again. The caller must hold
// mu.
func (d *dialer) logLookupLocked(err error) {
	switch {
	case err != nil && !d.failing:
		d.log.Warn("a worker's host does not resolve; using its last addresses", "host", d.host, "cause", err.Error())
	case err == nil && d.failing:
		d.log.Info("a worker's host resolves again", "host", d.host)
	}
	d.failing = err != nil
}

// dialAny opens a connection to the first address that accepts one. Each address gets an equal
// share of the remaining time.
func (d *dialer) dialAny(ctx context.Context, network string, addresses []netip.Addr) (net.Conn, error) {
	var first error
	for i, to := range addresses {
		conn, err := d.dialOne(ctx, len(addresses)-i, network, net.JoinHostPort(to.String(), d.port))
		if err == nil {
			d.preferAddress(to)
			return conn, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil || OutOfResources(err) {
			return nil, err
		}
	}
	return nil, first
}

// dialOne opens a connection within 1/n of the time until ctx ends.
func (d *dialer) dialOne(ctx context.Context, n int, network, address string) (net.Conn, error) {
	if end, bounded := ctx.Deadline(); bounded && n > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
		defer cancel()
	}
	return d.dial(ctx, network, address)
}

// preferAddress moves the address that accepted a connection to the front.
func (d *dialer) preferAddress(to netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.known, to); i > 0 {
		d.known = slices.Concat(d.known[i:], d.known[:i])
	}
}
