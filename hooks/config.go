package hooks

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"strings"
	"time"

	"tierway/workers"
)

// Types of hooks.
const (
	TypeHTTP    = "http"
	TypeExtProc = "ext_proc"
)

// Values of Config.OnError and Config.OnReject.
const (
	Block    = "block"
	Pass     = "pass"
	Block400 = "block400"
	Block403 = "block403"
)

// DefaultTimeout is the default of Config.Timeout, as in vLLM Router's fork and in Envoy.
const DefaultTimeout = 200 * time.Millisecond

// Config is one hook in config.yaml. Resolved fills in the defaults.
type Config struct {
	Name       string        `yaml:"name" required:"true" form:"name" doc:"Name of the hook, unique in the file. Metrics, records and the response header x-tierway-hooks show it."`
	Type       string        `yaml:"type" enum:"http,ext_proc" absent:"'http'" doc:"Protocol of the service. 'http': a POST of the body, answered with an action in JSON. 'ext_proc': Envoy's external processing over gRPC. See docs/hooks.md."`
	URL        string        `yaml:"url" required:"true" doc:"Address of the service. With 'http': http://host:port/path or https://…, used as it is written. With 'ext_proc': host:port or grpc://host:port for plain text, grpcs://host:port for TLS. A user or password is not allowed."`
	Timeout    time.Duration `yaml:"timeout" absent:"'200ms'" doc:"Longest time of a call, with its connection. At most 'hooks_timeout'."`
	OnError    string        `yaml:"on_error" enum:"block,pass" absent:"'block'" doc:"What happens to a request if the call fails: the service is down, slow, overloaded or returns an invalid answer. 'block': it is rejected with 503 'hook_unavailable'. 'pass': it continues as it was before the hook."`
	OnReject   string        `yaml:"on_reject" enum:"block403,block400,pass" absent:"'block403'" doc:"What happens to a request that the service rejects: it is answered with 403 or 400 and the code 'rejected_by_hook', or it continues ('pass') and the rejection is only recorded. If an ext_proc service rejects with 429, the status is 429, except with 'pass'."`
	Transform  bool          `yaml:"transform" doc:"The service may change the request. If it is false, a changed request counts as an error of the hook."`
	Shadow     bool          `yaml:"shadow" doc:"Only record what the service answers: its rejections, changes and errors have no effect. The request waits for the answer all the same."`
	APIKeyEnv  string        `yaml:"api_key_env" form:"variable" secret:"true" doc:"Environment variable with the key of the service. It is sent as a bearer token."`
	APIKeyFile string        `yaml:"api_key_file" doc:"File with the key of the service, in place of 'api_key_env'. It is read again when it changes. A relative file is resolved against the working directory of the process."`
	TLS        *workers.TLS  `yaml:"tls" absent:"the system's authorities, and no certificate" doc:"Certificates for the connections to the service. Its URL must begin with https or grpcs."`
}

// Resolved returns a copy with the defaults for absent keys.
func (c Config) Resolved() Config {
	c.Type = cmp.Or(c.Type, TypeHTTP)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.OnError = cmp.Or(c.OnError, Block)
	c.OnReject = cmp.Or(c.OnReject, Block403)
	if c.TLS != nil {
		c.TLS = new(*c.TLS)
	}
	return c
}

// Enforces reports whether the hook can reject or change a request.
func (c Config) Enforces() bool { return !c.Shadow && (c.OnReject != Pass || c.Transform) }

type target struct {
	server string // http://host:port or https://host:port
	path   string // of an HTTP request, with its query
	secure bool
}

// CheckURL returns what is wrong with the URL of a hook of that type, and whether its connections use TLS. server is
// its address as http://host:port or https://host:port. An error repeats no password.
func CheckURL(kind, raw string) (server string, secure bool, err error) {
	to, err := parseTarget(kind, raw)
	return to.server, to.secure, err
}

func parseTarget(kind, raw string) (target, error) {
	if kind == TypeExtProc {
		return parseGRPC(raw)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Opaque != "" || u.Scheme == "":
		return target{}, errors.New("is not a URL; write http://host:port/path or https://host/path")
	case u.User != nil:
		return target{}, errors.New("has a user or a password; name the variable with the key in api_key_env")
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, fmt.Errorf("has the scheme %q; write http or https, or set type: ext_proc for a gRPC service",
			u.Scheme)
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return target{}, errors.New("has a fragment; remove the # and what follows it")
	}
	to := target{path: u.EscapedPath(), secure: u.Scheme == "https"}
	if to.path == "" {
		to.path = "/"
	}
	if u.RawQuery != "" {
		to.path += "?" + u.RawQuery
	}
	to.server, err = serverOf(u.Scheme + "://" + u.Host)
	return to, err
}

func parseGRPC(raw string) (target, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "grpc", raw
	}
	to := target{secure: scheme == "grpcs"}
	switch {
	case scheme != "grpc" && scheme != "grpcs":
		return target{}, fmt.Errorf("has the scheme %q; write host:port, grpc://host:port or grpcs://host:port", scheme)
	case strings.Contains(rest, "@"):
		return target{}, errors.New("has a user or a password; name the variable with the key in api_key_env")
	case strings.ContainsAny(rest, "/?#") || !strings.Contains(rest, ":"):
		return target{}, errors.New("is not host:port; write host:port, grpc://host:port or grpcs://host:port")
	}
	var err error
	to.server, err = serverOf(map[bool]string{false: "http", true: "https"}[to.secure] + "://" + rest)
	return to, err
}

// serverOf returns the canonical form of the URL of a server.
func serverOf(raw string) (string, error) {
	server, err := workers.Canonical(raw)
	if err != nil {
		return "", errors.New(strings.TrimPrefix(err.Error(), "url: "))
	}
	return server, nil
}

// Spec is a resolved hook with its key.
type Spec struct {
	Config
	Key            string `json:"-"` // value of APIKeyEnv; never printed
	ConnectTimeout time.Duration
	MaxReply       int64 // longest answer in bytes
}

// String describes the hook without its key.
func (s Spec) String() string { return fmt.Sprintf("hook %s (%s) at %s", s.Name, s.Type, s.URL) }

// Format prints the result of String under every verb, so that no format shows the key.
func (s Spec) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue keeps the key out of structured logs.
func (s Spec) LogValue() slog.Value { return slog.StringValue(s.String()) }

// same reports whether s and o need the same connections and share a breaker: a hook is kept over a reload then.
func (s Spec) same(o Spec) bool { return reflect.DeepEqual(s, o) }
