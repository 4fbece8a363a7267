package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// avoidFor is the time for which an address at which a check has failed is tried after the others.
	avoidFor = time.Minute
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
	lookup     lookUpFunc
	dial       dialFunc
	log        *slog.Logger

	mu      sync.Mutex               // guards the rest
	known   []netip.Addr             // from the last successful lookup; the slice is immutable
	due     time.Time                // time of the next lookup
	looking bool                     // a lookup is in progress
	failing bool                     // the last lookup failed
	avoided map[netip.Addr]time.Time // addresses at which a check has failed, and until when they are tried last
	several bool                     // the warning of several addresses was logged
	missing time.Time                // since when all lookups report that the name does not exist; zero: the name exists
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
		if severalServers(found) != d.several {
			if d.several = !d.several; d.several {
				d.log.Warn("a worker's host has several addresses: its limits, health and cache count as those of one server",
					"host", d.host, "addresses", len(found), "way_out", "list each server as a worker of its own")
			}
		}
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
	addresses = d.inOrder(addresses)
	for i, to := range addresses {
		conn, err := d.dialOne(ctx, len(addresses)-i, network, net.JoinHostPort(to.String(), d.port))
		if err == nil {
			d.preferAddress(to)
			if reached, ok := ctx.Value(reachedKey{}).(*atomic.Pointer[netip.Addr]); ok {
				reached.Store(&to)
			}
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

// reachedKey is the key of a context's *atomic.Pointer[netip.Addr]. A dialer stores there to which address it has
// opened a connection.
type reachedKey struct{}

// avoid makes an address the last one to be tried, because a check has failed there. Nil: the check reached none.
func (d *dialer) avoid(address *netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) < 2 || address == nil {
		return
	}
	if d.avoided == nil {
		d.avoided = map[netip.Addr]time.Time{}
	}
	now := time.Now()
	maps.DeleteFunc(d.avoided, func(a netip.Addr, until time.Time) bool {
		return now.After(until) || !slices.Contains(d.known, a)
	})
	d.avoided[*address] = now.Add(avoidFor)
}

// inOrder returns the addresses with those that a check has found failing at the end, the latest one last.
func (d *dialer) inOrder(all []netip.Addr) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.avoided) == 0 {
		return all
	}
	now := time.Now()
	rank := func(a netip.Addr) time.Time {
		if until := d.avoided[a]; until.After(now) {
			return until
		}
		return time.Time{}
	}
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b netip.Addr) int { return rank(a).Compare(rank(b)) })
	return ordered
}

// severalServers reports whether the addresses belong to more than one server: two of one family do.
func severalServers(all []netip.Addr) bool {
	fours := 0
	for _, a := range all {
		if a.Unmap().Is4() {
			fours++
		}
	}
	return fours > 1 || len(all)-fours > 1
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

// lookUpFunc returns the addresses of a host, as net.Resolver.LookupNetIP does.
type lookUpFunc = func(ctx context.Context, network, host string) ([]netip.Addr, error)

// SeveralAddresses looks up the host of a worker's URL. It returns the host and its addresses if they belong to more
// than one server, otherwise "". A name that cannot be looked up has no addresses. Nil is the system's lookup.
func SeveralAddresses(ctx context.Context, raw string, lookUp lookUpFunc) (host string, all []netip.Addr) {
	to, err := parseAddress(raw)
	if err != nil || to.scheme == "unix" {
		return "", nil
	}
	if host, _, err = net.SplitHostPort(to.host); err != nil {
		return "", nil
	}
	if lookUp == nil {
		lookUp = net.DefaultResolver.LookupNetIP
	}
	if all, err = lookUp(ctx, "ip", host); err != nil || !severalServers(all) {
		return "", nil
	}
	return host, all
}
