package workers

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxSocketPath is the size of sun_path on Linux, less the closing zero byte.
const maxSocketPath = 107

type address struct {
	scheme string // http, https or unix
	host   string // host:port, with an IPv6 host in brackets; empty for unix
	socket string // the socket's file; empty for http and https
	base   string // "" or "/…" without a final slash, as the URL spells it
}

// Canonical returns the normal form of a worker's URL: http://host:port[/base],
// https://host[:port][/base] or unix:///file[:/base]. It ignores the case of scheme and host, a
// default port, final slashes and a final /v1. Its error names the field, the value without a
// password, and the way out.
func Canonical(raw string) (string, error) {
	a, err := parseAddress(raw)
	if err != nil {
		return "", err
	}
	if a.scheme == "unix" {
		canonical := "unix://" + path.Clean(a.socket)
		if a.root() != "" {
			canonical += ":" + a.root()
		}
		return canonical, nil
	}
	return a.scheme + "://" + a.host + a.root(), nil
}

func parseAddress(raw string) (address, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	switch {
	case raw == "":
		return address{}, errors.New("url: is empty; write http://host:port, https://host or unix:///path")
	case !found:
		return address{}, fmt.Errorf("url: %q has no scheme; write http://host:port, https://host or unix:///path",
			redact(raw))
	case scheme == "unix":
		return parseSocket(raw, rest)
	case scheme == "http" || scheme == "https":
		return parseHost(raw, scheme)
	}
	return address{}, fmt.Errorf("url: %q has the scheme %q; it must be http, https or unix", redact(raw), scheme)
}

func parseSocket(raw, rest string) (address, error) {
	if !strings.HasPrefix(rest, "/") {
		return address{}, fmt.Errorf("url: %q names no absolute path; write unix:///run/engine.sock", redact(raw))
	}
	if strings.ContainsAny(rest, "?#\x00") {
		return address{}, fmt.Errorf("url: %q must not have a query, a fragment or a zero byte", raw)
	}
	socket, base := rest, ""
	if colon := strings.Index(rest, ":/"); colon >= 0 {
		socket, base = rest[:colon], rest[colon+1:]
	}
	if strings.HasSuffix(socket, "/") {
		return address{}, fmt.Errorf("url: %q ends in a slash; it must name the socket's file, as unix:///run/engine.sock",
			raw)
	}
	if len(socket) > maxSocketPath {
		return address{}, fmt.Errorf("url: the socket path %q has %d bytes, the system takes %d; use a shorter one", socket,
			len(socket), maxSocketPath)
	}
	parsed, err := url.Parse("http://unix" + base)
	if err != nil {
		return address{}, fmt.Errorf("url: %q has a malformed base path %q after the socket", raw, base)
	}
	base, err = cleanBase(raw, parsed)
	return address{scheme: "unix", socket: socket, base: base}, err
}

func parseHost(raw, scheme string) (address, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// url.Error repeats the URL, which may hold a password.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		if strings.Contains(raw, "@") {
			return address{}, errors.New("url: is malformed; write http://host:port without user and password")
		}
		return address{}, fmt.Errorf("url: %q is malformed: %w", raw, err)
	}
	switch {
	case u.User != nil:
		return address{},
			fmt.Errorf("url: %q must not hold a user or a password; name the variable with the worker's key in api_key_env",
				redact(raw))
	case u.RawQuery != "" || u.ForceQuery:
		return address{}, fmt.Errorf("url: %q must not have a query; remove what follows the question mark", raw)
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return address{}, fmt.Errorf("url: %q must not have a fragment; remove the # and what follows it", raw)
	case u.Hostname() == "":
		return address{}, fmt.Errorf("url: %q names no host; write %s://host:port", raw, scheme)
	}
	host, err := cleanHost(raw, u.Hostname())
	if err != nil {
		return address{}, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return address{}, fmt.Errorf("url: %q has the port %q; it must be 1 to 65535", raw, port)
	}
	base, err := cleanBase(raw, u)
	return address{scheme: scheme, host: net.JoinHostPort(host, strconv.FormatUint(number, 10)), base: base}, err
}

