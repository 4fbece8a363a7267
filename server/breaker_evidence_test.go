package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
)

// faulty fails requests with one of its words in the body and passes the others to next.
type faulty struct {
	fail  func(w http.ResponseWriter)
	words []string
	next  http.Handler
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	for _, word := range f.words {
		if bytes.Contains(body, []byte(word)) {
			f.fail(w)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.next.ServeHTTP(w, r)
}

// poisoned returns n engines that fail requests with one of the words.
func poisoned(n int, fail func(http.ResponseWriter), words ...string) (hs []http.Handler) {
	for range n {
		hs = append(hs, &faulty{fail, words, fakeEngine()})
	}
	return hs
}

// status answers with a status and no body.
func status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

// cutOff closes the connection without an answer.
func cutOff(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// twoTenantsYAML is held with the tenants of allKey and fewKey.
var twoTenantsYAML = strings.Replace(retryYAML, "auth: { required: false }",
	"auth: { keys: [ { name: all, sha256: "+digestOfKey+" }, { name: few, sha256: "+digestOfLittle+" } ] }", 1)

// TestOnePoisonPromptOpensNoBreaker, however often one tenant repeats it and with or without other
// traffic.
func TestOnePoisonPromptOpensNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fail := range map[string]func(http.ResponseWriter){
			"500": status(500), "503": status(503), "508": status(508), "a cut": cutOff,
			"no JSON": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") },
		} {
			for _, workers := range []int{2, 3} {
				r := newRig(t, twoTenantsYAML, poisoned(workers, fail, "poison")...)
				for range 20 {
					if a := r.post("/v1/chat/completions", chatBody("fake-7b", "poison", ""), "Authorization",
						allKey); a.status < 500 {
						t.Errorf("%s: the poison is answered %d", name, a.status)
					}
				}
				for i := range workers {
					if st := r.stateOf(fmt.Sprintf("w%d", i)); st != breaker.Closed {
						t.Errorf("%s from all of %d workers: w%d is %v", name, workers, i, st)
					}
				}
				if a := r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", ""), "Authorization", fewKey); a.status !=
					http.StatusOK {
					t.Errorf("%s: another tenant's request is %d: %s", name, a.status, a.body)
				}
			}
		}
	})
}

// TestTwoPoisonPromptsOfOneTenantOpenNoBreaker: each prompt is one piece of evidence, and two are too
// few.
func TestTwoPoisonPromptsOfOneTenantOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTenantsYAML, poisoned(2, status(500), "poison")...)
		for i := range 40 {
			r.post("/v1/chat/completions", chatBody("fake-7b", fmt.Sprint("poison ", i%2), ""), "Authorization", allKey)
		}
		for _, name := range []string{"w0", "w1"} {
			if st := r.stateOf(name); st != breaker.Closed {
				t.Errorf("%s is %v", name, st)
			}
		}
	})
}

// TestFailuresOfTwoTenantsOpenABreaker, and failures of several prompts of one tenant do, even if every
// worker fails them.
func TestFailuresOfTwoTenantsOpenABreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, send := range map[string]func(r *rig, i int){
			"two tenants": func(r *rig, i int) {
				r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", ""), "Authorization", []string{allKey, fewKey}[i%2])
			},
			"several prompts": func(r *rig, i int) {
				r.post("/v1/chat/completions", chatBody("fake-7b", fmt.Sprint("Hi ", i), ""), "Authorization", allKey)
			},
		} {
			r := newRig(t, twoTenantsYAML, poisoned(2, status(500), "Hi")...)
			for i := range 12 {
				send(r, i)
			}
			if r.stateOf("w0") != breaker.Open && r.stateOf("w1") != breaker.Open {
				t.Errorf("%s: no breaker is open", name)
			}
		}
	})
}

