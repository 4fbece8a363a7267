package config

import (
	"fmt"
	"net/netip"
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
