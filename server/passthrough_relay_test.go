package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/server/control"
)

// passthroughYAML has a pool with pass-through paths under round_robin. Of three workers, the breaker of one
// may open, at the second consecutive failure.
const passthroughYAML = `
auth: { required: false }
health: { path: "off" }
breaker: { consecutive_failures: 2 }
policy: { name: round_robin }
pools:
  - { name: other, paths: ["/raw/*", "/exact", "/v1/*"], workers: [ %s ] }
`

// newPassthroughRig is a rig of three workers with the same engine.
func newPassthroughRig(t *testing.T, yaml string, engine http.HandlerFunc) *rig {
	t.Helper()
	return newRig(t, yaml, engine, engine, engine)
}

// checkNoWorkerBlamed fails if a breaker is open or an answer counts as a failure.
func (r *rig) checkNoWorkerBlamed() {
	r.t.Helper()
	p := r.control.Snapshot().Pools[0]
	for _, v := range p.Routing.Snapshot(time.Now()) {
		if st := v.Ref.(*control.Member).Gate.View().State; st != breaker.Closed {
			r.t.Errorf("the breaker of %s is %v", v.ID, st)
		}
	}
	for _, d := range r.recorded().Last(1000) {
		for _, a := range d.Attempts {
			if a.ErrorType != "" && a.Status < 400 {
				r.t.Errorf("an answer with status %d of %s counts as %s: %s", a.Status, a.Worker, a.ErrorType, a.Error)
			}
		}
	}
}

// TestAPassthroughAnswerEndsAfterASilence that is longer than the client's stall time: the client is not at fault.
func TestAPassthroughAnswerEndsAfterASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPassthroughRig(t, passthroughYAML, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "begin") // a test's own worker
			w.(http.Flusher).Flush()
			time.Sleep(45 * time.Second) // timeouts.client_stall is 30 s
		})
		if a := r.do("GET", "/raw/file", ""); a.status != http.StatusOK || a.body != "begin" || a.err != nil {
			t.Errorf("%d %q, %v", a.status, a.body, a.err)
		}
	})
}

// TestPassthroughAnswersAreNotParsed: neither the path nor the client's headers give them a dialect. So
// no answer is rejected, changed or counted against its worker.
func TestPassthroughAnswersAreNotParsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stream = "event: progress\ndata: 10\n\ndata: not json\n\n"
		r := newPassthroughRig(t, passthroughYAML, func(w http.ResponseWriter, q *http.Request) {
			kind, body := "application/octet-stream", "\x00\x01\x02"
			switch {
			case strings.HasSuffix(q.URL.Path, "stream"):
				kind, body = "text/event-stream", stream
			case strings.HasSuffix(q.URL.Path, "list"):
				kind, body = "application/json", "[1,2,3]"
			}
			w.Header().Set("Content-Type", kind)
			io.WriteString(w, body) // a test's own worker
		})
		for range 3 {
			for path, want := range map[string]string{
				"/raw/messages/file": "\x00\x01\x02", "/raw/messages/list": "[1,2,3]", "/raw/messages/stream": stream,
				"/raw/file": "\x00\x01\x02", "/raw/list": "[1,2,3]", "/raw/stream": stream,
				"/v1/responses/resp_unknown": "\x00\x01\x02",
			} {
				a := r.do("GET", path, "", "Anthropic-Version", "2023-06-01")
				if a.status != http.StatusOK || a.body != want || a.err != nil {
					t.Errorf("%s: %d %q, %v", path, a.status, a.body, a.err)
				}
			}
		}
		r.checkNoWorkerBlamed()
		for _, d := range r.recorded().Last(100) {
			if d.Dialect != "other" || d.Result != "ok" {
				t.Errorf("a pass-through request is recorded as %s, %s", d.Dialect, d.Result)
			}
		}
		for header, want := range map[string]string{"Anthropic-Version": `{"type":"error"`, "X-None": `{"error":`} {
			if a := r.do("GET", "/elsewhere", "", header, "2023-06-01"); a.status != http.StatusNotFound ||
				!strings.HasPrefix(a.body, want) {
				t.Errorf("an unknown path with %s: %d %s", header, a.status, a.body)
			}
		}
	})
}