// TestAWorkerThatFailsAloneIsBlamed, even for one prompt of one tenant: another worker's success shows
// that the request is valid.
func TestAWorkerThatFailsAloneIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fail := range map[string]func(http.ResponseWriter){"500": status(500), "a cut": cutOff} {
			r := newRig(t, twoTenantsYAML, &faulty{fail, []string{"Hi"}, fakeEngine()}, fakeEngine())
			for range 20 {
				if a := r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", ""), "Authorization", allKey); a.status !=
					http.StatusOK {
					t.Errorf("%s: a request that one worker can answer is %d: %s", name, a.status, a.body)
				}
			}
			if st := r.stateOf("w0"); st != breaker.Open {
				t.Errorf("%s: w0 is %v", name, st)
			}
		}
	})
}

// TestAPlain503IsAFaultBesideAWorkerThatAnswers: it may come from a proxy whose engine is gone. An overload by name is
// none, and neither is a 503 of all workers or of the only one, whatever the number of tenants.
func TestAPlain503IsAFaultBesideAWorkerThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain503 := answerWith(503, "<html><h1>503 Service Unavailable</h1></html>", "Content-Type", "text/html")
		for name, c := range map[string]struct {
			engines []http.Handler
			want    breaker.State
		}{
			"beside another":   {[]http.Handler{plain503, fakeEngine()}, breaker.Open},
			"without a body":   {[]http.Handler{answerWith(503, ""), fakeEngine()}, breaker.Open},
			"with a date":      {[]http.Handler{answerWith(503, "", "Retry-After", "1"), fakeEngine()}, breaker.Closed},
			"of a busy engine": {[]http.Handler{answerWith(503, "server busy, please try again"), fakeEngine()}, breaker.Closed},
			"of a busy type": {[]http.Handler{answerWith(503, `{"error":{"message":"m","type":"engine_overloaded"}}`),
				fakeEngine()}, breaker.Closed},
			"of all":   {[]http.Handler{plain503, plain503}, breaker.Closed},
			"of one":   {[]http.Handler{plain503}, breaker.Closed},
			"of three": {[]http.Handler{plain503, plain503, plain503}, breaker.Closed},
		} {
			r := newRig(t, strings.Replace(twoTenantsYAML, "least_load", "round_robin", 1), c.engines...)
			for i := range 40 {
				r.post("/v1/chat/completions", chatBody("fake-7b", fmt.Sprint("Hi ", i), ""), "Authorization",
					[]string{allKey, fewKey}[i/2%2])
				time.Sleep(1100 * time.Millisecond) // the backoff after an overload
			}
			if st := r.stateOf("w0"); st != c.want {
				t.Errorf("%s: w0 is %v, want %v", name, st, c.want)
			}
		}
	})
}

// TestARequestThatIsNotRetriedNeedsEvidenceToo: it fails on one worker only, so no other failure shows
// that the request may be the cause.
func TestARequestThatIsNotRetriedNeedsEvidenceToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noBudget := strings.Replace(twoTenantsYAML, "retry: { attempts: 2, budget: 1 }", "retry: { attempts: 1 }", 1)
		cutStream := func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, createdEvent)
			_ = http.NewResponseController(w).Flush()
			cutOff(w)
		}
		for name, c := range map[string]struct {
			yaml, path, body string
			fail             func(http.ResponseWriter)
		}{
			"a stored response": {twoTenantsYAML, "/v1/responses", `{"model":"fake-7b","input":"poison %d"}`, cutOff},
			"a stored response's bad JSON": {twoTenantsYAML, "/v1/responses", `{"model":"fake-7b","input":"poison %d"}`,
				func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") }},
			"a stored response's stream": {twoTenantsYAML, "/v1/responses",
				`{"model":"fake-7b","input":"poison %d","stream":true}`,
				cutStream},
			"a request without an attempt": {noBudget, "/v1/chat/completions", chatBody("fake-7b", "poison %d", ""), cutOff},
			"a stream without an attempt": {noBudget, "/v1/chat/completions", chatBody("fake-7b", "poison %d", `,"stream":true`),
				cutOff},
			"a response that is not stored": {noBudget, "/v1/responses", `{"model":"fake-7b","input":"poison %d","store":false}`,
				cutOff},
		} {
			r := newRig(t, strings.Replace(c.yaml, "least_load", "round_robin", 1), poisoned(2, c.fail, "poison")...)
			for range 20 {
				r.post(c.path, fmt.Sprintf(c.body, 0), "Authorization", allKey)
			}
			if st := [2]breaker.State{r.stateOf("w0"), r.stateOf("w1")}; st != [2]breaker.State{} {
				t.Errorf("%s, repeated: %v", name, st)
			}
			for i := range 20 {
				r.post(c.path, fmt.Sprintf(c.body, i), "Authorization", allKey)
			}
			if r.stateOf("w0") != breaker.Open && r.stateOf("w1") != breaker.Open {
				t.Errorf("%s, of several prompts: no breaker is open", name)
			}
		}
	})
}

