package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Hints for invalid addresses.
const (
	anAddress = "write host:port, such as 127.0.0.1:8080"
	allHosts  = anAddress + " or :8080 for every interface"
	aHost     = "write a name, an IPv4 address or an IPv6 address in brackets"
)

type listener struct {
	path, address string
	section       string // path prefix of its tls and insecure keys
	tls, insecure bool
	crossing      string // data that crosses the listener, for messages
	way           string // hint if another listener has the same port
	loopback, ok  bool   // ok is false if the address is invalid
}

// checkAddresses checks the addresses of both planes and of /metrics, and that plain text
// outside loopback is confirmed by insecure.
func (d *decoder) checkAddresses(f *File) {
	const keysAndPrompts, plane = "keys and prompts",
		"choose another port, or use exactly the same address to serve both planes on it"
	shared := f.SharedPlanes() && f.Listen != ""
	data := listener{path: "listen", address: f.Listen, tls: f.TLS.On(), insecure: f.Insecure, crossing: keysAndPrompts}
	admin := listener{path: "admin.listen", section: "admin.", address: f.Admin.Listen, insecure: f.Admin.Insecure,
		tls: f.Admin.TLS.On() || shared && f.TLS.On(), crossing: keysAndPrompts, way: plane}
	d.checkListener(&data)
	if shared && f.Admin.TLS.On() {
		d.report("admin.tls", "both planes share "+d.shown("listen", f.Listen)+" and its certificate",
			"remove admin.tls: tls applies to both planes")
	}
	d.checkListener(&admin)
	if data.ok && admin.ok && !shared {
		d.checkPortConflict(admin, data)
	}
	metrics := listener{
		path:     "metrics.listen",
		section:  "metrics.",
		address:  f.Metrics.Listen,
		insecure: f.Metrics.Insecure,
		crossing: "names of tenants, models and workers",
		way:      "choose another port, or " + onAdmin,
	}
	if metrics.address != "" {
		d.checkListener(&metrics)
		d.checkPortConflict(metrics, admin)
		d.checkPortConflict(metrics, data)
	}
	if f.Auth.Required || !data.ok || !admin.ok {
		return
	}
	for _, l := range [...]listener{data, admin, metrics} {
		if l.ok && !l.loopback {
			d.report("auth.required", "false requires loopback addresses, but "+l.path+" is "+d.shown(l.path, l.address),
				"set auth.required: true and add keys, or listen only on 127.0.0.1")
		}
	}
}

// onAdmin is the hint to serve /metrics without its own address.
const onAdmin = "remove the key to serve /metrics on the admin plane"

// checkListener checks one address. Without TLS and outside loopback it needs insecure: true,
// and then causes a warning.
func (d *decoder) checkListener(l *listener) {
	l.loopback, l.ok = d.checkListen(l.path, l.address)
	shown := d.shown(l.path, l.address)
	switch {
	case !l.ok || l.loopback || l.tls:
	case l.insecure:
		d.warn(l.section+"insecure", l.crossing+" cross the network to "+shown+" in plain text", "")
	default:
		way := fmt.Sprintf("set %[1]stls.cert and %[1]stls.key, or %[1]sinsecure: true if a proxy or the network protects it",
			l.section)
		if l.path == "metrics.listen" {
			way = "set metrics.insecure: true if the network protects them, or " + onAdmin
		}
		d.report(l.path, shown+" is not loopback and has no TLS: "+l.crossing+" would cross the network in plain text", way)
	}
}

// checkPortConflict reports an address that cannot be opened together with another one.
func (d *decoder) checkPortConflict(l, other listener) {
	if samePort(l.address, other.address) {
		d.report(l.path, d.shown(l.path, l.address)+" uses the same port as "+other.path+", "+
			d.shown(other.path, other.address)+
			": only one of them can be opened", l.way)
	}
}

// checkListen checks one address. loopback reports whether only this machine can reach it; ok
// is false if a problem was reported.
func (d *decoder) checkListen(path, address string) (loopback, ok bool) {
	host, port, err := net.SplitHostPort(address)
	ip, noIP := netip.ParseAddr(host)
	n, noPort := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		d.report(path, d.shown(path, address)+" is not an address", allHosts)
	case noPort != nil || strconv.FormatUint(n, 10) != port:
		d.report(path, d.shown(path, address)+" has no port from 0 to 65535", anAddress)
	case noIP == nil:
		return ip.IsLoopback(), true
	case strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		d.report(path, d.shown(path, address)+" has no valid host", aHost)
	default:
		return host == "localhost", true
	}
	return false, false
}

// Loopback reports whether only this machine can reach an address.
func Loopback(address string) bool {
	only, ok := newDecoder("", nil).checkListen("", address)
	return only && ok
}

// SharedPlanes reports whether one address serves both planes. Port 0, which means any free
// port, is never shared.
func (f *File) SharedPlanes() bool {
	return f.Listen == f.Admin.Listen && !strings.HasSuffix(f.Listen, ":0")
}

// samePort reports whether two addresses use the same port of one interface, judged by their
// text. Port 0 means any free port and never conflicts.
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

func listeners(f *File) [3]listener {
	return [...]listener{{path: "listen", address: f.Listen}, {path: "admin.listen", address: f.Admin.Listen},
		{path: "metrics.listen", address: f.Metrics.Listen}}
}

// checkOwnAddress warns of workers with an address of this gateway as URL: requests would loop
// until they are rejected with 508.
func (d *decoder) checkOwnAddress(f *File) {
	for _, s := range f.sections() {
		for i, w := range s.Workers {
			address, err := d.serverOf(w)
			if err != nil { // reported before
				continue
			}
			host, found := strings.CutPrefix(address, "http://")
			if !found {
				host, found = strings.CutPrefix(address, "https://")
			}
			if !found { // a Unix socket
				continue
			}
			host, _, _ = strings.Cut(host, "/")
			for _, l := range listeners(f) {
				if leadsTo(host, l.address) {
					path := itemPath(s.path+".workers", i) + ".url"
					d.warn(path, d.shown(path, w.URL)+" is the gateway's own address ("+l.path+"), so requests would loop",
						"write the URL of the inference engine")
				}
			}
		}
	}
}

// leadsTo reports whether a connection to an address reaches a listener of this machine, judged
// by the two texts.
func leadsTo(address, listen string) bool {
	if !samePort(address, listen) {
		return false
	}
	host, _, err := net.SplitHostPort(address)
	on, _, listenErr := net.SplitHostPort(listen)
	to, at := ipOf(host), ipOf(on)
	return err == nil && listenErr == nil && (strings.EqualFold(host, on) || to.IsLoopback() ||
		to.IsUnspecified() && (on == "" || at.IsUnspecified() || at.IsLoopback()))
}

// ipOf returns the IP address of a host in a URL or listener; the zero Addr for other names.
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
