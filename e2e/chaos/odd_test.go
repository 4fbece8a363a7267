package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// TestUnusualStreamsArriveComplete: variations of engines and networks that do not break a stream
// change nothing for the client.
func TestUnusualStreamsArriveComplete(t *testing.T) {
	for name, faults := range map[string][]chaos.Fault{
		"CRLF":                  {{Kind: chaos.CRLF}},
		"comments":              {{Kind: chaos.Comments}},
		"several tokens a time": {{Kind: chaos.Merge, Every: 5}},
		"several events a time": {{Kind: chaos.Batch, Every: 7}},
		"everything at once":    {{Kind: chaos.Batch, Every: 1000}},
		"byte by byte":          {{Kind: chaos.Bytewise}},
		"CRLF byte by byte":     {{Kind: chaos.Bytewise}, {Kind: chaos.CRLF}, {Kind: chaos.Comments}},
		"unrequested gzip":      {{Kind: chaos.Gzip}},
		"gzip byte by byte":     {{Kind: chaos.Gzip}, {Kind: chaos.Bytewise}},
		"a closed connection":   {{Kind: chaos.CloseEach}},
		"a slow start":          {{Kind: chaos.Slow, Delay: 50 * time.Millisecond}},
		"a null error":          {{Kind: chaos.NullError}},
		"no usage":              {{Kind: chaos.NoUsage}},
	} {
		for _, d := range []dialect{chat, completions, responses, messages} {
			bubble.Run(t, d.name+" "+name, func(t *testing.T) {
				r := newRig(t, 1, nil, engines.Config{})
				if err := r.Workers[0].Set(faults...); err != nil {
					t.Fatal(err)
				}
				w := fine
				w.end = "complete"
				got := r.post(d.path, d.stream)
				r.check(t, d, true, got, w)
				if strings.Contains(got.Body, `"error":`) && d.name != "responses" {
					t.Errorf("a client that looks for an error finds one: %s", got.Body)
				}
				if encoding := got.Header.Get("Content-Encoding"); encoding != "" {
					t.Errorf("the answer is encoded as %q", encoding)
				}
			})
		}
	}
}

// TestPingEventsPass: Anthropic's streams have ping events.
func TestPingEventsPass(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Ping}); err != nil {
			t.Fatal(err)
		}
		got := r.post(messages.path, messages.stream)
		r.check(t, messages, true, got, fine)
		if !strings.Contains(got.Body, "event: ping") {
			t.Errorf("the pings are gone: %s", got.Body)
		}
	})
}

// TestAMissingDoneIsAdded: after a finish_reason, the answer is complete.
func TestAMissingDoneIsAdded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, d := range []dialect{chat, completions} {
			r := newRig(t, 1, nil, engines.Config{})
			if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.NoDone}); err != nil {
				t.Fatal(err)
			}
			w := fine
			w.end = "repaired"
			r.check(t, d, true, r.post(d.path, d.stream), w)
		}
	})
}

// TestUnusualAnswersArriveComplete is the same test for answers that are not streams.
func TestUnusualAnswersArriveComplete(t *testing.T) {
	for _, kind := range []chaos.Kind{chaos.Gzip, chaos.Bytewise, chaos.NullError, chaos.NoUsage} {
		bubble.Run(t, string(kind), func(t *testing.T) {
			r := newRig(t, 1, nil, engines.Config{})
			if err := r.Workers[0].Set(chaos.Fault{Kind: kind}); err != nil {
				t.Fatal(err)
			}
			r.check(t, chat, false, r.post(chat.path, chat.body), fine)
		})
	}
}

// TestRejectedAdditionIsOmittedAfterwards: an engine that does not support include_usage costs one
// additional request, once.
func TestRejectedAdditionIsOmittedAfterwards(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, code := range []int{400, 422} {
			r := newRig(t, 1, nil, engines.Config{})
			if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Reject, Status: code}); err != nil {
				t.Fatal(err)
			}
			for want := range 3 {
				got := r.post(chat.path, chat.stream)
				checkWhole(t, chat, true, got)
				if n := r.hits(); n != int64(want+2) {
					t.Errorf("%d: after %d requests the worker saw %d, want %d", code, want+1, n, want+2)
				}
				if line := r.AccessLine(got.ID); line["attempts"] != 1.0 || line["outcome"] != "ok" {
					t.Errorf("%d: the log says %v", code, line)
				}
			}
			// A client that requests it itself gets the engine's error.
			got := r.post(chat.path,
				`{"model":"sim","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}`)
			if got.Status != code {
				t.Errorf("the client's own include_usage: status %d, want %d: %s", got.Status, code, got.Body)
			}
		}
	})
}

// TestStaleConnectionIsReplacedSilently: if the worker has closed an idle connection, the gateway
// uses another one. This counts neither as a retry nor as a failure of the worker.
func TestStaleConnectionIsReplacedSilently(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, stream := range []bool{false, true} {
			r := newRig(t, 1, nil, engines.Config{})
			if got := r.post(chat.path, chat.body); got.Status != http.StatusOK {
				t.Fatalf("the first answer is %d", got.Status)
			}
			if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Stale}); err != nil {
				t.Fatal(err)
			}
			got := r.post(chat.path, chat.requestBody(stream))
			checkWhole(t, chat, stream, got)
			if line := r.AccessLine(got.ID); line["attempts"] != 1.0 || line["outcome"] != "ok" {
				t.Errorf("the log says %v", line)
			}
			if n := r.Workers[0].Stats().Hits[chaos.Stale]; n != 1 {
				t.Errorf("%d requests met the stale connection, want 1", n)
			}
			m, err := r.Metrics()
			if err != nil {
				t.Fatal(err)
			}
			if retries, blamed := m.Sum("tierway_retries_total"), m.Sum("tierway_attempts_total", `result="error"`); retries !=
				0 || blamed != 0 {
				t.Errorf("%v retries and %v failed attempts, want none", retries, blamed)
			}
		}
	})
}

