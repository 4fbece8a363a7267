package workers

import (
	"net"
	"net/url"
	"strings"
	"testing"
)

func TestURLsAreParsed(t *testing.T) {
	for raw, want := range map[string]address{
		"http://127.0.0.1:8000":             {scheme: "http", host: "127.0.0.1:8000"},
		"http://engine":                     {scheme: "http", host: "engine:80"},
		"HTTP://Engine_1:8000/":             {scheme: "http", host: "engine_1:8000"},
		"http://[::1]:8000/v1/":             {scheme: "http", host: "[::1]:8000", base: "/v1"},
		"https://api.example.com/openai/v1": {scheme: "https", host: "api.example.com:443", base: "/openai/v1"},
		"https://h/a%2Fb":                   {scheme: "https", host: "h:443", base: "/a%2Fb"},
		"unix:///run/vllm.sock":             {scheme: "unix", socket: "/run/vllm.sock"},
		"unix:///run/vllm.sock:/":           {scheme: "unix", socket: "/run/vllm.sock"},
		"unix:///run/vllm.sock:/v1":         {scheme: "unix", socket: "/run/vllm.sock", base: "/v1"},
		"http://h/base%402":                 {scheme: "http", host: "h:80", base: "/base%402"},
		"https://h/models/m@20240620":       {scheme: "https", host: "h:443", base: "/models/m@20240620"},
		"unix:///run/vllm@0":                {scheme: "unix", socket: "/run/vllm@0"},
		"unix:///run/a:b.sock":              {scheme: "unix", socket: "/run/a:b.sock"},
	} {
		got, err := parseAddress(raw)
		if err != nil || got != want {
			t.Errorf("parseAddress(%q) = %+v, %v; want %+v", raw, got, err, want)
		}
		if _, err := Canonical(raw); err != nil {
			t.Errorf("Canonical(%q): %v", raw, err)
		}
	}
}

func TestRejectedURLsNameFieldAndWayOut(t *testing.T) {
	for raw, text := range map[string]string{
		"":                   "is empty",
		"engine:8000":        "has no scheme",
		"//engine:8000":      "has no scheme",
		"ftp://engine":       `scheme "ftp"`,
		"gopher://engine":    "must be http, https or unix",
		"file:///etc/passwd": "must be http, https or unix",
		"http://":            "names no host",
		"http://:8000":       "names no host",
		"http://h:0":         "1 to 65535",
		"http://h:65536":     "1 to 65535",
		"http://h:port":      "malformed",
		"http://h h":         "malformed",
		"http://h\n":         "malformed",
		"http://h/%zz":       "malformed",
		"http://]":           "letters, digits", "http://münchen": "letters, digits", "http://a*b": "letters, digits",
		"http://user@h":                       "api_key_env",
		"http://h:1@2":                        "api_key_env", // callers split ranks off
		"http://h/base@2":                     `write /base%402`,
		"unix:///run/a.sock:/v2@63":           `write /v2%4063`,
		"http://h?a=b":                        "query",
		"http://h?":                           "query",
		"http://h/#x":                         "fragment",
		"http://h#":                           "fragment",
		"http://h/../x":                       "segments",
		"http://h/a//b":                       "single slashes",
		"http://169.254.169.254/latest":       "metadata",
		"http://[::ffff:169.254.169.254]":     "metadata",
		"http://[fd00:ec2::254]:80":           "metadata",
		"unix://run/x.sock":                   "no absolute path",
		"unix://":                             "no absolute path",
		"unix:///":                            "socket's file",
		"unix:///run/":                        "socket's file",
		"unix:///run/x.sock?a":                "query",
		"unix:///run/x.sock#a":                "fragment",
		"unix:///run/x.sock:/..":              "segments",
		"unix:///run/x.sock:/%zz":             "malformed",
		"unix:///" + strings.Repeat("x", 107): "shorter",
	} {
		_, err := Canonical(raw)
		if err == nil || !strings.HasPrefix(err.Error(), "url: ") || !strings.Contains(err.Error(), text) {
			t.Errorf("Canonical(%q) = %v; want an error on url with %q", raw, err, text)
		}
	}
}

func TestErrorsOfURLsOmitThePassword(t *testing.T) {
	for _, raw := range []string{
		"http://u:hunter2@h:8000", "https://u:hunter2@h:bad", "ftp://u:hunter2@h", "u:hunter2@h",
		"http://u:hunter2@h/%zz", "http://u:hun%ter2hunter2@h", "unix://u:hunter2@h",
	} {
		if _, err := Canonical(raw); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Canonical(%q) = %v; want an error without the password", raw, err)
		}
	}
}

func TestOneEngineHasOneCanonicalURL(t *testing.T) {
	for canonical, same := range map[string][]string{
		"http://engine:80":            {"http://engine", "HTTP://ENGINE:80/", "http://engine/v1", "http://engine:080/v1/"},
		"https://h:443/openai":        {"https://h/openai", "https://H/openai/v1", "https://h:443/openai/"},
		"http://[::1]:8000":           {"http://[::1]:8000", "http://[0:0:0:0:0:0:0:1]:8000/v1"},
		"unix:///run/x.sock":          {"unix:///run/x.sock", "UNIX:///run//x.sock", "unix:///run/y/../x.sock:/v1"},
		"unix:///run/x.sock:/api":     {"unix:///run/x.sock:/api/", "unix:///run/x.sock:/api/v1"},
		"http://engine:8000/V1":       {"http://engine:8000/V1"},
		"http://engine:8000/other/v2": {"http://engine:8000/other/v2"},
	} {
		for _, raw := range same {
			got, err := Canonical(raw)
			if err != nil || got != canonical {
				t.Errorf("Canonical(%q) = %q, %v; want %q", raw, got, err, canonical)
			}
		}
		if again, err := Canonical(canonical); err != nil || again != canonical {
			t.Errorf("Canonical(%q) = %q, %v: it must be its own normal form", canonical, again, err)
		}
	}
}

