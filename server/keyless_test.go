package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"tierway/server/intake"
)

// keylessYAML is plain with a host, an origin that CORS allows, and a tenant's key.
var keylessYAML = strings.Replace(plain, "auth: { required: false }",
	`auth: { required: false, keys: [ { name: all, sha256: `+digestHex("key")+` } ] }
hosts: [ai.lan]
cors: { origins: ["https://app.example"] }`, 1)

// requestHost sends a request for a host to a server.
func requestHost(t *testing.T, front *httptest.Server, method, path, host, body string, headers ...string) httpAnswer {
	t.Helper()
	r := &rig{t: t, net: networkOf(t), url: front.URL}
	return r.do(method, path, body, append(headers, "Host", host)...)
}

// TestOnlyNamesCanBeForeign: a name is foreign unless it is local to the machine or listed in hosts.
// Port, case and a trailing dot do not matter.
func TestOnlyNamesCanBeForeign(t *testing.T) {
	for host, foreign := range map[string]bool{
		"localhost": false, "localhost:8080": false, "LocalHost.": false, "tierway.localhost:8080": false,
		"127.0.0.1:8080": false, "[::1]:8080": false,
		"[::1]": false, "10.1.2.3": false, "ai.lan": false, "AI.lan.:443": false, "": false,
		"evil.example": true, "evil.example:8080": true, "localhost.evil.example": true, "127.0.0.1.evil.example": true,
		"ai.lan.evil.example": true,
		"notlocalhost":        true, "xai.lan": true, "127.0.0.1@evil.example": true, "localhost:80@evil.example": true,
		"evil.example:x:y":       true,
		"localhost evil.example": true, "127.0.0.1.": false, "127.1": true, "localhost..": true,
	} {
		if intake.IsForeign(host, []string{"ai.lan"}) != foreign {
			t.Errorf("Host %q: foreign is %v", host, !foreign)
		}
	}
}

// TestKeylessGatewayRejectsForeignHosts: a web page cannot reach the gateway by a name that resolves to
// it.
func TestKeylessGatewayRejectsForeignHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := newServer(t, newRig(t, keylessYAML, fakeEngine()).planes.dataHandler())
		for host, allowed := range map[string]bool{"localhost:8080": true, "127.0.0.1": true, "ai.lan": true,
			"evil.example:8080": false, "localhost.evil.example": false} {
			for _, c := range [][3]string{{"GET", "/v1/models", ""}, {"POST", "/v1/chat/completions", hello},
				{"GET", "/readyz", ""}, {"POST", "/nowhere", ""},
				{"POST", "/v1/messages", hello}} {
				got := requestHost(t, front, c[0], c[1], host, c[2])
				if (got.status != http.StatusMisdirectedRequest) != allowed {
					t.Errorf("Host %q: %s %s is %d", host, c[0], c[1], got.status)
				}
				if !allowed && (!strings.Contains(got.body, "`"+host+"`") || !strings.Contains(got.body, "`hosts`") ||
					!strings.Contains(got.body, "--hosts")) {
					t.Errorf("Host %q: the message is %s", host, got.body)
				}
			}
			if got := requestHost(t, front, "POST", "/v1/chat/completions", host, hello, "Authorization", allKey); got.status !=
				http.StatusOK {
				t.Errorf("Host %q: with a key the status is %d", host, got.status)
			}
		}
	})
}

