package intake

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"tierway/config"
	"tierway/openai"
)

// checkKeyless rejects requests that web pages make browsers send to a gateway without keys: requests
// to a host name that an attacker points at the gateway (DNS rebinding), and requests of another site.
func checkKeyless(r *http.Request, f *config.File) error {
	if IsForeign(r.Host, f.Hosts) {
		return &openai.Error{Code: openai.CodeHostNotAllowed, Message: ForeignHost(r.Host)}
	}
	if from := crossSite(r, f.CORS.Origins); from != "" {
		return &openai.Error{Code: openai.CodeCrossSiteRequest, Message: "A web page of another site (" +
			openai.Quoted(from) +
			") sent this request, and this gateway requires no keys. Add the origin of the page to `cors.origins` of a " +
			"configuration file (serve -c), or require keys."}
	}
	return nil
}

// ForeignHost returns the message for a request with a foreign name in its Host header.
func ForeignHost(host string) string {
	return "The host " + openai.Quoted(host) + " is not a name of this gateway. Add it to `hosts` of the configuration " +
		"(of serve --model: --hosts), or send the request to localhost or an IP address."
}

// IsForeign reports whether a Host header has a name that is not among hosts. Names below
// localhost never leave the machine, and no other site can be an IP address.
func IsForeign(host string, hosts []string) bool {
	name := host
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.Trim(host[i+1:], "0123456789") == "" {
		name = host[:i]
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.Contains(hosts, name) {
		return false // no browser sends an empty one
	}
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err != nil
}

// crossSite returns the origin of a request that a page of another site sent, or "" if there is none
// or if it is one of origins. Browsers set Sec-Fetch-Site; older ones only Origin.
func crossSite(r *http.Request, origins []string) string {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case origin != "" && slices.Contains(origins, origin), site == "same-origin", site == "none", site == "" &&
		origin == "":
		return ""
	case site == "":
		if u, err := url.Parse(origin); err == nil && u.Host == r.Host {
			return ""
		}
	}
	if origin == "" {
		return "Sec-Fetch-Site: " + site
	}
	return origin
}
