package server

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"tierway/fixedseed"
)

// semanticRig is a tier with a semantic cache and a pool that embeds. The first %s is the section.
const semanticRig = `
auth: { required: false }
health: { path: "off" }
tiers:
  - name: small
    model: fake-7b
    response_cache: %s
    workers: [ %%s ]
pools:
  - name: embedder
    model: embed-1
    serves: [embeddings]
    price: { input: 1000, output: 0 }
    workers: [ { name: e0, url: %s } ]
`

// wordEngine embeds a text as its words: each adds a fixed direction. Function words add little.
type wordEngine struct {
	n      atomic.Int64
	open   atomic.Int64 // requests without an answer yet
	hangs  atomic.Bool
	status atomic.Int64 // 0 is 200
	dims   atomic.Int64 // 0 is 384
}

func (e *wordEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.n.Add(1)
	e.open.Add(1)
	defer e.open.Add(-1)
	body, _ := io.ReadAll(r.Body)
	if e.hangs.Load() {
		<-r.Context().Done()
		return
	}
	if s := e.status.Load(); s != 0 {
		w.WriteHeader(int(s))
		return
	}
	var req struct{ Input string }
	_ = json.Unmarshal(body, &req)
	v := make([]float64, max(384, e.dims.Load()))
	for word := range strings.FieldsSeq(strings.ToLower(req.Input)) {
		word = strings.Trim(word, ".,?!\"“”'`")
		h := fnv.New64a()
		io.WriteString(h, word)
		weight := 1.0
		if len(word) < 4 {
			weight = 0.3
		}
		random := rand.New(rand.NewPCG(h.Sum64(), 1))
		for range 8 {
			v[random.IntN(len(v))] += weight * random.NormFloat64()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "model": "embed-1",
		"usage": map[string]int{"prompt_tokens": 7, "total_tokens": 7},
		"data":  []any{map[string]any{"object": "embedding", "index": 0, "embedding": v}}})
}

// newSemanticRig serves a semantic cache.
func newSemanticRig(t *testing.T, section string, more ...string) (*rig, *numberingEngine, *wordEngine) {
	t.Helper()
	e, words := &numberingEngine{}, &wordEngine{}
	return newRig(t, strings.Join(more, "")+fmt.Sprintf(semanticRig, section, startServer(t, words)), e), e, words
}

// chatWith returns a chat that the cache may answer, with a system prompt.
func chatWith(system, text string) string {
	b, _ := json.Marshal(map[string]any{"model": "small", "temperature": 0,
		"messages": []any{map[string]string{"role": "system", "content": system}, map[string]string{"role": "user", "content": text}}})
	return string(b)
}

const semanticHit = "semantic_hit"

// TestSimilarTextsGetOneAnswer: a text that means the same gets the kept answer, in the same context only.
func TestSimilarTextsGetOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, words := newSemanticRig(t, "{ exact: {}, semantic: { embeddings: embed-1, threshold: 0.9 } }")
		const path, text = "/v1/chat/completions", "Please explain gravity on planets to curious children."
		for i, c := range []struct {
			body, want, status string
			engine, embeddings int64
		}{
			{chatWith("s", text), cacheMiss, "tierway; fwd=miss", 1, 1},
			{chatWith("s", text), exactHit, "tierway; hit; detail=exact", 1, 1},
			{chatWith("s", "please explain gravity on planets to curious children"), semanticHit,
				"tierway; hit; detail=semantic", 1, 2},
			{chatWith("other", text), cacheMiss, "tierway; fwd=miss", 2, 3},
			{chatWith("s", "Please explain poetry of monks to curious children."), cacheMiss, "tierway; fwd=miss", 3, 4},
			{chatWith("s", "Explain gravity"), cacheMiss, "tierway; fwd=miss", 4, 4}, // too short
			{strings.Replace(chatWith("s", text), `"temperature":0`, `"temperature":1`, 1), bypassed,
				"tierway; fwd=bypass; detail=temperature", 5, 4},
			{strings.Replace(chatWith("s", text+"!"), `"model"`, `"max_tokens":50,"model"`, 1), cacheMiss, "tierway; fwd=miss", 6, 5},
			{strings.Replace(chatWith("s", text), `"model"`, `"tools":[{"type":"function","function":{"name":"f"}}],"model"`, 1),
				bypassed, "tierway; fwd=bypass; detail=tools", 7, 5},
		} {
			got, result := r.cached(path, c.body)
			d := r.lastDecision()
			if got.status != 200 || result != c.want || int64(e.count()) != c.engine || words.n.Load() != c.embeddings ||
				got.header.Get("Cache-Status") != c.status {
				t.Errorf("%d: %d %s %s after %d and %d requests, want %s", i, got.status, result, got.header.Get("Cache-Status"),
					e.count(), words.n.Load(), c.want)
			}
			if hit := c.want == semanticHit; hit && (d.Cache.Similarity < 0.9 ||
				got.header.Get("X-Tierway-Cache-Similarity") != fmt.Sprintf("%.4f", d.Cache.Similarity) ||
				got.header.Get("X-Tierway-Cache-Status") != "semantic-hit" || d.Usage.Cached != 9) {
				t.Errorf("%d: %+v %v", i, d.Cache, got.header)
			}
		}
		time.Sleep(5 * time.Minute)
		if _, result := r.cached(path, chatWith("s", text+"?")); result != cacheMiss {
			t.Error(result)
		}
		for _, want := range []string{`tierway_response_cache_similarity_ratio_count{result="hit"} 1`,
			`tierway_response_cache_embeddings_total{result="ok"} 6`} {
			if !strings.Contains(r.scrape(), want+"\n") {
				t.Error(want)
			}
		}
	})
}