// TestPassthroughRedirectsReachTheClient: a redirect or a 304 is forwarded like any answer. Location
// does not expose the worker's address.
func TestPassthroughRedirectsReachTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own string
		hits := 0
		r := newPassthroughRig(t, passthroughYAML, func(w http.ResponseWriter, q *http.Request) {
			hits++
			own = q.Host
			if to := strings.ReplaceAll(q.URL.Query().Get("to"), "OWN", q.Host); to != "" {
				w.Header().Set("Location", to)
				w.Header().Set("Content-Location", to)
			}
			var status int
			fmt.Sscan(q.URL.Query().Get("status"), &status) // a test's own worker
			if w.Header().Set("Etag", `"v1"`); status == http.StatusNotModified && q.Header.Get("If-None-Match") != `"v1"` {
				status = http.StatusTeapot
			}
			w.WriteHeader(status)
		})
		for _, c := range []struct {
			status   int
			to, want string
		}{
			{status: 304}, {status: 300}, {status: 201, to: "http://OWN/raw/made", want: "/raw/made"},
			{301, "http://OWN/raw/a%2Fb?x=1%262#top", "/raw/a%2Fb?x=1%262#top"},
			{302, "//OWN/raw/y", "/raw/y"}, {307, "https://OWN/raw/y", "/raw/y"}, {308, "http://OWN", "/"},
			{302, "/raw/y?z=//OWN", "/raw/y?z=//OWN"}, {303, "y", "y"}, {303, "?page=2", "?page=2"},
			{302, "http://engine-7.internal:8000/raw/y", ""}, {302, "//engine-7.internal/raw/y", ""},
			{302, "http://user:pass@OWN/raw/y", "/raw/y"}, {302, "http://OWN//evil.example/y", ""}, {302, "http://[broken", ""},
		} {
			before := hits
			a := r.do("GET", "/raw/x?status="+fmt.Sprint(c.status)+"&to="+strings.NewReplacer("%", "%25", "&", "%26", "#", "%23",
				"?", "%3F").Replace(c.to), "", "If-None-Match", `"v1"`)
			where := a.header.Get("Location")
			if a.status != c.status || hits != before+1 || a.header.Get("Etag") != `"v1"` {
				t.Errorf("%d %q: %d %s after %d requests", c.status, c.to, a.status, a.body, hits-before)
			}
			if want := strings.ReplaceAll(c.want, "OWN", own); where != want || a.header.Get("Content-Location") != want {
				t.Errorf("%d to %q leads to %q and %q, want %q", c.status, c.to, where, a.header.Get("Content-Location"), want)
			}
			if n, has := a.header["Content-Length"]; has && c.status == 304 {
				t.Errorf("a 304 has the Content-Length %q", n)
			}
		}
		r.checkNoWorkerBlamed()
	})
}

// TestARedirectBelowABasePathLeadsBelowTheGateway: the base path is part of the worker's address and is
// removed.
func TestARedirectBelowABasePathLeadsBelowTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Location", strings.ReplaceAll(q.URL.Query().Get("to"), "OWN", q.Host))
			w.WriteHeader(http.StatusFound)
		}))
		r := newRig(t, fmt.Sprintf(strings.Replace(passthroughYAML, "%s", "{ name: w0, url: %q }%%s", 1),
			engine+"/engines/a/v1"))
		for to, want := range map[string]string{"/engines/a/raw/y": "/raw/y", "http://OWN/engines/a/raw/y?q": "/raw/y?q",
			"/engines/b/raw/y": "/engines/b/raw/y", "http://OWN/engines/a": "/"} {
			if a := r.do("GET", "/raw/x?to="+to, ""); a.status != http.StatusFound || a.header.Get("Location") != want {
				t.Errorf("%q: %d to %q, want %q", to, a.status, a.header.Get("Location"), want)
			}
		}
	})
}

