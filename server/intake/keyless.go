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

// checkKeyless refuses what only a web page makes a browser send to a gateway that asks
// for no keys: a request to a name that was made to lead here (DNS rebinding), and one
// of another site.
func checkKeyless(r *http.Request, f *config.File) error {
	if IsForeign(r.Host, f.Hosts) {
		return &openai.Error{Code: openai.CodeHostNotAllowed, Message: ForeignHost(r.Host)}
	}
	if from := crossSite(r, f.CORS.Origins); from != "" {
		return &openai.Error{Code: openai.CodeCrossSiteRequest, Message: "A web page of another site (" + openai.Quoted(from) +
			") sent this request, and this gateway asks for no keys. Add the page's origin to `cors.origins` of a configuration file (serve -c), or require keys."}
	}
	return nil
}

// ForeignHost returns the message for a request whose Host header has a foreign name.
func ForeignHost(host string) string {
	return "The host " + openai.Quoted(host) + " is not a name of this gateway. Add it to `hosts` of the configuration (of serve --model: --hosts), or send the request to localhost or an IP address."
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

// crossSite returns the site whose page sent a request to this one, if its origin is not
// among origins; else nothing. Browsers set Sec-Fetch-Site; older ones have Origin.
func crossSite(r *http.Request, origins []string) string {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case origin != "" && slices.Contains(origins, origin), site == "same-origin", site == "none", site == "" && origin == "":
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