// TestRequestWithSideEffectsIsNotSentTwice: a request that creates something on its engine is not
// retried once its body was sent. Before that, it may go to another worker.
func TestRequestWithSideEffectsIsNotSentTwice(t *testing.T) {
	kept := []dialect{
		{name: "responses", path: responses.path, body: `{"model":"sim","input":"hello","store":true}`,
			stream: `{"model":"sim","input":"hello","store":true,"stream":true}`},
		{name: "responses with store: null", path: responses.path, body: `{"model":"sim","input":"hello","store":null}`},
		{name: "responses by default", path: responses.path, body: `{"model":"sim","input":"hello"}`},
		{name: "a stream of responses", path: responses.path, body: `{"model":"sim","input":"hello","stream":true}`},
		{name: "responses in the background", path: responses.path,
			body: `{"model":"sim","input":"hello","background":true}`},
		{name: "responses in the background, store: false", path: responses.path,
			body: `{"model":"sim","input":"hello","background":true,"store":false}`},
		{name: "chat", path: chat.path, body: `{"model":"sim","store":true,"messages":[{"role":"user","content":"hello"}]}`},
		{name: "an image", path: "/v1/images/generations", body: `{"model":"sim","prompt":"hello"}`},
		{name: "speech", path: "/v1/audio/speech", body: `{"model":"sim","input":"hello","voice":"alloy"}`},
	}
	for _, d := range kept {
		for _, f := range []chaos.Fault{{Kind: chaos.Reset}, {Kind: chaos.Close}, status(500, ""), status(429, "1")} {
			bubble.Run(t, fmt.Sprint(d.name, " ", f.Kind, f.Status), func(t *testing.T) {
				r := newRig(t, 2, nil, engines.Config{})
				for _, w := range r.Workers {
					if err := w.Set(f); err != nil {
						t.Fatal(err)
					}
				}
				got := r.post(d.path, d.body)
				if got.Status < 400 || r.hits() != 1 {
					t.Errorf("the status is %d and the workers saw %d requests, want 1", got.Status, r.hits())
				}
			})
		}
		bubble.Run(t, d.name+" not sent", func(t *testing.T) {
			// no other server uses this port
			away := fmt.Sprintf("workers: [ { name: w0, url: %q }, ", "http://"+rig.Address(t))
			both := strings.Replace(tiers([]*rig.Worker{newWorker(t, "w1", engines.Config{})}), "workers: [ ", away, 1)
			r := newRig(t, 0, rig.Settings{"tiers": both}, engines.Config{})
			if got := r.post(d.path, d.body); got.Status != http.StatusOK {
				t.Errorf("the status is %d although w1 is available: %s", got.Status, got.Body)
			}
		})
	}
	for _, path := range []string{"/v1/responses/compact", "/v1/responses/input_tokens"} { // they store nothing
		bubble.Run(t, path, func(t *testing.T) {
			r := newRig(t, 2, nil, engines.Config{})
			for _, w := range r.Workers {
				if err := w.Set(status(500, "")); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.post(path, kept[2].body); got.Status != http.StatusBadGateway || r.hits() != 2 {
				t.Errorf("the status is %d and the workers saw %d requests, want 2", got.Status, r.hits())
			}
		})
	}
}

// TestRedirectsAreNeverFollowed: the gateway does not request the target of a worker's redirect,
// and the client does not see it.
func TestRedirectsAreNeverFollowed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var code atomic.Int64
		trap := newWorker(t, "trap", engines.Config{})
		pointer := rig.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", trap.Server.URL+chat.path)
			w.WriteHeader(int(code.Load()))
		}))
		r := newRig(t, 0,
			rig.Settings{"tiers": fmt.Sprintf("[ { name: small, model: sim, workers: [ { name: pointer, url: %q } ] } ]",
				pointer.URL)}, engines.Config{})
		for _, status := range []int64{301, 302, 303, 307, 308} {
			code.Store(status)
			got := r.post(chat.path, chat.body)
			if got.Status != http.StatusBadGateway || got.Header.Get("Location") != "" ||
				strings.Contains(got.Body, "127.0.0.1") {
				t.Errorf("%d: the answer is %d %v %s", status, got.Status, got.Header, got.Body)
			}
		}
		if n := trap.Stats().Requests; n != 0 {
			t.Errorf("the redirect was followed %d times", n)
		}
	})
}

// TestRequestWithSideEffectsUsesANewConnection: after a failure on an idle connection, the gateway
// could not know whether the worker received the request.
func TestRequestWithSideEffectsUsesANewConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, nil, engines.Config{})
		r.post(chat.path, chat.body)
		if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Stale}); err != nil {
			t.Fatal(err)
		}
		if got := r.post(responses.path, `{"model":"sim","input":"hello","store":true}`); got.Status != http.StatusOK {
			t.Errorf("the status is %d: %s", got.Status, got.Body)
		}
		if n := r.Workers[0].Stats().Hits[chaos.Stale]; n != 0 {
			t.Error("the request came over a kept connection")
		}
	})
}
