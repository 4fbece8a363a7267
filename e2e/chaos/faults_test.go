package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// Timeouts for a silent worker: shortTimeouts for streams and for answers that have begun,
// shortTotal for answers without a first byte. They leave other workers time to answer on a slow machine.
const (
	shortTimeouts = `{ first_byte: 5s, idle: 5s }`
	shortTotal    = `{ first_byte: 100ms, idle: 100ms, total: { interactive: 5s, background: 5s, batch: 5s } }`
)

// want is the expected result of a request. Fields with the zero value are not checked, except
// hits, which then must equal attempts.
type want struct {
	status   int
	code     string // of the error in the body or in the frame; "*": any code of the engine
	attempts int
	hits     int64  // requests that the workers received
	results  string // attempts in the metrics: ok/error/excluded
	outcome  string
	end      string // of tierway_stream_end_total
	after    bool   // Retry-After is set
	never    bool   // x-should-retry: false is set
	frame    bool   // the answer has content and then an error frame
}

// The usual results.
var (
	// elsewhere: w0 failed, w1 sent the answer.
	elsewhere = want{status: 200, attempts: 2, results: "1/1/0", outcome: "ok"}
	// spared: w0 could not answer, which does not count as its failure, and w1 did.
	spared = want{status: 200, attempts: 2, results: "1/0/1", outcome: "ok"}
	// fine: the first attempt succeeded.
	fine = want{status: 200, attempts: 1, results: "1/0/0", outcome: "ok"}
	// atFault: both workers failed the same request, which may have caused it.
	atFault = want{status: 502, code: "worker_error", attempts: 2, results: "0/0/2", outcome: "failed", never: true}
	// garbled: both workers sent something that is not an answer.
	garbled = want{status: 502, code: "worker_protocol", attempts: 2, results: "0/0/2", outcome: "failed", never: true}
	// cut: the stream broke off after its first content.
	cut = want{status: 200, code: "worker_error", attempts: 1, results: "0/1/0", outcome: "truncated", end: "truncated",
		frame: true}
	// broken: the stream became invalid after its first content.
	broken = want{status: 200, code: "worker_protocol", attempts: 1, results: "0/0/1", outcome: "truncated",
		end: "truncated", frame: true}
)

// passed returns the result of an engine's refusal that the gateway passes to the client.
func passed(status int) want {
	return want{status: status, code: "*", attempts: 1, results: "0/0/1", outcome: "refused"}
}

// faultCase is a fault of w0 or of both workers with its expected results.
type faultCase struct {
	name   string
	fault  chaos.Fault
	both   bool // both workers have it
	whole  *want
	stream *want
}

func status(code int, retryAfter string) chaos.Fault {
	return chaos.Fault{Kind: chaos.Status, Status: code, RetryAfter: retryAfter}
}

// beforeContent returns the faults that occur before the client has received anything.
func beforeContent() (cases []faultCase) {
	add := func(name string, f chaos.Fault, one, both want) {
		cases = append(cases,
			faultCase{name: name, fault: f, whole: &one, stream: &one},
			faultCase{name: name + ", both", fault: f, both: true, whole: &both, stream: &both})
	}
	for _, code := range []int{400, 404, 409, 413, 422} {
		add(fmt.Sprint(code), status(code, ""), passed(code), passed(code))
	}
	for _, code := range []int{401, 403} {
		add(fmt.Sprint(code), status(code, ""), spared,
			want{status: 502, code: "worker_auth_failed", attempts: 2, results: "0/0/2", outcome: "failed", never: true})
	}
	add("408", status(408, ""), spared, want{status: 504, code: "worker_timeout", attempts: 2, results: "0/0/2",
		outcome: "failed", never: true})
	limited := want{status: 429, code: "rate_limit_exceeded", attempts: 2, results: "0/0/2", outcome: "refused",
		after: true}
	add("429", status(429, ""), spared, limited)
	add("429 with Retry-After", status(429, "7"), spared, limited)
	busy := want{status: 503, code: "overloaded", attempts: 2, results: "0/0/2", outcome: "failed", after: true}
	add("503 with Retry-After", status(503, "7"), spared, busy)
	add("503", status(503, ""), elsewhere, busy) // by contrast with the worker that answers
	add("529", status(529, ""), spared, busy)
	for _, code := range []int{500, 502, 504} {
		add(fmt.Sprint(code), status(code, ""), elsewhere, atFault)
	}

	add("a reset", chaos.Fault{Kind: chaos.Reset}, elsewhere, atFault)
	add("a close", chaos.Fault{Kind: chaos.Close}, elsewhere, atFault)
	add("garbage", chaos.Fault{Kind: chaos.Garbage}, elsewhere, atFault)
	// A silent stream fails after first_byte. An answer that is not a stream may take its total
	// time, so that no time is left for another worker.
	silence := chaos.Fault{Kind: chaos.Hang}
	late := want{status: 504, code: "worker_timeout", attempts: 1, results: "0/0/1", outcome: "failed"}
	silent := want{status: 504, code: "worker_timeout", attempts: 2, results: "0/2/0", outcome: "failed", never: true}
	cases = append(cases, faultCase{name: "silence", fault: silence, whole: &late, stream: &elsewhere},
		faultCase{name: "silence, both", fault: silence, both: true, whole: &late, stream: &silent})
	add("a redirect", chaos.Fault{Kind: chaos.Redirect}, elsewhere, garbled)
	add("a web page", chaos.Fault{Kind: chaos.HTML}, elsewhere, garbled)
	add("an empty 200", chaos.Fault{Kind: chaos.Empty}, elsewhere, garbled)
	add("an error in a 200", chaos.Fault{Kind: chaos.JSONError}, elsewhere, atFault)
	return cases
}

