package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// roleAdmin is the role of an admin key that names none.
const roleAdmin = "admin"

// checkStore warns of several gateways that cannot share their database.
func (d *decoder) checkStore(f *File) {
	at, why := "", ""
	switch {
	case !strings.HasPrefix(f.Store.SQL, "sqlite://"):
		return
	case f.Gateways > 1:
		at, why = "gateways", fmt.Sprintf("gateways is %d", f.Gateways)
	case f.Store.Redis != "":
		at, why = "store.redis", "store.redis is for several gateways"
	default:
		return
	}
	where := d.places[at].key
	if d.written("store.sql") {
		where = d.position("store.sql")
	}
	d.faultAt("store.sql", where, why+", and a SQLite file belongs to one: each would have tenants, keys and a ledger of its own",
		"use postgres:// where several gateways share tenants and keys").Warning = true
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
