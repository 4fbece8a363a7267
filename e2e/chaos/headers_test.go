package chaos

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestRequestIDs: a valid id is kept, an invalid one is replaced by a UUID. Workers receive only
// UUIDs, because engines reject other ids.
func TestRequestIDs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
		r := newRig(t, 1, nil, engines.Config{})
		for _, id := range []string{"a", "A-b_c.9", strings.Repeat("x", 128)} {
			if got := r.post(chat.path, chat.body, "X-Request-Id", id); got.Header.Get("X-Request-Id") != id {
				t.Errorf("%q came back as %q", id, got.Header.Get("X-Request-Id"))
			}
			r.AccessLine(id)
		}
		made := map[string]bool{}
		for _, id := range []string{"", "a b", `a"b`, "a\tb", "é", strings.Repeat("x", 129), strings.Repeat("x", 10<<10),
			"<script>"} {
			got := r.post(chat.path, chat.body, "X-Request-Id", id)
			mine := got.Header.Get("X-Request-Id")
			if !uuid.MatchString(mine) || made[mine] || got.Status != http.StatusOK {
				t.Errorf("%.20q came back as %q with status %d", id, mine, got.Status)
			}
			made[mine] = true
			r.AccessLine(mine)
		}
		c := r.dial()
		c.send(head + "X-Request-Id: a\rb: c\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(chat.body)) + chat.body)
		if got := c.answer(); got.Status != http.StatusBadRequest {
			t.Errorf("an id with a carriage return: status %d, id %q", got.Status, got.Header.Get("X-Request-Id"))
		}
		for _, seen := range r.Workers[0].Recorder.Requests() {
			for _, id := range seen.Header.Values("X-Request-Id") {
				if !made[id] {
					t.Errorf("a worker got the id %q", id)
				}
				delete(made, id)
			}
		}
		if len(made) > 0 {
			t.Errorf("the worker never got %v", made)
		}
	})
}