// TestSimilaritiesOfMissesAreShown: a text that is not similar enough is a miss, whose similarity the client, the
// record and the metrics have. Without them, no threshold could be lowered. vLLM Router's fork has those of hits only.
func TestSimilaritiesOfMissesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, _ := newSemanticRig(t, "{ semantic: { embeddings: embed-1 } }")
		const path, text = "/v1/chat/completions", "Tell curious students every important reason behind tides, storms, " +
			"rainbows, earthquakes, glaciers, deserts, rivers, islands"
		r.cached(path, chatWith("s", text+", forests"))
		got, result := r.cached(path, chatWith("s", text+", volcanoes"))
		s := r.lastDecision().Cache.Similarity
		if result != cacheMiss || e.count() != 2 || s < 0.9 || s >= 0.97 ||
			got.header.Get("X-Tierway-Cache-Similarity") != fmt.Sprintf("%.4f", s) {
			t.Errorf("%s with %v, %v, %d requests at the engine", result, s, got.header, e.count())
		}
		if !strings.Contains(r.scrape(), `tierway_response_cache_similarity_ratio_count{result="miss"} 1`+"\n") {
			t.Error("the metrics have no similarity of a miss")
		}
	})
}

// TestEmbeddingsAreRequestsOfTheGateway: an embedding is recorded and charged as the gateway's own, and the tenant
// pays for the answer only.
func TestEmbeddingsAreRequestsOfTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := newSemanticRig(t, "{ semantic: { embeddings: embed-1 } }")
		r.cached("/v1/chat/completions", chatWith("s", "What is the tallest mountain of Europe?"))
		d := r.recorded().Last(2)
		own, asked := d[1], d[0]
		if own.Tenant != "_gateway" {
			own, asked = asked, own
		}
		if own.Tenant != "_gateway" || own.Tier != "embedder" || own.Class != "interactive" || own.Usage.Prompt != 7 ||
			asked.Tenant != "anonymous" || asked.Usage.Prompt != 9 {
			t.Errorf("%+v\n%+v", own, asked)
		}
	})
}

// TestOtherEmbeddingsFindNothing: vectors of another dimension are not compared.
func TestOtherEmbeddingsFindNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, words := newSemanticRig(t, "{ semantic: { embeddings: embed-1 } }")
		body := chatWith("s", "What is the tallest mountain of Europe?")
		for i, dims := range []int64{0, 0, 512, 512, 0} {
			words.dims.Store(dims)
			want := []string{cacheMiss, semanticHit}[i%2]
			if _, result := r.cached("/v1/chat/completions", body); result != want {
				t.Errorf("%d: %s, want %s", i, result, want)
			}
		}
		if e.count() != 3 {
			t.Error(e.count())
		}
	})
}

// TestShadowSendsNoKeptAnswer: shadow mode records what would have been sent, and whether it equals the new answer.
func TestShadowSendsNoKeptAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, _ := newSemanticRig(t, "{ semantic: { embeddings: embed-1, shadow: true } }")
		const path, text = "/v1/chat/completions", "What is the tallest mountain of Europe"
		for i, want := range []string{"", "different", "different"} {
			_, result := r.cached(path, chatWith("s", text+strings.Repeat("?", i)))
			if d := r.lastDecision().Cache; result != cacheMiss || d.Shadow != want || (d.Similarity > 0.99) != (want != "") {
				t.Errorf("%d: %+v", i, d)
			}
		}
		if m := r.scrape(); e.count() != 3 ||
			!strings.Contains(m, `tierway_response_cache_similarity_ratio_count{result="shadow_different"} 2`+"\n") {
			t.Errorf("%d requests at the engine", e.count())
		}
	})
}

