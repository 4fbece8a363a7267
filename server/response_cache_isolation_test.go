package server

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/fixedseed"
)

// ownerEngine answers with the owner of the request, its model, path and text.
type ownerEngine struct {
	owner string // of the current request; requests come one after the other
	n     int
}

func (e *ownerEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var req struct {
		Model, Prompt string
		Stream        bool
		Input         string
		Messages      []struct{ Content string }
	}
	_ = json.Unmarshal(body, &req)
	text := req.Prompt + req.Input
	for _, m := range req.Messages {
		text += m.Content
	}
	e.n++
	mark := fmt.Sprintf("<%s %s %s %s>", e.owner, req.Model, r.URL.Path, text)
	w.Header().Set("Content-Type", "application/json")
	answer := numberedAnswers[r.URL.Path]
	if req.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		answer = strings.ReplaceAll(numberedStreams[r.URL.Path], "FINISH", "")
	}
	io.WriteString(w, strings.ReplaceAll(answer, "TEXT", mark))
}

// TestNoAnswerCrossesPartitions: 50 tenants send equal texts in all dialects to two tiers with three models, whole
// and as streams, and some are purged. Every answer is one to the own tenant, model, endpoint and text.
func TestNoAnswerCrossesPartitions(t *testing.T) {
	const tenants = 50
	n := fixedseed.Samples(3_000, 1_000_000)
	synctest.Test(t, func(t *testing.T) {
		e := &ownerEngine{}
		var keys strings.Builder
		for i := range tenants {
			fmt.Fprintf(&keys, "    - { name: t%d, sha256: %s, response_cache: true }\n", i, digestHex(fmt.Sprint("key-", i)))
		}
		r := newRig(t, "response_cache: { max_bytes: 2MiB }\nlog: { access: false }\nauth:\n  keys:\n"+keys.String()+`
health: { path: "off" }
tiers:
  - name: small
    model: m1
    models: [m2]
    response_cache: { exact: { ttl: 1h } }
    workers: [ %s ]
  - name: large
    model: l1
    response_cache: { exact: { ttl: 1h } }
    workers: [ { name: l0, url: `+startServer(t, e)+` } ]
`, e)
		random := rand.New(rand.NewPCG(fixedseed.Uint64()(), 1))
		paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}
		hits := 0
		for range n {
			i, path := random.IntN(tenants), paths[random.IntN(len(paths))]
			model := []string{"m1", "m2", "l1"}[random.IntN(3)]
			text := []string{"t1", "t1 m1"}[random.IntN(2)] // as in the mark of other requests
			body := strings.Replace(strings.Replace(cacheBodies[path], "small", model, 1), `"hi"`, `"`+text+`"`, 1)
			stream := random.IntN(2) == 1
			if stream {
				body += `,"stream":true`
			}
			if random.IntN(1000) == 0 {
				_, _ = r.proxy.PurgeCache(t.Context(), fmt.Sprintf("t%d", random.IntN(tenants)))
			}
			e.owner = fmt.Sprintf("t%d", i)
			got := r.post(path, body+"}", "Authorization", fmt.Sprint("Bearer key-", i))
			if strings.Contains(got.header.Get("Cache-Status"), "; hit") {
				hits++
			}
			want := fmt.Sprintf("<%s %s %s %s>", e.owner, model, path, text)
			if read := readContent(t, path, got.body, stream); got.status != http.StatusOK || read.text != want {
				t.Fatalf("%d %q, want %q", got.status, read.text, want)
			}
		}
		if hits+e.n != n || hits < n/4 {
			t.Errorf("%d hits and %d requests at the engines of %d", hits, e.n, n)
		}
		t.Logf("%d hits of %d requests", hits, n)
	})
}

// TestEqualVectorsCrossNoPartition: all texts have one vector, so that only the partition separates their answers. vLLM
// Router's fork has only the text in its keys.
func TestEqualVectorsCrossNoPartition(t *testing.T) {
	const tenants = 50
	n := fixedseed.Samples(1_000, 100_000)
	synctest.Test(t, func(t *testing.T) {
		e := &ownerEngine{}
		vector := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"object":"list","model":"v","data":[{"object":"embedding","index":0,"embedding":[1,2,2]}],`+
				`"usage":{"prompt_tokens":1,"total_tokens":1}}`)
		})
		var keys strings.Builder
		for i := range tenants {
			fmt.Fprintf(&keys, "    - { name: t%d, sha256: %s, response_cache: true }\n", i, digestHex(fmt.Sprint("key-", i)))
		}
		r := newRig(t, "log: { access: false }\nauth:\n  keys:\n"+keys.String()+`
health: { path: "off" }
tiers:
  - name: small
    model: m1
    models: [m2]
    response_cache: { semantic: { embeddings: v } }
    workers: [ %s ]
pools: [ { name: vectors, model: v, serves: [embeddings], workers: [ { name: v0, url: `+startServer(t, vector)+` } ] } ]
`, e)
		random := rand.New(rand.NewPCG(fixedseed.Uint64()(), 2))
		hits := 0
		for range n {
			i, model := random.IntN(tenants), []string{"m1", "m2"}[random.IntN(2)]
			path := []string{"/v1/chat/completions", "/v1/messages"}[random.IntN(2)]
			text := fmt.Sprintf("the question of t%d about %s", random.IntN(tenants), []string{"x", "y"}[random.IntN(2)])
			body := strings.Replace(strings.Replace(cacheBodies[path], "small", model, 1), `"hi"`, `"`+text+`"`, 1)
			e.owner = fmt.Sprintf("t%d", i)
			got := r.post(path, body+"}", "Authorization", fmt.Sprint("Bearer key-", i))
			if strings.Contains(got.header.Get("Cache-Status"), "detail=semantic") {
				hits++
			}
			want := fmt.Sprintf("<%s %s %s ", e.owner, model, path)
			read := readContent(t, path, got.body, false)
			if got.status != http.StatusOK || !strings.HasPrefix(read.text, want) {
				t.Fatalf("%d %q, want %q", got.status, read.text, want)
			}
		}
		if hits+e.n != n || hits < n/50 {
			t.Errorf("%d hits and %d requests at the engine of %d", hits, e.n, n)
		}
	})
}