func TestFaultsBeforeTheAnswer(t *testing.T) {
	for _, c := range beforeContent() {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, chat, false)
			c.run(t, chat, true)
		})
	}
}

// TestFaultsHaveTheSameResultInEveryDialect tests a few faults of each kind in the other dialects.
func TestFaultsHaveTheSameResultInEveryDialect(t *testing.T) {
	few := map[string]bool{"400": true, "401, both": true, "429 with Retry-After": true,
		"429 with Retry-After, both": true, "500": true, "500, both": true, "a reset": true, "a web page": true}
	for _, d := range []dialect{completions, responses, messages} {
		for _, c := range beforeContent() {
			if few[c.name] {
				t.Run(d.name+" "+c.name, func(t *testing.T) {
					c.run(t, d, false)
					c.run(t, d, true)
				})
			}
		}
	}
}

func TestFaultsInAnswersThatAreNotStreams(t *testing.T) {
	late := want{status: 504, code: "worker_timeout", attempts: 2, results: "0/2/0", outcome: "failed"}
	tooLarge := want{status: 502, code: "response_too_large", attempts: 1, results: "0/0/1", outcome: "failed",
		never: true}
	for _, c := range []faultCase{
		{name: "a reset", fault: chaos.Fault{Kind: chaos.Reset, After: 1}, whole: &elsewhere},
		{name: "a close, both", fault: chaos.Fault{Kind: chaos.Close, After: 1}, both: true, whole: &atFault},
		{name: "silence", fault: chaos.Fault{Kind: chaos.Hang, After: 1}, whole: &elsewhere},
		{name: "silence, both", fault: chaos.Fault{Kind: chaos.Hang, After: 1}, both: true, whole: &late},
		{name: "half a body", fault: chaos.Fault{Kind: chaos.Truncate}, whole: &elsewhere},
		{name: "half a body, both", fault: chaos.Fault{Kind: chaos.Truncate}, both: true, whole: &garbled},
		{name: "half an object", fault: chaos.Fault{Kind: chaos.Malformed}, whole: &elsewhere},
		{name: "too long a Content-Length", fault: chaos.Fault{Kind: chaos.Length, Size: 9}, whole: &elsewhere},
		{name: "too short a Content-Length", fault: chaos.Fault{Kind: chaos.Length, Size: -9}, whole: &elsewhere},
		{name: "an answer without end", fault: chaos.Fault{Kind: chaos.Endless}, whole: &tooLarge},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, chat, false) })
	}
}

