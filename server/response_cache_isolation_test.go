package server

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/fixedseed"
	"tierway/memnet/memredis"
)

// ownerEngine answers with the header X-Owner of the request, and the model, path and text.
type ownerEngine struct {
	requests atomic.Int64
	inflight atomic.Int64
	most     atomic.Int64 // requests at a time
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
	e.requests.Add(1)
	if n := e.inflight.Add(1); n > e.most.Load() {
		e.most.Store(n)
	}
	defer e.inflight.Add(-1)
	time.Sleep(time.Millisecond)
	mark := fmt.Sprintf("<%s %s %s %s>", r.Header.Get("X-Owner"), req.Model, r.URL.Path, text)
	w.Header().Set("Content-Type", "application/json")
	answer := numberedAnswers[r.URL.Path]
	if req.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		answer = strings.ReplaceAll(numberedStreams[r.URL.Path], "FINISH", "")
	}
	io.WriteString(w, strings.ReplaceAll(answer, "TEXT", mark))
}

// isolatedTenants is the number of tenants of the isolation tests. Two groups have ten of them each.
const isolatedTenants = 50

// isolationYAML returns the tenants' keys and groups in two lists. The groups have names of tenants, which are in none
// or in the other group. shift moves the groups' first tenants.
func isolationYAML(shift int) (keys, groups string) {
	lists := [2][]string{}
	for i := range isolatedTenants {
		keys += fmt.Sprintf("    - { name: t%d, sha256: %s, response_cache: true }\n", i, digestHex(fmt.Sprint("key-", i)))
		if g := isolationGroup(i, shift); g >= 0 {
			lists[g] = append(lists[g], fmt.Sprint("t", i))
		}
	}
	return keys, fmt.Sprintf("[ { name: t40, tenants: [%s] }, { name: t6, tenants: [%s] } ]", strings.Join(lists[0], ", "),
		strings.Join(lists[1], ", "))
}

// isolationGroup returns the group of a tenant, 0 or 1; -1 if it is in none.
func isolationGroup(tenant, shift int) int {
	if g := tenant - shift; g >= 0 && g < 20 {
		return g / 10
	}
	return -1
}

// mayGet reports whether a tenant may get an answer that was generated for another one, or for itself.
func mayGet(tenant, owner, shift int) bool {
	g := isolationGroup(tenant, shift)
	return tenant == owner || g >= 0 && g == isolationGroup(owner, shift)
}

// readMark returns the tenant for which an ownerEngine answered, and the rest of its mark.
func readMark(text string) (owner int, rest string) {
	if _, err := fmt.Sscanf(text, "<t%d ", &owner); err != nil {
		return -1, text
	}
	_, rest, _ = strings.Cut(text, " ")
	return owner, rest
}

// isolationClients is the number of clients of the isolation test, so that requests of several tenants overlap.
const isolationClients = 8

// TestNoAnswerCrossesPartitions: 50 tenants send equal texts to three models in two tiers. The requests have all
// dialects, whole and as streams, and tenants are purged meanwhile. Two groups of tenants share answers. Their lists
// change after half of the requests. Each answer was generated for the tenant or a member of its group, and for the
// same model, endpoint and text.
func TestNoAnswerCrossesPartitions(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			checkIsolation(t, newIsolationRig(t, "", "max_bytes: 512KiB"), fixedseed.Samples(2_000, 1_000_000))
		})
	})
	t.Run("redis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := fmt.Sprintf("store: { sql: \"\", redis: %q }\n", memredis.Start(t, networkOf(t).Network).URL)
			r := newIsolationRig(t, store, "store: redis")
			runStores(t, r.rig)
			checkIsolation(t, r, fixedseed.Samples(1_600, 200_000))
		})
	})
}

// isolationRig is a gateway with the tenants and groups of isolationYAML.
type isolationRig struct {
	*rig
	engine *ownerEngine
	groups string
	purges atomic.Int64
}