// TestOnePromptWithOtherFieldsIsOneRequest: fields that do not shape the prompt make no further
// evidence.
func TestOnePromptWithOtherFieldsIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTenantsYAML, poisoned(2, status(500), "poison")...)
		for i := range 20 {
			r.post("/v1/chat/completions",
				chatBody("fake-7b", "poison", fmt.Sprintf(`,"seed":%d,"user":"u%d","metadata":{"n":"%d"}`, i, i, i)),
				"Authorization",
				allKey)
		}
		for _, name := range []string{"w0", "w1"} {
			if st := r.stateOf(name); st != breaker.Closed {
				t.Errorf("%s is %v", name, st)
			}
		}
	})
}

// TestOneTenantsPromptsOpenNoBreakerIfAnotherTenantSucceeds: the worker serves another tenant, so all
// prompts of one tenant are one piece of evidence.
func TestOneTenantsPromptsOpenNoBreakerIfAnotherTenantSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(twoTenantsYAML, "least_load", "round_robin", 1), poisoned(2, status(500), "poison")...)
		for range 2 {
			if a := r.post("/v1/chat/completions", chatBody("fake-7b", "Hi", ""), "Authorization",
				fewKey); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		for i := range 40 {
			r.post("/v1/chat/completions", chatBody("fake-7b", fmt.Sprint("poison ", i), ""), "Authorization", allKey)
		}
		for _, name := range []string{"w0", "w1"} {
			if st := r.stateOf(name); st != breaker.Closed {
				t.Errorf("%s is %v", name, st)
			}
		}
	})
}

// TestAnEnginesErrorAfterContentNeedsEvidence: the request may be the cause of an error that the engine
// reports, also after content. A cut connection needs no further evidence.
func TestAnEnginesErrorAfterContentNeedsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			end    string
			opened bool // by one prompt
		}{
			"an error":     {`data: {"error":{"message":"CUDA error","code":500}}` + "\n\n", false},
			"an abort":     {abortChunk + doneChunk, false},
			"half a chunk": {"data: {\"choices\":\n\n", false},
			"a cut":        {"", true},
		} {
			fails := func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, roleChunk+textChunk+c.end)
				if c.end == "" {
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				}
			}
			send := func(prompt func(i int) string) (opened bool) {
				r := newRig(t, twoTenantsYAML, poisoned(2, fails, "poison")...)
				for i := range 30 {
					r.post("/v1/chat/completions", chatBody("fake-7b", prompt(i), `,"stream":true`), "Authorization", allKey)
				}
				return r.stateOf("w0") == breaker.Open || r.stateOf("w1") == breaker.Open
			}
			if opened := send(func(int) string { return "poison" }); opened != c.opened {
				t.Errorf("%s, of one prompt: a breaker is open: %v", name, opened)
			}
			if !send(func(i int) string { return fmt.Sprint("poison ", i) }) {
				t.Errorf("%s, of several prompts: no breaker is open", name)
			}
		}
	})
}
