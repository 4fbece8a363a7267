package config

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tierway/openai"
	"tierway/store"
	"tierway/tenants"
)

type form struct {
	pattern *regexp.Regexp // accepted by the decoder; nil: any string
	want    string         // the pattern in words
	check   func(text string) (message, hint string)
	hide    bool // a value may contain a password: no message repeats it, and its line is masked
}

// forms has the forms of strings by their name in tags.
var forms = map[string]form{
	"name": {pattern: regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`),
		want: "a name of up to 63 lower-case letters, digits, dots, underscores and hyphens that starts with a letter or digit"},
	"tenant": {pattern: regexp.MustCompile(`^[a-z0-9-]{1,63}$`),
		want: "a name of up to 63 lower-case letters, digits and hyphens"},
	"digest": {pattern: regexp.MustCompile(`^[0-9a-fA-F]{64}$`), want: "64 hex digits"},
	"header": {pattern: regexp.MustCompile(`^[0-9A-Za-z-]+$`), want: "a header's name of letters, digits and hyphens",
		check: unless(func(text string) bool { return openai.MayRelay(http.CanonicalHeaderKey(text)) },
			"is never passed to clients: the gateway sets it, or it is specific to the connection or the worker", "remove it")},
	"keyheader": {pattern: regexp.MustCompile(`^[0-9A-Za-z-]+$`), want: "a header's name of letters, digits and hyphens",
		check: unless(func(text string) bool { return !slices.Contains(secretHeaders, http.CanonicalHeaderKey(text)) },
			"contains a secret", "name another header")},
	"sessionkey": {pattern: regexp.MustCompile(
		`^(session_params\.session_id|prompt_cache_key|user|session_id|user_id|[0-9A-Za-z]+(-[0-9A-Za-z]+)+)$`),
		want: "a header's name with a hyphen, such as X-Session-ID, or one of session_params.session_id, " +
			"prompt_cache_key, user, session_id, user_id"},
	"health": {pattern: regexp.MustCompile(`^(auto|off|/[^ \t\r\n#]*)$`), want: "auto, off or a path that starts with /"},
	"variable": {pattern: regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`),
		want: "the name of an environment variable, not the key"},
	"host": {check: unless(isHost, "is not a host name",
		"write a name in lower case without scheme and port, such as tierway.example.com; IP addresses need no entry")},
	"origin": {check: unless(isOrigin, "is not an origin",
		"write scheme://host or scheme://host:port in lower case, such as https://app.example.com")},
	"owner": {check: unless(tenants.Slug, "is not a tenant name", "use 1 to 63 of a-z, 0-9 and -")},
	"file": {check: unless(func(text string) bool {
		return !strings.HasSuffix(text, "/") && !strings.ContainsRune(text, 0)
	}, "is not a file name", "")},
	"model":    {}, // checkLearning reads it
	"argument": {}, // any text, also twice
	"proxy":    {check: checkProxy},
	"path":     {check: checkPath},
	"kvaddress": {check: unless(isKVAddress, "is not host:port", "write the address of the engine's kv_port, "+
		"such as 10.0.0.1:14579")},
	"tokenizer": {}, // checkTokenizer reads it
	"web":       {check: checkWebURL, hide: true},
	"sql":       {check: store.CheckSQLURL, hide: true},
	"redis":     {check: store.CheckRedisURL, hide: true},
}

// secretHeaders are the headers with keys of clients.
var secretHeaders = []string{"Api-Key", "Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"}

func isForm(name, text string) bool {
	pattern := forms[name].pattern
	return pattern == nil || pattern.MatchString(text)
}

// checkTexts reports every string below a section that does not have the form of its key, and
// every duplicate in a list.
func (d *decoder) checkTexts(path string, section reflect.Value) {
	for k, v := range members(section) {
		if v.IsZero() {
			continue
		}
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		switch {
		case v.Kind() == reflect.Struct:
			d.checkTexts(join(path, k.name), v)
		case v.Kind() == reflect.String && v.String() != "" && forms[k.form].check != nil:
			d.checkText(join(path, k.name), *k, v.String())
		case v.Kind() == reflect.Slice:
			at, seen := join(path, k.name), map[string]bool{}
			for i := range v.Len() {
				item := itemPath(at, i)
				if v.Index(i).Kind() == reflect.Struct {
					d.checkTexts(item, v.Index(i))
					continue
				}
				text := v.Index(i).String()
				d.checkText(item, *k, text)
				if k.form == "header" {
					text = http.CanonicalHeaderKey(text)
				}
				if seen[text] && text != "" && k.form != "argument" {
					d.report(item, d.shown(item, text)+" is listed twice", "remove one of them")
				}
				seen[text] = true
			}
		}
	}
}

func (d *decoder) checkText(path string, k key, text string) {
	f := forms[k.form]
	if f.check == nil {
		return
	}
	message, hint := f.check(text)
	switch {
	case message == "":
	case f.hide:
		d.report(path, message, cmp.Or(hint, k.way)).hide = true
	default:
		d.report(path, d.shown(path, text)+" "+message, cmp.Or(hint, k.way))
	}
}

// unless returns a check that rejects all strings for which good is false.
func unless(good func(text string) bool, message, hint string) func(text string) (string, string) {
	return func(text string) (string, string) {
		if good(text) {
			return "", ""
		}
		return message, hint
	}
}

// isHost reports whether text is a host name, without a port, as in a Host header.
func isHost(text string) bool {
	const longest = 253 // characters of a name (RFC 1035)
	_, err := netip.ParseAddr(text)
	return err != nil && text != "" && len(text) <= longest && !strings.ContainsAny(text[:1], ".-") &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// isKVAddress reports whether text is host:port, with characters that a request ID may contain. Three
// underscores separate the parts of such an ID.
func isKVAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	n, noPort := strconv.ParseUint(port, 10, 16)
	_, noIP := netip.ParseAddr(host)
	return err == nil && noPort == nil && n > 0 && strconv.FormatUint(n, 10) == port &&
		(noIP == nil && !strings.Contains(host, "%") || isHost(strings.ToLower(host)) && !strings.Contains(host, "___"))
}

func isOrigin(text string) bool {
	u, err := url.Parse(text)
	return text == "*" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		text == u.Scheme+"://"+u.Host && text == strings.ToLower(text) && !strings.ContainsAny(text, "*@, ")
}

// checkProxy checks an address or network of trusted_proxies.
func checkProxy(text string) (message, hint string) {
	prefix, err := parseProxy(text)
	switch {
	case err != nil:
		return "is not an address or network", "write one such as 10.0.0.7, 10.0.0.0/8 or fd00::/8"
	case prefix != prefix.Masked():
		return "has bits set below its prefix length", "write " + prefix.Masked().String()
	}
	return "", ""
}

// parseProxy parses an address or network. IPv4-mapped IPv6 becomes IPv4, the form of peer
// addresses.
func parseProxy(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if mapped := 128 - 32; err == nil && p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p, err
}

// checkPath rejects invalid pass-through paths.
func checkPath(text string) (message, hint string) {
	body := strings.TrimSuffix(text, "*")
	dots := func(segment string) bool { return segment == "." || segment == ".." }
	switch {
	case !strings.HasPrefix(text, "/"):
		return "does not start with /", "write /v1/x, or /v1/x/* for everything below"
	case strings.Contains(body, "*"):
		return "has a * before its end", "use * only at the end"
	case body != text && !strings.HasSuffix(body, "/"):
		return "has a * within a segment", "write " + quote(body+"/*") + " for everything below"
	case strings.ContainsAny(body, "?#% \t\r\n\\") || strings.Contains(body, "//") ||
		slices.ContainsFunc(strings.Split(body, "/"), dots):
		return "is not a plain path", "remove the query, escapes, // and dot segments"
	}
	return "", ""
}

// checkWebURL rejects invalid URLs and URLs with parts that the configuration must not show.
func checkWebURL(text string) (message, hint string) {
	u, err := url.Parse(text)
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case err != nil || u.Scheme == "" || u.Opaque != "" || strings.ContainsFunc(text, outside):
		message = "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		message = "has a scheme other than http or https"
	case u.Hostname() == "" || u.Port() == "" && strings.HasSuffix(u.Host, ":"):
		message = "has no host after " + u.Scheme + "://"
	case u.User != nil:
		message = "contains a user or a password, which the admin plane would show"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		message = "has a query or a fragment"
	}
	return message, ""
}