func TestErrorsInsideAStream(t *testing.T) {
	first := func(f chaos.Form) chaos.Fault { return chaos.Fault{Kind: chaos.ErrorFirst, Form: f} }
	later := func(f chaos.Form) chaos.Fault {
		return chaos.Fault{Kind: chaos.ErrorEvent, After: 4, Form: f}
	}
	real400, both, reported := passed(400), atFault, cut
	reported.results = "0/0/1" // one request is no evidence
	for _, c := range []struct {
		d dialect
		faultCase
	}{
		{chat, faultCase{name: "vLLM's 400 first", fault: first(chaos.FormVLLM), stream: &real400}},
		{chat, faultCase{name: "SGLang's 500 first", fault: first(chaos.FormSGLang), stream: &elsewhere}},
		{chat, faultCase{name: "SGLang's 500 first, both", fault: first(chaos.FormSGLang), both: true, stream: &both}},
		{chat, faultCase{name: "llama.cpp's 500 first", fault: first(chaos.FormLlamaCpp), stream: &elsewhere}},
		{chat, faultCase{name: "llama.cpp's 500 first, both", fault: first(chaos.FormLlamaCpp), both: true, stream: &both}},
		{completions, faultCase{name: "vLLM's 400 first", fault: first(chaos.FormVLLM), stream: &real400}},
		{chat, faultCase{name: "vLLM's later", fault: later(chaos.FormVLLM),
			stream: &want{status: 200, code: "*", attempts: 1, outcome: "truncated", end: "truncated", frame: true}}},
		{chat, faultCase{name: "SGLang's later", fault: later(chaos.FormSGLang), stream: &reported}},
		{chat, faultCase{name: "llama.cpp's later", fault: later(chaos.FormLlamaCpp), stream: &reported}},
		{messages, faultCase{name: "its own later", fault: later(chaos.FormMessages),
			stream: &want{status: 200, code: "*", attempts: 1, outcome: "truncated", end: "truncated", frame: true}}},
	} {
		t.Run(c.d.name+" "+c.name, func(t *testing.T) { c.run(t, c.d, true) })
	}
}

func TestCutStreamsEndWithAnErrorFrame(t *testing.T) {
	late, ended := cut, cut
	late.code = "worker_timeout"
	ended.results = "0/0/1" // the worker has not ended a stream otherwise so far
	for _, d := range []dialect{chat, completions, responses, messages} {
		for _, c := range []faultCase{
			{name: "a reset", fault: chaos.Fault{Kind: chaos.Reset, After: 5}, stream: &cut},
			{name: "a close", fault: chaos.Fault{Kind: chaos.Close, After: 5}, stream: &cut},
			{name: "a clean end too early", fault: chaos.Fault{Kind: chaos.Truncate, After: 5}, stream: &ended},
			{name: "silence", fault: chaos.Fault{Kind: chaos.Hang, After: 5}, stream: &late},
			{name: "half an event", fault: chaos.Fault{Kind: chaos.Malformed, After: 5}, stream: &broken},
		} {
			t.Run(d.name+" "+c.name, func(t *testing.T) { c.run(t, d, true) })
		}
	}
	tooLarge := faultCase{name: "too large an event", fault: chaos.Fault{Kind: chaos.Huge, After: 4, Size: 2 << 20},
		stream: &want{status: 200, attempts: 1, results: "0/0/1", outcome: "truncated", end: "truncated", frame: true,
			code: "response_too_large"}}
	t.Run(tooLarge.name, func(t *testing.T) { tooLarge.run(t, chat, true) })
	half := faultCase{name: "half a first event", fault: chaos.Fault{Kind: chaos.Malformed}, stream: &elsewhere}
	t.Run(half.name, func(t *testing.T) { half.run(t, chat, true) })
}

