package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tierway/workers"
)

// check notes everything that is wrong with values that were read, one by one
// and together.
func (d *decoder) check(f *File) {
	d.checkAddresses(f)
	d.checkTLS("tls", f.TLS)
	d.checkTLS("admin.tls", f.Admin.TLS)
	d.checkAuth(f)
	d.checkOrigins(f)
	d.checkHosts(f.Hosts)
	d.checkHealth("health", f.Health)
	d.checkPolicy("policy", f.Policy)
	d.checkBreaker(f)
	d.checkPools(f)
	d.checkWorkers(f)
	d.checkOwnAddress(f)
	d.checkCatalog(f)
	d.checkRights(f)
	d.checkContexts(f.Tiers)
	d.checkStore(f)
	d.checkProxies(f.Proxies)
	d.checkBuffered(f)
	d.checkLimits(f)
	d.checkQueues(f)
	d.checkTelemetry(f)
}

// fault notes that the value at path is wrong, unless something was said of it
// already.
func (d *decoder) fault(path, message, hint string) { d.faultAt(path, path, message, hint) }

// faultAt is fault for a path that may be missing: the problem then stands
// where the path at does, which is the section that it is missing from.
func (d *decoder) faultAt(path, at, message, hint string) {
	if d.told[path] {
		return
	}
	d.told[path] = true
	where := d.places[at].key
	if d.written(path) {
		where = d.places[path].value
	}
	if where.line == 0 && len(d.places) > 0 {
		where = position{1, 1}
	}
	d.problems = append(d.problems, Problem{File: d.file, Line: where.line, Column: where.column,
		Path: path, Message: d.scrub(message), Hint: d.scrub(hint)})
}

// warn makes the problem noted last a warning.
func (d *decoder) warn() { d.problems[len(d.problems)-1].Warning = true }

// shown returns a value for a message; one from the environment is shown as
// the file writes it.
func (d *decoder) shown(path, value string) string {
	if p := d.places[path]; p.expanded {
		return quote(p.raw)
	}
	return quote(value)
}

// scrub replaces values of the environment in a message that another package
// worded.
func (d *decoder) scrub(message string) string {
	for _, name := range slices.Sorted(maps.Keys(d.variables)) {
		quoted := strconv.Quote(d.variables[name])
		message = strings.ReplaceAll(message, quoted[1:len(quoted)-1], "${"+name+"}")
		message = strings.ReplaceAll(message, d.variables[name], "${"+name+"}")
	}
	return message
}

// written reports whether the source has a value at path.
func (d *decoder) written(path string) bool {
	_, ok := d.places[path]
	return ok
}

// checkHosts checks hosts.
func (d *decoder) checkHosts(hosts []string) {
	seen := map[string]bool{}
	for i, text := range hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		switch {
		case !isHost(text):
			d.fault(path, d.shown(path, text)+" is no host name", "write a name in lower case without scheme and port, such as tierway.example.com; IP addresses need no entry")
		case seen[text]:
			d.fault(path, d.shown(path, text)+" stands here twice", "remove one")
		}
		seen[text] = true
	}
}

// checkOrigins checks cors.origins.
func (d *decoder) checkOrigins(f *File) {
	origins, seen := f.CORS.Origins, map[string]bool{}
	for i, text := range origins {
		path := fmt.Sprintf("cors.origins[%d]", i)
		switch {
		case text == "*" && len(origins) > 1:
			d.fault(path, `"*" stands beside others, which it includes`, "keep * or the others")
		case text == "*" && !f.Auth.Required:
			d.fault(path, `"*" lets every web page use the workers, because auth.required is false`, "name the origins, or require keys")
		case text != "*" && !isOrigin(text):
			d.fault(path, d.shown(path, text)+" is no origin", "write scheme://host or scheme://host:port in lower case, such as https://app.example.com")
		case seen[text]:
			d.fault(path, d.shown(path, text)+" stands here twice", "remove one")
		}
		seen[text] = true
	}
}

// isOrigin reports whether text is an origin as browsers send it.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return false
	}
	return text == u.Scheme+"://"+u.Host && text == strings.ToLower(text) && !strings.ContainsAny(text, "*@, ")
}

// checkHealth checks a health section with everything that it inherits.
func (d *decoder) checkHealth(path string, h workers.Health) {
	if h.Timeout <= h.Interval || h.Path == "off" {
		return
	}
	d.faultAt(path+".timeout", path, fmt.Sprintf("the timeout %v is longer than the interval %v: checks would overlap", h.Timeout, h.Interval),
		fmt.Sprintf("write timeout: %v, or a longer interval", h.Interval))
}