// TestC6FailingEmbeddingsAreMisses: while the embeddings are slow, fail, or their queue is full, requests miss within
// 110 ms, and none fails. vLLM Router's fork waits 500 ms.
func TestC6FailingEmbeddingsAreMisses(t *testing.T) {
	for name, set := range map[string]func(*wordEngine){
		"slow": func(e *wordEngine) { e.hangs.Store(true) },
		"503":  func(e *wordEngine) { e.status.Store(503) },
		"400":  func(e *wordEngine) { e.status.Store(400) },
		"500":  func(e *wordEngine) { e.status.Store(500) },
		"404":  func(e *wordEngine) { e.status.Store(404) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, e, words := newSemanticRig(t, "{ semantic: { embeddings: embed-1 } }")
				set(words)
				done := make(chan time.Duration, 50)
				for i := range cap(done) { // more than the queue of the pool serves at once
					go func() {
						start := time.Now()
						text := fmt.Sprintf("What is the tallest mountain of country %c?", 'A'+i)
						got := r.post("/v1/chat/completions", chatWith("s", text))
						if got.status != 200 {
							t.Errorf("%d %s", got.status, got.body)
						}
						done <- time.Since(start)
					}()
				}
				for range cap(done) {
					if took := <-done; took > 110*time.Millisecond {
						t.Errorf("a miss takes %v", took)
					}
				}
				if want := `tierway_response_cache_embeddings_total{result="failed"} 50`; !strings.Contains(r.scrape(), want+"\n") ||
					e.count() != 50 {
					t.Errorf("no %s", want)
				}
			})
		})
	}
}

// question returns the chat of a client and request of a closed loop, without numbers.
func question(client, request int) string {
	return chatWith("s", fmt.Sprintf("What is the tallest mountain of country %c%c?", 'a'+client%26, 'a'+request%26))
}

// TestC6HangingEmbeddingsUnderLoad: while the embeddings hang, each request of a closed loop misses within 110 ms, none
// fails, and no embedding is left. Answers are found again afterwards.
func TestC6HangingEmbeddingsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, e, words := newSemanticRig(t, "{ semantic: { embeddings: embed-1 } }")
		words.hangs.Store(true)
		took := slowestInLoop(t, 30, 8, func(client, request int) httpAnswer {
			return r.post("/v1/chat/completions", question(client, request))
		})
		if took > 110*time.Millisecond || e.count() != 30*8 {
			t.Errorf("a request takes %v; %d at the engine", took, e.count())
		}
		synctest.Wait()
		if n, waiting := r.Inflight(), words.open.Load(); n != 0 || waiting != 0 {
			t.Errorf("%d requests and %d embeddings in flight", n, waiting)
		}
		words.hangs.Store(false)
		time.Sleep(time.Minute)
		for _, want := range []string{cacheMiss, semanticHit} {
			if _, result := r.cached("/v1/chat/completions", question(0, 0)); result != want {
				t.Errorf("%s afterwards, want %s", result, want)
			}
		}
	})
}

// TestC6FullQueueOfEmbeddingsIsAMiss: while the queue of the embeddings' pool is full, a request misses at once.
func TestC6FullQueueOfEmbeddingsIsAMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, words := &numberingEngine{}, &wordEngine{}
		text := fmt.Sprintf(semanticRig, "{ semantic: { embeddings: embed-1 } }", startServer(t, words)+", max_inflight: 1")
		text = strings.Replace(text, "    serves:", "    queue: { max_depth: 2 }\n    serves:", 1)
		r := newRig(t, text, e)
		words.hangs.Store(true)
		const path = "/v1/chat/completions"
		var waiting sync.WaitGroup
		for i := range 3 { // one at the engine, two in the queue
			waiting.Go(func() {
				if got := r.post(path, question(0, i)); got.status != http.StatusOK {
					t.Errorf("%d %s", got.status, got.body)
				}
			})
		}
		synctest.Wait()
		took := slowestInLoop(t, 10, 5, func(client, request int) httpAnswer {
			return r.post(path, question(1+client, request))
		})
		if took != 0 || e.count() != 50 || words.n.Load() != 1 {
			t.Errorf("a request takes %v; %d at the engine, %d embeddings", took, e.count(), words.n.Load())
		}
		for _, want := range []string{`tierway_response_cache_embeddings_total{result="failed"} 50`,
			`tierway_response_cache_requests_total{result="miss"} 50`,
			`tierway_queue_shed_total{class="interactive",reason="depth",tier="embedder"} 50`} {
			if !strings.Contains(r.scrape(), want+"\n") {
				t.Errorf("no %s", want)
			}
		}
		waiting.Wait()
	})
}