// run sends one request and checks its result. The gateway cancels what a silent worker does not answer.
func (c faultCase) run(t *testing.T, d dialect, stream bool) {
	w, mode := c.whole, "whole"
	if stream {
		w, mode = c.stream, "stream"
	}
	if w == nil {
		t.Fatalf("the case has no result for %s", mode)
	}
	bubble.Run(t, mode, func(t *testing.T) {
		own := rig.Settings{"max_response_bytes": "1MiB"} // of a whole answer and of an event
		if c.fault.Kind == chaos.Hang {
			own["timeouts"] = shortTimeouts
			if !stream && c.fault.After == 0 {
				own["timeouts"] = shortTotal
			}
		}
		r := newRig(t, 2, own, engines.Config{})
		for i, worker := range r.Workers {
			if i == 0 || c.both {
				if err := worker.Set(c.fault); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := r.post(d.path, d.requestBody(stream))
		r.check(t, d, stream, got, *w)
		if c.fault.Kind == chaos.Hang {
			r.waitForCancels(r.Workers[0].Stats().Hits[chaos.Hang] + r.Workers[1].Stats().Hits[chaos.Hang])
		}
	})
}

// TestUnreachableWorkerIsReplaced: another worker serves the request; without one, the response
// is 502, and 503 for the requests after it.
func TestUnreachableWorkerIsReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, stream := range []bool{false, true} {
			r := newRig(t, 2, nil, engines.Config{})
			if err := r.Workers[0].Server.Close(); err != nil {
				t.Fatal(err)
			}
			w := elsewhere
			w.hits = 1
			r.check(t, chat, stream, r.post(chat.path, chat.requestBody(stream)), w)
		}
		r := newRig(t, 1, nil, engines.Config{})
		if err := r.Workers[0].Server.Close(); err != nil {
			t.Fatal(err)
		}
		got := r.post(chat.path, chat.body)
		if e, _ := bodyError(got.Body); got.Status != http.StatusBadGateway || e.Code != "worker_error" {
			t.Errorf("the answer is %d %s", got.Status, got.Body)
		}
		if strings.Contains(got.Body, "127.0.0.1") {
			t.Errorf("the response has the worker's address: %s", got.Body)
		}
		got = r.post(messages.path, messages.body) // the worker is ejected
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "1" ||
			!strings.Contains(got.Body, `"overloaded_error"`) {
			t.Errorf("the next answer is %d %v %s", got.Status, got.Header, got.Body)
		}
	})
}

// TestWorkerInBackoffGetsNoRequests: after 429, a worker receives no requests for its
// Retry-After, and the other workers receive all.
func TestWorkerInBackoffGetsNoRequests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil, engines.Config{})
		if err := r.Workers[0].Set(status(429, "30")); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			if got := r.post(chat.path, chat.body); got.Status != http.StatusOK {
				t.Errorf("the status is %d: %s", got.Status, got.Body)
			}
		}
		if n := r.Workers[0].Stats().Requests; n != 1 {
			t.Errorf("the worker with a backoff of 30 s received %d requests, want 1", n)
		}
		if m, err := r.Metrics(); err != nil || m.Sum("tierway_worker_backoff", `worker="w0"`) != 1 {
			t.Errorf("tierway_worker_backoff is not 1 (%v)", err)
		}
		if err := r.Workers[1].Set(status(503, "30")); err != nil {
			t.Fatal(err)
		}
		for range 2 { // for the second request, all workers are in backoff
			got := r.post(chat.path, chat.body)
			if e, _ := bodyError(got.Body); got.Status != http.StatusServiceUnavailable || e.Code != "overloaded" {
				t.Errorf("the answer is %d %s", got.Status, got.Body)
			}
			if s := seconds(got.Header.Get("Retry-After")); s < 20*time.Second || s > 30*time.Second {
				t.Errorf("Retry-After is %q", got.Header.Get("Retry-After"))
			}
		}
	})
}

// TestRetriesHaveABudget fails every request. The gateway retries a fifth of the requests plus
// ten per second, after an initial budget of 100. The other responses have x-should-retry: false.
func TestRetriesHaveABudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 2, rig.Settings{"breaker": `{ consecutive_failures: 1000, min_requests: 1000 }`}, engines.Config{})
		for _, w := range r.Workers {
			if err := w.Set(status(500, "")); err != nil {
				t.Fatal(err)
			}
		}
		const requests = 400
		begun := time.Now()
		for range requests {
			got := r.post(chat.path, chat.body)
			if got.Status != http.StatusBadGateway || got.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("the status is %d, x-should-retry %q: %s", got.Status, got.Header.Get("X-Should-Retry"), got.Body)
			}
		}
		most := requests + requests/5 + 100 + 10*int64(1+time.Since(begun)/time.Second)
		if n := r.hits(); n <= requests || n > most {
			t.Errorf("%d requests became %d attempts, want at most %d", requests, n, most)
		}
		if m, err := r.Metrics(); err != nil || m.Sum("tierway_retry_budget_exhausted_total") == 0 {
			t.Errorf("no spent budget is counted (%v)", err)
		}
	})
}

// seconds reads a Retry-After.
func seconds(v string) time.Duration {
	d, err := time.ParseDuration(v + "s")
	if err != nil {
		return 0
	}
	return d
}