// TestKeylessGatewayRejectsCrossSiteRequests of every method and content type.
func TestKeylessGatewayRejectsCrossSiteRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := newServer(t, newRig(t, keylessYAML, fakeEngine()).planes.dataHandler())
		for _, c := range []struct {
			headers []string
			status  int
		}{
			{[]string{}, 200},
			{[]string{"Sec-Fetch-Site", "none"}, 200},
			{[]string{"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:8080"}, 200},
			{[]string{"Origin", "http://localhost:8080"}, 200},
			{[]string{"Sec-Fetch-Mode", "cors"}, 200}, // Node's fetch
			{[]string{"Origin", "https://app.example", "Sec-Fetch-Site", "cross-site"}, 200},
			{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
			{[]string{"Sec-Fetch-Site", "same-site"}, 403},
			{[]string{"Origin", "https://evil.example"}, 403},
			{[]string{"Origin", "null"}, 403},
			{[]string{"Origin", "http://localhost:3000", "Sec-Fetch-Site", "same-site"}, 403},
			{[]string{"Origin", "https://app.example.evil.example"}, 403},
		} {
			for _, q := range [][3]string{{"POST", "/v1/chat/completions", hello}, {"GET", "/v1/models", ""}} {
				headers := append([]string{"Content-Type", "application/json"}, c.headers...)
				if got := requestHost(t, front, q[0], q[1], "localhost:8080", q[2], headers...); got.status != c.status {
					t.Errorf("%s %q: %d %s", q[0], c.headers, got.status, got.body)
				}
			}
		}
		form := "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nsmall\r\n--b\r\nContent-Disposition: " +
			"form-data; name=\"prompt\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=\"image\"; " +
			"filename=\"a.png\"\r\n\r\nx\r\n--b--\r\n"
		upload := []string{"Content-Type", "multipart/form-data; boundary=b"}
		if got := requestHost(t, front, "POST", "/v1/images/edits", "localhost", form, upload...); got.status != 200 {
			t.Errorf("a form of a tool: %d %s", got.status, got.body)
		}
		if got := requestHost(t, front, "POST", "/v1/images/edits", "localhost", form,
			append(upload, "Origin", "https://evil.example")...); got.status != 403 {
			t.Errorf("a form of another site: %d %s", got.status, got.body)
		}
	})
}

// TestKeylessGatewayNeedsAContentType: a web page can send any body without a content type.
func TestKeylessGatewayNeedsAContentType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		front := newServer(t, newRig(t, keylessYAML, fakeEngine()).planes.dataHandler())
		for kind, status := range map[string]int{"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415,
			"multipart/form-data; boundary=x": 415, "application/xml": 415, "nonsense": 415,
			"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON": 200} {
			if got := requestHost(t, front, "POST", "/v1/chat/completions", "localhost", hello, "Content-Type",
				kind); got.status !=
				status {
				t.Errorf("%q: %d %s", kind, got.status, got.body)
			}
		}
		if got := requestHost(t, front, "POST", "/v1/chat/completions", "localhost", hello, "Authorization",
			allKey); got.status !=
			200 {
			t.Errorf("without a type, with a key: %d %s", got.status, got.body)
		}
	})
}

// TestMetricsRejectForeignHosts on loopback, and on other addresses if hosts is set.
func TestMetricsRejectForeignHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			settings string
			foreign  int
		}{
			{"metrics: { listen: \"127.0.0.1:9090\" }\n", 421},
			{"admin: { listen: \"127.0.0.1:8081\" }\n", 421},
			{"admin: { listen: \"0.0.0.0:8081\", insecure: true }\n", 200},
			{"admin: { listen: \"0.0.0.0:8081\", insecure: true }\nhosts: [ai.lan]\n", 421},
			{"admin: { listen: \"0.0.0.0:8081\", insecure: true }\nmetrics: { listen: \"0.0.0.0:9090\", insecure: true }\n",
				200},
			{"admin: { listen: \"0.0.0.0:8081\", insecure: true }\nmetrics: { listen: \"0.0.0.0:9090\", insecure: true " +
				"}\nhosts: [ai.lan]\n", 421},
		} {
			r := newRig(t, c.settings+strings.Replace(plain, "auth: { required: false }",
				"auth: { keys: [ { name: all, sha256: "+
					digestHex("key")+" } ] }", 1), fakeEngine())
			for plane, h := range map[string]http.Handler{"admin": r.planes.adminHandler(),
				"metrics": r.planes.metricsHandler()} {
				if (plane == "admin") == strings.Contains(c.settings, "9090") {
					continue
				}
				front := newServer(t, h)
				for host, status := range map[string]int{"localhost:8081": 200, "127.0.0.1:8081": 200, "evil.example": c.foreign} {
					if got := requestHost(t, front, "GET", "/metrics", host, ""); got.status != status {
						t.Errorf("%q, %s: Host %s is %d, want %d", c.settings, plane, host, got.status, status)
					}
				}
			}
		}
	})
}
