package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"tierway/store"
)

// roleAdmin is the role of an admin key that names none.
const roleAdmin = "admin"

// The schemes of databases and of Redis.
var (
	sqlSchemes   = [...]string{"sqlite", "postgres", "postgresql"}
	redisSchemes = [...]string{"redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"}
)

// checkStore checks the stores' URLs and that several gateways can share them.
func (d *decoder) checkStore(f *File) {
	d.checkStoreURL("store.sql", f.Store.SQL, sqlSchemes[:], "sqlite://FILE or postgres://user@host/database")
	d.checkStoreURL("store.redis", f.Store.Redis, redisSchemes[:], "redis://host:6379, or rediss:// with TLS")
	if !strings.HasPrefix(f.Store.SQL, "sqlite://") {
		return
	}
	at, why := "", ""
	switch {
	case f.Gateways > 1:
		at, why = "gateways", fmt.Sprintf("gateways is %d", f.Gateways)
	case f.Store.Redis != "":
		at, why = "store.redis", "store.redis is for several gateways"
	default:
		return
	}
	before := len(d.problems)
	d.faultAt("store.sql", at, why+", and a SQLite file belongs to one: each would have tenants, keys and a ledger of its own",
		"use postgres:// where several gateways share tenants and keys")
	if len(d.problems) > before {
		d.warn()
	}
}

// checkStoreURL checks a URL that may hold a password: no message repeats more of
// it than the scheme.
func (d *decoder) checkStoreURL(path, text string, schemes []string, example string) {
	if text == "" {
		return
	}
	scheme, rest, found := strings.Cut(text, "://")
	message, hint := "", "write "+example
	switch {
	case !found:
		message = "is no URL"
	case !slices.Contains(schemes, scheme):
		message = "has another scheme than " + strings.Join(schemes, ", ")
	case rest == "":
		message = "names nothing behind " + scheme + "://"
	case scheme == "sqlite" && strings.ContainsAny(rest, "?#\x00"):
		message = "is no file name: it has a ? or a #"
	case scheme != "sqlite" && !isURL(text):
		message = "is no URL: signs in its password are written as % and two digits"
	default:
		err := checkServer(scheme, text)
		if err == nil {
			return
		}
		var way string
		if message, way = cutHint(err.Error()); way != "" {
			hint = way
		}
	}
	before := len(d.problems)
	parent, _, _ := strings.Cut(path, ".")
	d.faultAt(path, parent, message, hint)
	if len(d.problems) > before {
		d.problems[before].hide = true
	}
}

// checkServer returns why the store would refuse a server's URL when it is opened.
func checkServer(scheme, text string) error {
	switch {
	case slices.Contains(redisSchemes[:], scheme):
		return store.CheckRedisURL(text)
	case scheme != "sqlite":
		return store.CheckPostgresURL(text)
	}
	return nil
}

// isURL reports whether a URL can be read as one. Of several hosts the parser
// takes the ports for a wrong one, so that only the store can tell.
func isURL(text string) bool {
	_, err := url.Parse(text)
	return err == nil || strings.Contains(text, ",")
}

// redactURL returns what of a store's URL may be shown: scheme and hosts, or
// SQLite's file.
func redactURL(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	switch {
	case text == "":
		return ""
	case !found || !slices.Contains(sqlSchemes[:], scheme) && !slices.Contains(redisSchemes[:], scheme):
		return "***"
	}
	at, query := strings.LastIndex(rest, "@"), strings.IndexAny(rest, "?#")
	switch {
	case scheme == "sqlite":
		file, _, _ := strings.Cut(rest, "?")
		return scheme + "://" + file
	case query >= 0 && at > query:
		return scheme + "://***" // the query may be the end of a password that nobody escaped
	case query >= 0:
		rest = rest[:query]
	}
	// So may a /; the last @ ends a password all the same.
	user := ""
	if at >= 0 {
		user, rest = "***@", rest[at+1:]
	}
	hosts, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + user + hosts
}

// checkProxies checks trusted_proxies.
func (d *decoder) checkProxies(proxies []string) {
	seen := map[netip.Prefix]bool{}
	for i, text := range proxies {
		path := fmt.Sprintf("trusted_proxies[%d]", i)
		prefix, err := parseProxy(text)
		switch {
		case err != nil:
			d.fault(path, d.shown(path, text)+" is no address or network", "write one such as 10.0.0.7, 10.0.0.0/8 or fd00::/8")
		case prefix != prefix.Masked():
			d.fault(path, d.shown(path, text)+" has bits below its length", "write "+prefix.Masked().String())
		case seen[prefix]:
			d.fault(path, d.shown(path, text)+" stands here twice", "remove one")
		case prefix.Bits() == 0:
			d.caution(path, d.shown(path, text)+" trusts everybody: any client can say that it is another", "name the proxies' own addresses")
		}
		seen[prefix] = true
	}
}

// parseProxy reads an address or a network. IPv4 within IPv6 becomes IPv4, as
// which peers are known.
func parseProxy(text string) (netip.Prefix, error) {
	a, bits := netip.Addr{}, 0
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return p, err
		}
		a, bits = p.Addr(), p.Bits()
	} else {
		var err error
		if a, err = netip.ParseAddr(text); err != nil {
			return netip.Prefix{}, err
		}
		bits = a.BitLen()
	}
	if a.Zone() != "" {
		return netip.Prefix{}, errors.New("a zone is known on one machine only")
	}
	if mapped := 128 - 32; a.Is4In6() && bits >= mapped {
		a, bits = a.Unmap(), bits-mapped
	}
	return netip.PrefixFrom(a, bits), nil
}

// TrustedProxies returns the networks whose X-Forwarded-For is believed; an
// address is a network of one. The caller owns the result.
func (f *File) TrustedProxies() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range f.Proxies {
		if prefix, err := parseProxy(text); err == nil {
			all = append(all, prefix)
		}
	}
	return all
}