func TestPathIsAppendedToTheBaseWithOneV1(t *testing.T) {
	for _, c := range []struct{ url, path, want string }{
		{"http://h:1", "/v1/models?x=1", "/v1/models?x=1"},
		{"http://h:1/v1", "/v1/models", "/v1/models"},
		{"http://h:1/v1/", "/v1?x=1", "/v1?x=1"},
		{"http://h:1/v1", "/v1", "/v1"},
		{"http://h:1/v1", "/v10/x", "/v10/x"},
		{"http://h:1/v1", "/tokenize", "/tokenize"},
		{"http://h:1/openai/v1", "/v1/models", "/openai/v1/models"},
		{"http://h:1/openai", "/v1/models", "/openai/v1/models"},
		{"unix:///run/x:/api/v1", "/v1/models", "/api/v1/models"},
	} {
		a, err := parseAddress(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.join(c.path); got != c.want {
			t.Errorf("%s with %s has the path %s; want %s", c.url, c.path, got, c.want)
		}
	}
}

func TestMetadataAddressesAreNotDialled(t *testing.T) {
	for _, resolved := range []string{"169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fd00:ec2::254]:443",
		"100.100.100.200:80"} {
		if refuseMetadata("tcp", resolved, nil) == nil {
			t.Errorf("dialing %s is allowed", resolved)
		}
	}
	for _, resolved := range []string{"127.0.0.1:80", "10.0.0.1:8000", "[fe80::1%lo]:80", "169.254.1.1:80"} {
		if err := refuseMetadata("tcp", resolved, nil); err != nil {
			t.Errorf("dialing %s: %v", resolved, err)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{"http://h:1/v1", "https://[::1]/a%20b/", "unix:///run/x.sock:/v1", "http://u:p@h",
		"unix:///a:/v1/v1", "HTTP://x//", "http://[fe80::1%25lo]:8"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		_, err := Canonical(raw)
		if err != nil {
			return
		}
		a, err := parseAddress(raw)
		if err != nil {
			t.Fatal(err)
		}
		if a.scheme != "unix" {
			if _, _, err := net.SplitHostPort(a.host); err != nil {
				t.Fatalf("%q gives the host %q: %v", raw, a.host, err)
			}
		}
		if a.base != "" && (a.base[0] != '/' || strings.HasSuffix(a.base, "/")) {
			t.Fatalf("%q gives the base %q", raw, a.base)
		}
	})
}

func TestReferencesLeadThroughTheGatewayOrAreRejected(t *testing.T) {
	for _, c := range []struct {
		url, reference, want string
		ok                   bool
	}{
		{"http://engine:8000", "http://engine:8000/a?b=c#d", "/a?b=c#d", true},
		{"http://engine:8000", "HTTP://ENGINE:8000/a", "/a", true},
		{"http://engine:8000", "//engine:8000/a", "/a", true},
		{"http://engine:8000", "http://engine:8000", "/", true},
		{"http://engine:8000", "http://engine:8000?x", "/?x", true},
		{"http://engine:8000", "http://engine/a", "/a", true},
		{"http://engine:8000", "http://engine:8001/a", "", false},
		{"http://engine:8000", "http://other:8000/a", "", false},
		{"http://engine:8000", "ftp://engine:8000/a", "", false},
		{"http://engine:8000", "http:a", "", false},
		{"http://engine:8000", "http://engine:8000//other/a", "", false},
		{"http://engine:8000", "/a/../b", "/a/../b", true},
		{"http://engine:8000", "../b", "../b", true},
		{"http://engine:8000", "", "", true},
		{"http://engine:8000", ":a", "", false},
		{"http://engine:8000", `/\\other/a`, "", false},
		{"http://[::1]:8000", "http://[::1]:8000/a", "/a", true},
		{"https://engine", "https://engine:443/a", "/a", true},
		{"https://engine", "http://engine/a", "/a", true},
		{"https://engine", "https://engine:8443/a", "", false},
		{"http://engine:8000/base/v1", "http://engine:8000/base/v1/a", "/v1/a", true},
		{"http://engine:8000/base", "/base/a", "/a", true},
		{"http://engine:8000/base", "/base?x", "/?x", true},
		{"http://engine:8000/base", "/basement/a", "/basement/a", true},
		{"http://engine:8000/base", "/base//other", "", false},
		{"http://engine:8000/base", "a", "a", true},
		{"unix:///run/engine.sock:/base", "http://localhost/base/a", "/a", true},
		{"unix:///run/engine.sock", "http://engine/a", "", false},
	} {
		a, err := parseAddress(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if ref, ok := a.relative(c.reference); ok != c.ok || ok && ref != c.want {
			t.Errorf("%s: %q is %q, %v, want %q, %v", c.url, c.reference, ref, ok, c.want, c.ok)
		}
	}
}

// FuzzReference verifies that an accepted reference contains no host.
func FuzzReference(f *testing.F) {
	for _, seed := range []string{"http://engine:8000/base/x", "//engine:8000//x", "/base//x", "x", "http:x", "/\\x",
		"?a#b", "/base/base//x"} {
		f.Add(seed)
	}
	to, err := parseAddress("http://engine:8000/base")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, reference string) {
		ref, ok := to.relative(reference)
		if !ok {
			return
		}
		if u, err := url.Parse(ref); err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" {
			t.Errorf("%q passes as %q", reference, ref)
		}
	})
}
