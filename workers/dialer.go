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
	// freshFor is how long the addresses of a name are used without another lookup: a
	// worker that moves is found by its next health check.
	freshFor = 5 * time.Second
	// lookupPatience is how long a lookup may take while older addresses are known. A
	// name server answers in milliseconds; one that is down costs one connection in
	// freshFor this much.
	lookupPatience = 500 * time.Millisecond
	// missingFor is how long lookups must deny that the name exists before its addresses
	// are dropped. A resolver with search domains also answers so while one of its name
	// servers is down. Caches of name servers keep addresses about as long.
	missingFor = 30 * time.Second
)

// dialer opens connections to one worker's host and port. It keeps the addresses of
// the host's name for a short time, and while lookups fail for as long as they do: a
// name server that is down takes no worker away. It is safe for concurrent use.
type dialer struct {
	host, port string
	lookup     func(ctx context.Context, network, host string) ([]netip.Addr, error)
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	log        *slog.Logger

	mu      sync.Mutex   // guards the rest
	known   []netip.Addr // of the last lookup that succeeded; the slice is never written
	due     time.Time    // of the next lookup
	looking bool         // a lookup is under way
	failing bool         // the last lookup failed
	missing time.Time    // since when all lookups deny the name; zero: they do not
}

// newDialer returns a dialer for an address of the form host:port. It refuses every
// address of a cloud's metadata service, whatever name leads there.
func newDialer(address string, log *slog.Logger) *dialer {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, "" // which the dial then refuses
	}
	return &dialer{host: host, port: port, log: log, lookup: net.DefaultResolver.LookupNetIP,
		dial: (&net.Dialer{Control: refuseMetadata}).DialContext}
}

// DialContext opens a connection before ctx ends. It ignores the address that its
// caller gives, which is the dialer's own.
func (d *dialer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	if ip, err := netip.ParseAddr(d.host); err == nil {
		return d.try(ctx, network, []netip.Addr{ip})
	}
	addresses, fresh, err := d.addresses(ctx, false)
	if err != nil {
		return nil, err
	}
	conn, err := d.try(ctx, network, addresses)
	if err == nil || fresh || ctx.Err() != nil || OutOfResources(err) {
		return conn, err
	}
	// None of the kept addresses works: the worker may have moved.
	now, fresh, lookupErr := d.addresses(ctx, true)
	moved := slices.DeleteFunc(slices.Clone(now), func(a netip.Addr) bool { return slices.Contains(addresses, a) })
	if lookupErr != nil || !fresh || len(moved) == 0 {
		return nil, err
	}
	return d.try(ctx, network, moved)
}

// addresses returns the addresses of the host, and whether they come from a lookup of
// this call: if older ones are not good enough, or there are none.
func (d *dialer) addresses(ctx context.Context, again bool) (all []netip.Addr, fresh bool, err error) {
	d.mu.Lock()
	known := d.known
	if len(known) > 0 && (d.looking || !again && time.Now().Before(d.due)) {
		d.mu.Unlock()
		return known, false, nil
	}
	d.looking = true
	d.mu.Unlock()
	if len(known) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookupPatience)
		defer cancel()
	}
	found, err := d.lookup(ctx, "ip", d.host)
	if err == nil && len(found) == 0 {
		err = &net.DNSError{Err: "no address", Name: d.host, IsNotFound: true}
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return d.take(found, err)
}

// take keeps the result of a lookup. A name that has not existed for missingFor has no
// addresses; after any other failure the last addresses count.
func (d *dialer) take(found []netip.Addr, err error) (all []netip.Addr, fresh bool, _ error) {
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
		d.noteLocked(nil)
		return found, true, nil
	case len(d.known) > 0:
		d.noteLocked(err)
		return d.known, false, nil
	}
	return nil, false, fmt.Errorf("looking up the worker's host: %w", err)
}

// noteLocked logs when lookups begin to fail, and when they succeed again.
func (d *dialer) noteLocked(err error) {
	switch {
	case err != nil && !d.failing:
		d.log.Warn("a worker's host does not resolve; using its last addresses", "host", d.host, "cause", err.Error())
	case err == nil && d.failing:
		d.log.Info("a worker's host resolves again", "host", d.host)
	}
	d.failing = err != nil
}

// try opens a connection to the first address that takes one. Each has an equal share
// of the time that is left.
func (d *dialer) try(ctx context.Context, network string, addresses []netip.Addr) (net.Conn, error) {
	var first error
	for i, to := range addresses {
		conn, err := d.one(ctx, len(addresses)-i, network, net.JoinHostPort(to.String(), d.port))
		if err == nil {
			d.prefer(to)
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

// one opens a connection within one of n parts of the time until ctx ends.
func (d *dialer) one(ctx context.Context, n int, network, address string) (net.Conn, error) {
	if end, bounded := ctx.Deadline(); bounded && n > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
		defer cancel()
	}
	return d.dial(ctx, network, address)
}

// prefer puts the address that took a connection in front of those that did not.
func (d *dialer) prefer(to netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.known, to); i > 0 {
		d.known = slices.Concat(d.known[i:], d.known[:i])
	}
}