// TestWorkersSeeTheGatewaysHeadersOnly: headers that identify the client are not forwarded, and
// the client's Connection header cannot remove headers that the gateway adds.
func TestWorkersSeeTheGatewaysHeadersOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorker(t, "w0", engines.Config{})
		own := rig.Settings{
			"auth": fmt.Sprintf("{ keys: [ { name: team, sha256: %s } ] }", rig.Digest("the-client's-key")),
			"tiers": fmt.Sprintf("[ { name: small, model: sim, workers: [ { name: w0, url: %q, api_key_env: WORKER_KEY } ] } ]",
				w.Server.URL),
		}
		r := newRig(t, 0, own, engines.Config{}, "WORKER_KEY=the-worker's-key")
		r.Workers = []*rig.Worker{w}
		const id = "0d4a6ad5-5a5c-4a3e-9d0c-2f1f3ad1c0de"
		c := r.dial()
		c.send(lines("POST /v1/chat/completions HTTP/1.1", "Host: gateway", "Content-Type: application/json",
			"Authorization: Bearer the-client's-key", "Cookie: session=secret", "X-Tenant-Id: other", "X-User-Id: me",
			"OpenAI-Organization: org", "OpenAI-Project: project", "Proxy-Authorization: Basic secret", "Api-Key: secret",
			"X-Forwarded-For: 10.0.0.1", "X-Forwarded-Host: evil", "X-Real-IP: 10.0.0.1", "Forwarded: for=10.0.0.1",
			"Via: 1.1 proxy",
			"X_Model_Tier: large", "x-model_tier: large", "X_Forwarded_For: 10.0.0.1", "X_Request_Id: other", "Content_Length: 1",
			"Api_Key: secret",
			"Accept-Encoding: gzip, br", "TE: trailers", "Keep-Alive: timeout=5", "X-Request-Id: "+id, "X-Hop: 1",
			"X-Custom: kept",
			"Connection: close, Authorization, X-Request-Id, Content-Length, Host, X-Hop, Accept-Encoding",
			fmt.Sprintf("Content-Length: %d", len(chat.body)), "", chat.body))
		if got := c.answer(); got.Status != http.StatusOK {
			t.Fatalf("the status is %d: %s", got.Status, got.Body)
		}
		seen := w.Recorder.Requests()[0]
		for name, value := range map[string]string{
			"Authorization": "Bearer the-worker's-key", "X-Request-Id": id, "X-Custom": "kept",
			"Content-Type":   "application/json",
			"Content-Length": fmt.Sprint(len(chat.body)), "Accept-Encoding": "identity",
			"Cookie": "", "X-Tenant-Id": "", "X-User-Id": "", "Openai-Organization": "", "Openai-Project": "",
			"Proxy-Authorization": "", "Api-Key": "",
			"X-Forwarded-For": "", "X-Forwarded-Host": "", "X-Real-Ip": "", "Forwarded": "", "Te": "", "Keep-Alive": "",
			"X-Hop": "",
		} {
			if got := strings.Join(seen.Header[name], "|"); got != value {
				t.Errorf("the worker's %s is %q, want %q", name, got, value)
			}
		}
		for name := range seen.Header {
			if strings.Contains(name, "_") {
				t.Errorf("the worker got %s, which engines may read as another header", name)
			}
		}
		// the value of the client's Via is not forwarded
		if via := seen.Header["Via"]; len(via) != 1 || !strings.HasPrefix(via[0], "1.1 tierway-") {
			t.Errorf("the worker's Via is %q", via)
		}
		if host := strings.TrimPrefix(w.Server.URL, "http://"); seen.Host != host {
			t.Errorf("the worker's Host is %q, want %q", seen.Host, host)
		}
		for _, secret := range []string{"client's-key", "worker's-key", "session=secret", rig.Digest("the-client's-key")} {
			if strings.Contains(r.Log(), secret) || strings.Contains(fmt.Sprint(r.AccessLines()), secret) {
				t.Errorf("%q is in the log", secret)
			}
		}
	})
}

// TestPathsAreNotNormalized: routing and permissions use the same path, the gateway redirects
// nothing, and any other path is 404.
func TestPathsAreNotNormalized(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, rig.Settings{"hosts": "[ gateway, evil.example ]"}, engines.Config{})
		request := func(target string) rig.Reply {
			c := r.dial()
			c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nConnection: "+
				"close\r\nContent-Length: %d\r\n\r\n%s", target, len(chat.body), chat.body))
			defer c.checkClosed()
			return c.answer()
		}
		for _, target := range []string{
			"/v1//chat/completions", "//v1/chat/completions", "/v1/chat//completions", "/v1/chat/completions/",
			"/v1/./chat/completions",
			"/v1/../v1/chat/completions", "/v1/../admin/workers", "/v1/%2e%2e/admin/workers", "/v1/..%2fadmin/workers",
			"/admin/workers", "/metrics",
			"/V1/chat/completions", "/v1/chat%2fcompletions/", "/v1/chat/completions%00", "/v1\\chat\\completions",
			"http://evil.example//v1/chat/completions",
		} {
			got := request(target)
			checkError(t, target, got, http.StatusNotFound, "unknown_url")
			if at := got.Header.Get("Location"); at != "" {
				t.Errorf("%s is redirected to %s", target, at)
			}
		}
		r.checkNoHits()
		for _, target := range []string{"http://evil.example/v1/chat/completions", "/v1/chat/completions",
			"/chat/completions",
			"/batch/v1/chat/completions", "/background/v1/chat/completions"} {
			if got := request(target); got.Status != http.StatusOK {
				t.Errorf("%s: the status is %d: %s", target, got.Status, got.Body)
			}
		}
		host := strings.TrimPrefix(r.Workers[0].Server.URL, "http://")
		for _, seen := range r.Workers[0].Recorder.Requests() {
			if seen.URL != chat.path || seen.Host != host {
				t.Errorf("the worker received a request for %s of %s", seen.URL, seen.Host)
			}
		}
	})
}