// TestC6AbsentEmbeddingsAreMisses: while nothing listens at the address of the embeddings, requests miss at once.
func TestC6AbsentEmbeddingsAreMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &numberingEngine{}
		r := newRig(t, fmt.Sprintf(semanticRig, "{ semantic: { embeddings: embed-1 } }", "http://127.0.0.1:1"), e)
		took := slowestInLoop(t, 30, 8, func(client, request int) httpAnswer {
			return r.post("/v1/chat/completions", question(client, request))
		})
		if took > 110*time.Millisecond || e.count() != 30*8 {
			t.Errorf("a request takes %v; %d at the engine", took, e.count())
		}
	})
}

// pair is two texts. Kind is empty if they mean the same, else what differs.
type pair struct{ a, b, kind string }

// pairOf returns the pair of a number: a paraphrase, or a near-miss by number, quotation, name or negation.
func pairOf(random *rand.Rand, near bool) pair {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	thing := pick("bridge", "temple", "library", "harbour", "castle", "railway", "museum", "market")
	adjective := pick("oldest", "largest", "smallest", "busiest", "newest", "quietest")
	city, other := pick("Paris", "Lisbon", "Vienna", "Kyoto"), pick("Madrid", "Oslo", "Athens", "Cairo")
	number := 2 + random.IntN(40)
	base := fmt.Sprintf("Describe the %s %s of %s in %d short sentences for visitors who have never been there",
		adjective, thing, city, number)
	signs := []string{`""`, "“”", "„“", "„”", "””", "»«", "‹›", "’’", "『』", "„\""}[number%10]
	open, size := utf8.DecodeRuneInString(signs)
	quoted := fmt.Sprintf("Translate the words %can old %s or two%s from English into the language of %s and use them",
		open, thing, signs[size:], city)
	if !near {
		return pair{base + ".", pick("Please ", "", "Kindly ", "Could you ") + strings.ToLower(base[:1]) + base[1:] +
			pick("?", "!", "", " please.", " now."), ""}
	}
	switch random.IntN(4) {
	case 0:
		was := fmt.Sprint(number)
		now := []string{fmt.Sprint(number + 1), "-" + was, was + "%", was + ".5", "twelve"}[number%5]
		return pair{base, strings.Replace(base, was, now, 1), "number"}
	case 1:
		return pair{quoted, strings.Replace(quoted, thing, pick("tower", "garden", "square"), 1), "quote"}
	case 2:
		return pair{base, strings.Replace(base, city, other, 1), "name"}
	}
	return pair{base, strings.Replace(base, "who have never", "who have often", 1), "negation"}
}

// TestC5NearMissesWithOtherNumbersOrQuotationsAreNoHits prints the rates of hits for paraphrases and near-misses by
// threshold. Pairs with other numbers or quotations are never compared, whatever the threshold is.
func TestC5NearMissesWithOtherNumbersOrQuotationsAreNoHits(t *testing.T) {
	n := fixedseed.Samples(120, 1000)
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := newSemanticRig(t, "{ semantic: { embeddings: embed-1, threshold: 0.9, shadow: true } }")
		random := rand.New(rand.NewPCG(1, 2))
		found, count := map[string][]float64{}, map[string]int{}
		for i := range 2 * n {
			p := pairOf(random, i >= n)
			for j, text := range []string{p.a, p.b} {
				r.post("/v1/chat/completions", chatWith(fmt.Sprint("pair ", i), text))
				if d := r.lastDecision().Cache; d.Similarity > 0 && j == 1 {
					found[p.kind] = append(found[p.kind], d.Similarity)
				}
			}
			count[p.kind]++
		}
		for _, kind := range []string{"number", "quote"} {
			if len(found[kind]) > 0 || count[kind] == 0 {
				t.Errorf("%d of %d pairs with another %s were compared", len(found[kind]), count[kind], kind)
			}
		}
		for threshold := 90; threshold < 100; threshold++ {
			line := fmt.Sprintf("threshold 0.%d:", threshold)
			for _, kind := range []string{"", "number", "quote", "name", "negation"} {
				hits := 0
				for _, s := range found[kind] {
					if s >= float64(threshold)/100 {
						hits++
					}
				}
				name := kind
				if kind == "" {
					name = "paraphrase"
				}
				line += fmt.Sprintf(" %s %.1f %%", name, 100*float64(hits)/float64(max(1, count[kind])))
			}
			t.Log(line)
		}
		if len(found[""]) < n/2 {
			t.Errorf("only %d of %d paraphrases are similar", len(found[""]), n)
		}
	})
}
