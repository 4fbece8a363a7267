package watch

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines"
)

// canary is a rig with planted words in all places that may hold secrets or user text.
type canary struct {
	*watchRig
	*plants
	collector *collector
	env       []string
	key       string // of the tenant
	bad       string // an unknown key
	cookie    string
	spoken    string // a word in the engines' answers
}

// echoing in a prompt makes the engine fail with an error that repeats the whole request.
const echoing = "say it again"

// newCanary starts two engines that answer with a planted word or, for echoing, with an error.
func newCanary(t *testing.T) *canary {
	t.Helper()
	p := newPlants()
	c := &canary{plants: p, collector: newCollector(t), key: p.secret("tenant's key"), bad: p.secret("wrong key"),
		cookie: p.secret("cookie"), spoken: p.text("answer")}
	c.watchRig = newRig(t, 2,
		engines.Config{CacheTokens: 1 << 16, AnyModel: true, Script: func(string, []byte) engines.Script {
			return engines.Script{Text: "Thus spoke " + c.spoken + " and was silent."}
		}}, echo)
	c.env = []string{"WORKER_KEY=" + c.secret("worker's key"), "GATE=Bearer " + c.secret("worker's header"),
		"OTEL_BSP_SCHEDULE_DELAY=20",
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=" + c.secret("collector's key")}
	return c
}

// echo answers requests with echoing in their prompt with an error that repeats the request.
func echo(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the gateway has closed the connection
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte(echoing)) {
			inner.ServeHTTP(w, r)
			return
		}
		again := fmt.Sprintf(`{"error":{"message":%s,"type":%s,"code":%s}}`, rig.Quoted(string(body)),
			rig.Quoted(string(body)), rig.Quoted(string(body)))
		switch {
		case bytes.Contains(body, []byte("in a stream")):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"so \"}}]}\n\ndata: %s\n\n", again)
		case bytes.Contains(body, []byte("in a header")):
			w.Header().Set("Location", "http://127.0.0.1:1/"+string(bytes.ReplaceAll(body, []byte("\n"), nil)))
			w.Header().Set("Server", string(bytes.ReplaceAll(body, []byte("\n"), nil)))
			w.WriteHeader(http.StatusFound)
		case bytes.Contains(body, []byte("as no JSON")):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, "{%s", body)
		case bytes.Contains(body, []byte("with its headers")):
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"bad gate %s or %s"}}`, strings.TrimPrefix(r.Header.Get("X-Gate"), "Bearer "),
				r.Header.Get("X-Plain"))
		case bytes.Contains(body, []byte("with its key")):
			status := http.StatusUnauthorized
			if bytes.Contains(body, []byte("as a refusal")) {
				status = http.StatusBadRequest
			}
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"message":"Incorrect API key provided: %s","code":"invalid_api_key"}}`,
				r.Header.Get("Authorization"))
		case bytes.Contains(body, []byte("as a refusal")):
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, again) // the gateway may have gone
		default:
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, again) // the gateway may have gone
		}
	})
}

// start starts the gateway with planted secrets in its configuration.
func (c *canary) start() {
	adminDigest := rig.Digest(c.plant(rig.AdminKey, "admin's key"))
	c.Serve(rig.Settings{
		"admin": `{ keys: [ { name: tests, sha256: ` + adminDigest + ` } ] }`,
		"auth": "{ keys: [ { name: acme, sha256: " + rig.Digest(c.key) + " }, { name: slow, sha256: " +
			rig.Digest(c.secret("another tenant's key")) + " } ] }",
		"store": fmt.Sprintf("{ sql: \"sqlite://tierway.db\", redis: %q }",
			"redis://someone:"+c.secret("password of Redis")+"@127.0.0.1:1"),
		"tiers":     c.Tiers(`api_key_env: WORKER_KEY, headers: { X-Gate: "${GATE}", X-Plain: `+c.secret("header in the file")+" }", ""),
		"models":    `{ auto: classify, "any-*": small }`,
		"telemetry": "{ otlp: " + c.collector.URL + ", sample: 1 }",
		"decisions": "{ file: decisions.jsonl }",
		"log":       "{ level: debug }",
		"retry":     "{ attempts: 2, budget: 1 }",
		"breaker":   "{ consecutive_failures: 1000, failure_ratio: 1, min_requests: 1000000 }",
	}, c.env...)
	c.WaitUntilReady()
}

// credentials returns headers with planted words.
func (c *canary) credentials(more ...string) []string {
	return append([]string{"Authorization", "Bearer " + c.key, "Cookie", "session=" + c.cookie, "Baggage",
		"who=" + c.secret("baggage"),
		"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Proxy-Authorization",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+c.secret("proxy's password"))),
		"X-Session-Id", c.text("session id"), "User-Agent", c.text("user agent"), "Referer", "http://x/" + c.text("referer"),
		"X-Secret", c.text("header of the client's own")}, more...)
}