func cleanHost(raw, host string) (string, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		if isMetadata(ip) {
			return "", fmt.Errorf("url: %q is a cloud's metadata address, which is neither a worker nor a hook", raw)
		}
		return ip.String(), nil
	}
	for _, c := range []byte(host) {
		named := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
		if !named {
			return "", fmt.Errorf("url: the host %q has the byte %q; write an address, or a name of letters, digits, -, . and _",
				host, c)
		}
	}
	return strings.ToLower(host), nil
}

func cleanBase(raw string, u *url.URL) (string, error) {
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return "", fmt.Errorf("url: the base path of %q must not hold . or .. segments; write it out", raw)
		}
	}
	base := strings.TrimRight(u.EscapedPath(), "/")
	if strings.Contains(base, "//") {
		return "", fmt.Errorf("url: the base path of %q has an empty segment; write single slashes", raw)
	}
	if before, rank, ok := cutRank(base); ok && rank < MaxRanks {
		return "", fmt.Errorf("url: the base path of %q ends in @%d, but a rank follows the port; set ranks, or write "+
			"%s%%40%d if the path has an @", raw, rank, before[strings.LastIndexByte(before, '/'):], rank)
	}
	return base, nil
}

// redact removes a possible user and password from a rejected URL.
func redact(raw string) string {
	at := strings.LastIndex(raw, "@")
	if at < 0 {
		return raw
	}
	start := 0
	if scheme := strings.Index(raw, "://"); scheme >= 0 && scheme < at {
		start = scheme + len("://")
	}
	return raw[:start] + "…" + raw[at:]
}

// join returns target, a path with query, below the base path. If the base ends in /v1, as URLs for
// SDKs do, /v1 is not repeated.
func (a address) join(target string) string {
	return a.root() + target
}

// relative converts a reference in an answer of the server, such as a Location, into a reference
// through the gateway, without the server's address and base path. ok is false if the reference is
// invalid or leads to another server.
func (a address) relative(reference string) (ref string, ok bool) {
	u, err := url.Parse(reference)
	if err != nil || strings.Contains(reference, `\`) { // browsers treat a backslash as a slash
		return "", false
	}
	if u.Scheme != "" || u.Host != "" {
		if !a.serves(u) {
			return "", false
		}
		if u.Scheme, u.Host, u.User = "", "", nil; u.Path == "" {
			u.Path = "/"
		}
	} else if !strings.HasPrefix(u.Path, "/") || a.root() == "" {
		return reference, true
	}
	ref = u.String()
	if below, found := strings.CutPrefix(ref, a.root()); found && (below == "" || strings.ContainsAny(below[:1], "/?#")) {
		ref = "/" + strings.TrimPrefix(below, "/")
	}
	return ref, !strings.HasPrefix(ref, "//") // "//" would name another host
}

// serves reports whether a URL is on the server at a. Servers behind a TLS-terminating proxy write
// http for https.
func (a address) serves(u *url.URL) bool {
	if a.scheme == "unix" {
		return u.Host == socketHost
	}
	host, port, err := net.SplitHostPort(a.host)
	return err == nil && (u.Scheme == "" || u.Scheme == "http" || u.Scheme == "https") &&
		strings.EqualFold(u.Hostname(), host) && (u.Port() == port || u.Port() == "")
}

// root returns the base without a final /v1. Engines serve /health and /metrics there.
func (a address) root() string {
	if rest, ok := strings.CutSuffix(a.base, "/v1"); ok {
		return rest
	}
	return a.base
}

// metadataAddresses are the addresses at which clouds return credentials to any client (AWS, Google
// and Azure, ECS tasks, EKS pods, Alibaba). No engine listens there.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"),
}

func isMetadata(ip netip.Addr) bool {
	return slices.Contains(metadataAddresses, ip.Unmap().WithZone(""))
}

// refuseMetadata is a net.Dialer's Control. It checks the resolved address, so no name can lead to
// a metadata service.
func refuseMetadata(_, resolved string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(resolved)
	if err == nil && isMetadata(to.Addr()) {
		return fmt.Errorf("%s is a cloud's metadata address, which is neither a worker nor a hook", to.Addr())
	}
	return nil
}
