package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"tierway/workers"
)

// The ways out of an address that is none.
const (
	anAddress = "write host:port, such as 127.0.0.1:8080"
	allHosts  = anAddress + " or :8080 for every interface"
	aHost     = "write a name, an IPv4 address or an IPv6 address in brackets"
)

// listener is one address that the gateway listens on.
type listener struct {
	path, address string
	section       string // of its tls and insecure
	tls, insecure bool
	crossing      string // what passes through it
	way           string // out of a port that is taken
	loopback, ok  bool   // ok is false when a problem was noted
}

// checkAddresses checks where the planes and /metrics listen, and that nothing but
// loopback is served in plain text without a word.
func (d *decoder) checkAddresses(f *File) {
	const keysAndPrompts, plane = "keys and prompts", "choose another port, or use exactly the same address to serve both planes on it"
	shared := f.SharedPlanes() && f.Listen != ""
	data := listener{path: "listen", address: f.Listen, tls: f.TLS.On(), insecure: f.Insecure, crossing: keysAndPrompts}
	admin := listener{path: "admin.listen", section: "admin.", address: f.Admin.Listen, insecure: f.Admin.Insecure,
		tls: f.Admin.TLS.On() || shared && f.TLS.On(), crossing: keysAndPrompts, way: plane}
	d.checkListener(&data)
	if shared && f.Admin.TLS.On() {
		d.fault("admin.tls", "both planes share "+d.shown("listen", f.Listen)+" and its certificate",
			"remove admin.tls: tls applies to both planes")
	}
	d.checkListener(&admin)
	if data.ok && admin.ok && !shared {
		d.checkApart(admin, data)
	}
	metrics := listener{path: "metrics.listen", section: "metrics.", address: f.Metrics.Listen, insecure: f.Metrics.Insecure,
		crossing: "names of tenants, models and workers", way: "choose another port, or " + onAdmin}
	if metrics.address != "" {
		d.checkListener(&metrics)
		d.checkApart(metrics, admin)
		d.checkApart(metrics, data)
	}
	if f.Auth.Required || !data.ok || !admin.ok {
		return
	}
	for _, l := range [...]listener{data, admin, metrics} {
		if l.ok && !l.loopback {
			d.fault("auth.required", "false requires loopback addresses, but "+l.path+" is "+d.shown(l.path, l.address),
				"set auth.required: true and add keys, or listen only on 127.0.0.1")
		}
	}
}

// onAdmin is the way out of an address for /metrics.
const onAdmin = "remove the key to serve /metrics on the admin plane"

// checkListener checks one address. Without TLS and not loopback, it needs the word
// insecure, and then is a warning.
func (d *decoder) checkListener(l *listener) {
	l.loopback, l.ok = d.checkListen(l.path, l.address)
	shown := d.shown(l.path, l.address)
	switch {
	case !l.ok || l.loopback || l.tls:
	case l.insecure:
		d.caution(l.section+"insecure", l.crossing+" cross the network to "+shown+" in plain text", "")
	default:
		way := fmt.Sprintf("set %[1]stls.cert and %[1]stls.key, or %[1]sinsecure: true if a proxy or the network protects it", l.section)
		if l.path == "metrics.listen" {
			way = "set metrics.insecure: true if the network protects them, or " + onAdmin
		}
		d.fault(l.path, shown+" is not loopback and has no TLS: "+l.crossing+" would cross the network in plain text", way)
	}
}

// checkApart notes an address that cannot be opened beside another one.
func (d *decoder) checkApart(l, other listener) {
	if samePort(l.address, other.address) {
		d.fault(l.path, d.shown(l.path, l.address)+" uses the same port as "+other.path+", "+d.shown(other.path, other.address)+
			": only one of them can be opened", l.way)
	}
}

// checkListen checks one address. loopback tells whether it can be reached from
// this machine only; ok is false when a problem was noted.
func (d *decoder) checkListen(path, address string) (loopback, ok bool) {
	host, port, err := net.SplitHostPort(address)
	ip, noIP := netip.ParseAddr(host)
	n, noPort := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		d.fault(path, d.shown(path, address)+" is not an address", allHosts)
	case noPort != nil || strconv.FormatUint(n, 10) != port:
		d.fault(path, d.shown(path, address)+" has no port from 0 to 65535", anAddress)
	case noIP == nil:
		return ip.IsLoopback(), true
	case strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		d.fault(path, d.shown(path, address)+" has no valid host", aHost)
	default:
		return host == "localhost", true
	}
	return false, false
}

// Loopback reports whether an address can be reached from this machine only.
func Loopback(address string) bool {
	only, ok := newDecoder("", nil).checkListen("", address)
	return only && ok
}

// SharedPlanes reports whether one address serves both planes. Port 0, which
// stands for any free one, is never shared.
func (f *File) SharedPlanes() bool {
	return f.Listen == f.Admin.Listen && !strings.HasSuffix(f.Listen, ":0")
}

// samePort reports whether two addresses take one port of one interface, as far as
// their texts tell. Port 0 stands for any free one.
func samePort(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	ipA, ipB := ipOf(hostA), ipOf(hostB)
	every := func(host string, ip netip.Addr) bool { return host == "" || ip.IsUnspecified() }
	return strings.EqualFold(hostA, hostB) || ipA.IsValid() && ipA == ipB || every(hostA, ipA) || every(hostB, ipB)
}

// checkOwnAddress warns of workers whose URL is an address that the gateway itself
// listens on: each request would come back until it is refused with 508.
func (d *decoder) checkOwnAddress(f *File) {
	own := [...]listener{{path: "listen", address: f.Listen}, {path: "admin.listen", address: f.Admin.Listen},
		{path: "metrics.listen", address: f.Metrics.Listen}}
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
			path := fmt.Sprintf("%s.workers[%d].url", s.path, i)
			for _, l := range own {
				if leadsTo(u.Host, l.address) {
					d.caution(path, d.shown(path, w.URL)+" is the gateway's own address ("+l.path+"), so requests would loop",
						"write the URL of the inference engine")
				}
			}
		}
	}
}

// leadsTo reports whether a connection to an address reaches a listener of this
// machine, as far as the two texts tell.
func leadsTo(address, listen string) bool {
	host, _, err := net.SplitHostPort(address)
	on, _, listenErr := net.SplitHostPort(listen)
	to, at := ipOf(host), ipOf(on)
	return err == nil && listenErr == nil && samePort(address, listen) && (strings.EqualFold(host, on) || to.IsLoopback() ||
		to.IsUnspecified() && (on == "" || at.IsUnspecified() || at.IsLoopback()))
}

// ipOf returns the address that a host of a URL or listener stands for, if the text
// tells.
func ipOf(host string) netip.Addr {
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap()
}