// TestPassthroughKeepsHTTPSemantics: HEAD, ranges, conditions and encodings work between client and
// worker.
func TestPassthroughKeepsHTTPSemantics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, engine := range []string{"auto", "vllm"} {
			modified := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			r := newPassthroughRig(t, strings.Replace(passthroughYAML, "name: other,", "name: other, engine: "+engine+",", 1),
				func(w http.ResponseWriter, q *http.Request) {
					w.Header().Set("Etag", `"v1"`)
					switch q.URL.Path {
					case "/raw/zipped":
						w.Header().Set("Content-Encoding", "zstd")
					case "/raw/empty":
						w.Header().Set("Content-Encoding", "gzip")
						return
					case "/raw/chunked":
						http.NewResponseController(w).Flush() // a test's own worker
					}
					http.ServeContent(w, q, "file.bin", modified, strings.NewReader("0123456789"))
				})
			for _, c := range []struct {
				method, path string
				headers      []string
				status       int
				body         string
				want         map[string]string
			}{
				{"GET", "/raw/file", nil, 200, "0123456789", map[string]string{"Content-Length": "10", "Accept-Ranges": "bytes",
					"Etag": `"v1"`, "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}},
				{"HEAD", "/raw/file", nil, 200, "", map[string]string{"Content-Length": "10", "Etag": `"v1"`}},
				{"HEAD", "/raw/chunked", nil, 200, "", map[string]string{"Content-Length": ""}},
				{"GET", "/raw/file", []string{"Range", "bytes=2-4"}, 206, "234",
					map[string]string{"Content-Range": "bytes 2-4/10", "Content-Length": "3"}},
				{"HEAD", "/raw/file", []string{"Range", "bytes=2-4"}, 206, "",
					map[string]string{"Content-Range": "bytes 2-4/10", "Content-Length": "3"}},
				{"GET", "/raw/file", []string{"Range", "bytes=20-"}, 416, "invalid range: failed to overlap\n",
					map[string]string{"Content-Range": "bytes */10"}},
				{"GET", "/raw/file", []string{"If-None-Match", `"v1"`}, 304, "",
					map[string]string{"Etag": `"v1"`, "Content-Length": ""}},
				{"HEAD", "/raw/file", []string{"If-None-Match", `"v1"`}, 304, "", map[string]string{"Content-Length": ""}},
				{"GET", "/raw/file", []string{"If-Match", `"v2"`}, 412, "", nil},
				{"GET", "/raw/file", []string{"If-Modified-Since", "Fri, 02 Jan 2026 03:04:05 GMT"}, 304, "", nil},
				{"GET", "/raw/zipped", nil, 200, "0123456789", map[string]string{"Content-Encoding": "zstd"}},
				{"GET", "/raw/zipped", []string{"Range", "bytes=2-4"}, 206, "234", map[string]string{"Content-Encoding": "zstd"}},
				{"HEAD", "/raw/empty", nil, 200, "", map[string]string{"Content-Encoding": "gzip"}},
			} {
				a := r.do(c.method, c.path, "", append([]string{"Accept-Encoding", "identity"}, c.headers...)...)
				if a.status != c.status || a.body != c.body || a.err != nil {
					t.Errorf("%s, %s %s %q: %d %q, %v", engine, c.method, c.path, c.headers, a.status, a.body, a.err)
				}
				for name, want := range c.want {
					if got := a.header.Get(name); got != want {
						t.Errorf("%s, %s %s %q: %s is %q, want %q", engine, c.method, c.path, c.headers, name, got, want)
					}
				}
			}
			r.checkNoWorkerBlamed()
		}
	})
}

// TestAmbiguousPathsAreRejected: a path that two parsers could normalize differently is not forwarded.
// Any other path is forwarded unchanged with its query. A slash at the end is part of a pass-through path and does not
// bypass a route.
func TestAmbiguousPathsAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := ""
		r := newPassthroughRig(t, passthroughYAML, func(w http.ResponseWriter, q *http.Request) { seen = q.RequestURI })
		for path, passes := range map[string]bool{
			"/raw/a%2Fb?x=1&y=%20": true, "/exactly": false, "/raw/..%2fx": false,
			"/raw/": true, "/raw/a/": true, "/raw/a": true, "/raw/a%20b/": true, "/v1/files/": true,
			"/v1/files/f-1/content/": true,
			"/raw":                   false, "/exact": true, "/exact/": false,
			"/raw//": false, "/raw/a//": false, "//raw/a/": false, "/raw/./a/": false, "/raw/../raw/a/": false,
			"/raw/%2e%2e/x/": false,
			"/raw/a/%2e":     false, "/raw/a/..": false, "/raw/a%2F%2Fb": false, "/raw/a%2F..%2Fb/": false,
			"/v1/chat/completions/": false, "/v1/messages/": false, "/v1/messages/count_tokens/": false, "/v1/responses/": false,
			"/v1/responses/resp_1/": false, "/v1/responses/resp_1/cancel/": false, "/batch/v1/chat/completions/": false,
			"/tokenize/": false,
		} {
			for _, method := range []string{"POST", "GET", "PATCH"} {
				seen = ""
				a := r.do(method, path, "any \x00 body", "Content-Type", "application/x-any")
				switch {
				case passes && (a.status != http.StatusOK || seen != path):
					t.Errorf("%s %s: %d, the worker saw %q", method, path, a.status, seen)
				case !passes && (a.status != http.StatusNotFound || seen != ""):
					t.Errorf("%s %s: %d %s, the worker saw %q", method, path, a.status, a.body, seen)
				}
			}
		}
	})
}