func TestOtherMethodsGet405WithAllow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "HEAD", "BREW"} {
			got := r.do(method, chat.path, "")
			if got.Status != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "POST" {
				t.Errorf("%s: the status is %d with Allow %q", method, got.Status, got.Header.Get("Allow"))
			}
			if e, _ := bodyError(got.Body); method != "HEAD" && e.Code != "method_not_allowed" {
				t.Errorf("%s: %s", method, got.Body)
			}
		}
		c := r.dial()
		c.send("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n")
		if got := c.answer(); got.Status != http.StatusMisdirectedRequest { // the host is not in hosts
			t.Errorf("CONNECT: the status is %d", got.Status)
		}
		c.checkClosed()
		r.checkNoHits()
	})
}

// TestEveryBadKeyGetsTheSameResponse, so that the response does not reveal which keys exist.
func TestEveryBadKeyGetsTheSameResponse(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const key = "a-key-of-the-team"
		own := rig.Settings{"auth": fmt.Sprintf("{ keys: [ { name: team, sha256: %s } ] }", rig.Digest(key))}
		var r *chaosRig
		ask := func(path string, headers ...string) rig.Reply {
			c := r.dial()
			c.send(lines(append(append([]string{"POST " + path + " HTTP/1.1", "Host: gateway", "Content-Type: application/json",
				"X-Request-Id: same", "Connection: close"}, headers...),
				fmt.Sprintf("Content-Length: %d", len(chat.body)), "", chat.body)...))
			return c.answer()
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/nothing"} {
			r = newRig(t, 1, own, engines.Config{}) // a new gateway: too many wrong keys get another response
			var first rig.Reply
			for i, headers := range [][]string{
				nil, {"Authorization: Basic dGVhbTpzZWNyZXQ="}, {"Authorization: Bearer "}, {"Authorization: Bearer"},
				{"Authorization: " + key},
				{"Authorization: Bearer " + key, "Authorization: Bearer " + key}, {"Authorization: Bearer " + key + "x"},
				{"Authorization: Bearer tw-unknown"}, {"Authorization: Bearer tw-000000000000000000000000000_0duFSU"},
				{"Authorization: Bearer " + rig.Digest(key)}, {"X-Api-Key: wrong"}, {"X-Api-Key: " + key, "X-Api-Key: " + key},
				{"Api-Key: wrong"}, {"Cookie: key=" + key},
				{"Authorization: Bearer " + strings.Repeat("x", 10<<10)}, {"Authorization: Bearer wrong", "X-Api-Key: wrong"},
			} {
				got := ask(path, headers...)
				got.Header.Del("Date")
				if i == 0 {
					first = got
				}
				if got.Status != http.StatusUnauthorized || got.Body != first.Body ||
					fmt.Sprint(got.Header) != fmt.Sprint(first.Header) {
					t.Errorf("%s %.60q: the answer is %d %v %s, and without a key %v %s", path, headers, got.Status, got.Header,
						got.Body, first.Header, first.Body)
				}
			}
			if first.Header.Get("Www-Authenticate") != "Bearer" {
				t.Errorf("%s: WWW-Authenticate is %q", path, first.Header.Get("Www-Authenticate"))
			}
			for _, query := range []string{"?api_key=" + key, "?key=" + key, "?Authorization=Bearer%20" + key} {
				if got := ask(path + query); got.Status != http.StatusUnauthorized || got.Body != first.Body {
					t.Errorf("a key in the query: %d %s", got.Status, got.Body)
				}
			}
			r.checkNoHits()
		}
		for _, header := range []string{"Authorization: Bearer " + key, "authorization: bearer " + key, "X-Api-Key: " + key} {
			if got := ask(chat.path, header); got.Status != http.StatusOK {
				t.Errorf("%s: the status is %d", header, got.Status)
			}
		}
	})
}
