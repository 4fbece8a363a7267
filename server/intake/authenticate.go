package intake

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"tierway/config"
	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
)

// Caller is the tenant and key of a request.
type Caller struct {
	*tenants.Caller      // nil: unknown
	Disabled        bool // the tenant is disabled, and its requests are refused
	keyless         bool // admitted without a key
}

// Authenticate finds the caller of a request by its key. Missing, malformed and unknown keys get the
// same answer, which does not reveal the keys that exist. Before that, it rejects a request that has
// passed this gateway before, or too many other gateways.
func (it *Intake) Authenticate(in *Inbound) (Caller, error) {
	if err := it.CheckLoop(in); err != nil {
		return Caller{}, err
	}
	c, unknown, err := it.Identify(in)
	if unknown {
		err = it.countUnknownKey(in, err)
	}
	return c, err
}

// Identify finds the caller of a request by the first of its keys that the gateway knows, without counting failures.
// unknown reports that a key is required and that the keys of the request are missing, malformed or unknown.
func (it *Intake) Identify(in *Inbound) (c Caller, unknown bool, err error) {
	keys := control.Credentials(in.HTTP.Header)
	err = tenants.ErrUnknownKey
	for _, key := range keys { // clients send tokens of other services beside the key of the gateway
		if key == "" {
			continue
		}
		c.Caller, err = in.Snap.Identity.Directory.Authenticate(key, in.Start)
		if !errors.Is(err, tenants.ErrUnknownKey) {
			break
		}
	}
	switch {
	case err == nil:
		return c, false, nil
	case errors.Is(err, tenants.ErrDisabled):
		return Caller{Caller: c.Caller, Disabled: true}, false, RefusedKey(err)
	case slices.ContainsFunc(keys[:], func(key string) bool { return it.unread(in.Snap.Identity, key) }):
		return Caller{}, false, &openai.Error{Code: openai.CodeAuthBackendUnavailable, RetryAfter: control.PollInterval,
			Message: "API keys cannot be checked because the database is unavailable. Try again later."}
	case in.Snap.File.Auth.Required:
		return Caller{}, true, BadKey()
	}
	if err := checkKeyless(in.HTTP, in.Snap.File); err != nil {
		return Caller{}, false, err
	}
	return Caller{Caller: tenants.Anonymous(), keyless: true}, false, nil
}

// RefusedKey returns the answer to a key that authentication rejected with err, or nil if err is nil.
func RefusedKey(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tenants.ErrDisabled):
		return &openai.Error{Code: openai.CodeTenantDisabled,
			Message: "This tenant is disabled. Ask the operator to enable it."}
	}
	return BadKey()
}

// BadKey returns the answer to every missing, malformed or unknown key.
func BadKey() error {
	return &openai.Error{Code: openai.CodeInvalidAPIKey,
		Message: "Incorrect API key provided. Send a valid key as `Authorization: Bearer <key>` or `x-api-key: <key>`."}
}

// unread reports whether a key may be valid although it is unknown, because the database was never
// read.
func (it *Intake) unread(identity *control.Identity, key string) bool {
	return it.control.Stores.SQL != nil && identity.ReadAt.IsZero() && strings.HasPrefix(key, tenants.TenantPrefix) &&
		tenants.WellFormed(key)
}

// countUnknownKey counts a request with a missing or unknown key. It returns err, or a rate-limit error
// if too many unknown keys came from the client's address.
func (it *Intake) countUnknownKey(in *Inbound, err error) error {
	keys := control.Credentials(in.HTTP.Header)
	it.metrics.AuthFailures.Inc()
	if it.control.Stores.SQL != nil && slices.ContainsFunc(keys[:], tenants.WellFormed) {
		it.control.Database.RequestRefresh() // it may be new
	}
	if !control.HasKey(in.HTTP.Header) {
		return err // a missing key is not a guess
	}
	if tooMany, wait := it.control.AuthFailures.Add(in.Snap.ClientIP(in.HTTP), in.Start); tooMany {
		return &openai.Error{
			Code:       openai.CodeRateLimitExceeded,
			RetryAfter: wait,
			NoRetry:    true,
			Message: "Too many incorrect API keys came from this address. Send a valid key, or try again after the time in " +
				"Retry-After.",
		}
	}
	return err
}

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
