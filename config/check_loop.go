package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"tierway/workers"
)

// checkOwnAddress warns of workers whose URL is an address that the gateway itself
// listens on: each request would come back until it is refused with 508.
func (d *decoder) checkOwnAddress(f *File) {
	own := []struct{ key, address string }{
		{"listen", f.Listen}, {"admin.listen", f.Admin.Listen}, {"metrics.listen", f.Metrics.Listen},
	}
	for _, s := range f.sections() {
		for i, w := range s.Workers {
			canonical, err := workers.Canonical(w.URL)
			if err != nil {
				continue // it has been said
			}
			u, err := url.Parse(canonical)
			if err != nil || u.Scheme == "unix" {
				continue
			}
			for _, o := range own {
				path := fmt.Sprintf("%s.workers[%d].url", s.path, i)
				if leadsTo(u.Host, o.address) && !d.told[path] {
					d.fault(path, d.shown(path, w.URL)+" is the gateway's own address ("+o.key+
						"): its requests would come back to it", "write the engine's address")
					d.warn()
				}
			}
		}
	}
}

// leadsTo reports whether a connection to an address reaches a listener of this
// machine, as far as the two texts tell.
func leadsTo(address, listen string) bool {
	host, port, err := net.SplitHostPort(address)
	on, onPort, listenErr := net.SplitHostPort(listen)
	if err != nil || listenErr != nil || port != onPort || port == "0" {
		return false
	}
	to, at := ipOf(host), ipOf(on)
	switch {
	case strings.EqualFold(host, on):
		return true
	case !to.IsValid() || !to.IsLoopback() && !to.IsUnspecified():
		return false
	}
	return on == "" || at.IsValid() && (at.IsUnspecified() || to.IsUnspecified() && at.IsLoopback() || at == to)
}

// ipOf returns the address that a host of a URL or listener stands for, if the text
// tells.
func ipOf(host string) netip.Addr {
	if strings.EqualFold(host, "localhost") {
		return netip.MustParseAddr("127.0.0.1")
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap()
}