func newIsolationRig(t *testing.T, store, cache string) *isolationRig {
	e := &ownerEngine{}
	keys, groups := isolationYAML(0)
	r := newRig(t, store+"response_cache: { "+cache+", shared: "+groups+" }\nauth:\n  keys:\n"+keys+`
log: { access: false }
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
	return &isolationRig{rig: r, engine: e, groups: groups}
}

// checkIsolation sends at most n requests, half of them with each list of groups.
func checkIsolation(t *testing.T, r *isolationRig, n int) {
	var hits, foreign atomic.Int64
	each := n / 2 / isolationClients
	sendHalf := func(shift int) {
		randoms := make([]*rand.Rand, isolationClients)
		for client := range randoms {
			randoms[client] = rand.New(rand.NewPCG(fixedseed.Uint64()(), uint64(2*client+shift)))
		}
		eachClient(isolationClients, each, func(client, _ int) {
			if t.Failed() {
				return
			}
			hit, isForeign := r.sendIsolationRequest(randoms[client], shift)
			if hit {
				hits.Add(1)
			}
			if isForeign {
				foreign.Add(1)
			}
		})
	}
	sendHalf(0)
	const shift = 5
	_, others := isolationYAML(shift)
	r.source = func() (*config.File, error) {
		return config.Parse("test.yaml", []byte(strings.Replace(r.text, r.groups, others, 1)), nil)
	}
	r.reload()
	sendHalf(shift)
	sent, forwarded, purges := 2*each*isolationClients, int(r.engine.requests.Load()), int(r.purges.Load())
	if h, f := int(hits.Load()), int(foreign.Load()); h+forwarded != sent || h < sent/4 || f < sent/10 ||
		purges < sent/200 || r.engine.most.Load() < 2 {
		t.Errorf("%d hits, %d of them of other tenants, %d purges, %d requests at the engines, at most %d at a time, of %d",
			h, f, purges, forwarded, r.engine.most.Load(), sent)
	} else {
		t.Logf("%d hits, %d of them of other tenants, %d purges, of %d requests", h, f, purges, sent)
	}
}

// sendIsolationRequest sends a random request of a tenant, and purges a random tenant before one of 100 requests.
// hit: a kept answer was sent. foreign: the answer was generated for another tenant.
func (r *isolationRig) sendIsolationRequest(random *rand.Rand, shift int) (hit, foreign bool) {
	paths := []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}
	i, path := random.IntN(isolatedTenants), paths[random.IntN(len(paths))]
	model := []string{"m1", "m2", "l1"}[random.IntN(3)]
	text := []string{"t1", "t1 m1"}[random.IntN(2)] // as in the mark of other requests
	body := strings.Replace(strings.Replace(cacheBodies[path], "small", model, 1), `"hi"`, `"`+text+`"`, 1)
	stream := random.IntN(2) == 1
	if stream {
		body += `,"stream":true`
	}
	if random.IntN(100) == 0 {
		r.purges.Add(1)
		if _, err := r.proxy.PurgeCache(r.t.Context(), fmt.Sprintf("t%d", random.IntN(isolatedTenants))); err != nil {
			r.t.Error(err)
		}
	}
	got := r.post(path, body+"}", "Authorization", fmt.Sprint("Bearer key-", i), "X-Owner", fmt.Sprint("t", i))
	want := fmt.Sprintf("%s %s %s>", model, path, text)
	owner, rest := readMark(readContent(r.t, path, got.body, stream).text)
	if got.status != http.StatusOK || !mayGet(i, owner, shift) || rest != want {
		r.t.Errorf("%d: t%d gets an answer to t%d, %q, want %q", got.status, i, owner, rest, want)
	}
	return strings.Contains(got.header.Get("Cache-Status"), "; hit"), owner != i
}

// TestEqualVectorsCrossNoPartition: all texts have one vector, so that only the partition separates their answers. Two
// groups share them. vLLM Router's fork has only the text in its keys.
func TestEqualVectorsCrossNoPartition(t *testing.T) {
	n := fixedseed.Samples(1_000, 100_000)
	synctest.Test(t, func(t *testing.T) {
		e := &ownerEngine{}
		vector := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"object":"list","model":"v","data":[{"object":"embedding","index":0,"embedding":[1,2,2]}],`+
				`"usage":{"prompt_tokens":1,"total_tokens":1}}`)
		})
		keys, groups := isolationYAML(0)
		r := newRig(t, "response_cache: { shared: "+groups+" }\nlog: { access: false }\nauth:\n  keys:\n"+keys+`
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
		hits, foreign := 0, 0
		for range n {
			i, model := random.IntN(isolatedTenants), []string{"m1", "m2"}[random.IntN(2)]
			path := []string{"/v1/chat/completions", "/v1/messages"}[random.IntN(2)]
			text := fmt.Sprintf("the question of t%d about %s", random.IntN(isolatedTenants), []string{"x", "y"}[random.IntN(2)])
			body := strings.Replace(strings.Replace(cacheBodies[path], "small", model, 1), `"hi"`, `"`+text+`"`, 1)
			got := r.post(path, body+"}", "Authorization", fmt.Sprint("Bearer key-", i), "X-Owner", fmt.Sprint("t", i))
			if strings.Contains(got.header.Get("Cache-Status"), "detail=semantic") {
				hits++
			}
			owner, rest := readMark(readContent(t, path, got.body, false).text)
			if got.status != http.StatusOK || !mayGet(i, owner, 0) || !strings.HasPrefix(rest, model+" "+path+" ") {
				t.Fatalf("%d: t%d gets an answer to t%d, %q, want %s %s", got.status, i, owner, rest, model, path)
			}
			if owner != i {
				foreign++
			}
		}
		if at := int(e.requests.Load()); hits+at != n || hits < n/50 || foreign < n/50 {
			t.Errorf("%d hits, %d of them of other tenants, and %d requests at the engine of %d", hits, foreign, at, n)
		}
	})
}