// checkAddresses checks where the planes listen and that nothing but loopback
// is served in plain text without a word.
func (d *decoder) checkAddresses(f *File) {
	data, dataOK := d.checkListen("listen", f.Listen)
	admin, adminOK := d.checkListen("admin.listen", f.Admin.Listen)
	shared := f.SharedPlanes() && f.Listen != ""
	if dataOK && !data {
		d.checkOpen("listen", f.Listen, "", f.TLS.On(), f.Insecure)
	}
	if shared && f.Admin.TLS.On() {
		d.fault("admin.tls", "both planes share "+d.shown("listen", f.Listen)+", which has one certificate", "remove admin.tls; tls holds for both")
	}
	if adminOK && !admin {
		d.checkOpen("admin.listen", f.Admin.Listen, "admin.", f.Admin.TLS.On() || shared && f.TLS.On(), f.Admin.Insecure)
	}
	if dataOK && adminOK && !shared {
		d.checkApart("admin.listen", f.Admin.Listen, "listen", f.Listen, "give it another port, or write the same address for one that serves both planes")
	}
	metrics := f.Metrics.Listen == "" || d.checkMetrics(f)
	if !f.Auth.Required && dataOK && adminOK && !(data && admin && metrics) {
		other := "metrics.listen"
		switch {
		case !data:
			other = "listen"
		case !admin:
			other = "admin.listen"
		}
		d.fault("auth.required", "false is for loopback only, and "+other+" is another address", "write auth.required: true and add keys, or listen on 127.0.0.1 alone")
	}
}

// checkMetrics checks the address of /metrics, which has no TLS of its own, and
// reports whether it can be reached from this machine only.
func (d *decoder) checkMetrics(f *File) (loopback bool) {
	const path, crossing = "metrics.listen", "names of tenants, models and workers"
	address, way := f.Metrics.Listen, "remove the key to serve /metrics on the admin plane"
	loopback, ok := d.checkListen(path, address)
	if !ok {
		return true
	}
	d.checkApart(path, address, "admin.listen", f.Admin.Listen, "give it another port, or "+way)
	d.checkApart(path, address, "listen", f.Listen, "give it another port, or "+way)
	switch {
	case loopback:
	case !f.Metrics.Insecure:
		d.fault(path, d.shown(path, address)+" is not loopback and has no TLS: "+crossing+" would cross the network in plain text",
			"set metrics.insecure: true where the network protects them, or "+way)
	default:
		d.caution("metrics.insecure", crossing+" cross the network to "+d.shown(path, address)+" in plain text", "")
	}
	return loopback
}

// checkApart notes an address that cannot be opened beside another one.
func (d *decoder) checkApart(path, address, otherPath, other, hint string) {
	if samePort(address, other) {
		d.fault(path, d.shown(path, address)+" has the port of "+otherPath+", "+d.shown(otherPath, other)+": only one of the two can be opened", hint)
	}
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

// checkOpen notes an address that is not loopback and has no TLS: as a warning
// where the word insecure was given.
func (d *decoder) checkOpen(path, address, section string, tls, insecure bool) {
	switch {
	case tls:
	case !insecure:
		d.fault(path, d.shown(path, address)+" is not loopback and has no TLS: keys and prompts would cross the network in plain text",
			fmt.Sprintf("set %stls.cert and %stls.key, or %sinsecure: true where a proxy or the network protects it", section, section, section))
	default:
		d.fault(section+"insecure", "keys and prompts cross the network to "+d.shown(path, address)+" in plain text", "")
		d.warn()
	}
}

// checkListen checks one address. loopback tells whether it can be reached from
// this machine only; ok is false when a problem was noted.
func (d *decoder) checkListen(path, address string) (loopback, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		d.fault(path, d.shown(path, address)+" is no address", "write host:port, such as 127.0.0.1:8080 or :8080 for every interface")
		return false, false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		d.fault(path, d.shown(path, address)+" has no port from 0 to 65535", "write host:port, such as 127.0.0.1:8080")
		return false, false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback(), true
	}
	if strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		d.fault(path, d.shown(path, address)+" has no valid host", "write a name, an IPv4 address or an IPv6 address in brackets")
		return false, false
	}
	return host == "localhost", true
}

// isHost reports whether s is a host's name, as a Host header has it without a port.
func isHost(s string) bool {
	const longest = 253 // characters of a name (RFC 1035)
	_, err := netip.ParseAddr(s)
	return err != nil && s != "" && len(s) <= longest && !strings.ContainsAny(s[:1], ".-") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}
