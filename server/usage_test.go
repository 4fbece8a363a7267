package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// reportingEngine answers each chat with eight words and the usage of report.
func reportingEngine(t *testing.T, report func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		const words = "one two three four five six seven eight"
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			writeNow(t, w, `{"id":"c","object":"chat.completion","padding":"`+strings.Repeat("x", 300)+
				`","choices":[{"index":0,"message":{"role":"assistant","content":"`+words+
				`"},"finish_reason":"stop"}],"usage":`+report()+`}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, word := range strings.Fields(words) {
			writeNow(t, w, `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"`+word+
				` "},"finish_reason":null}]}`+"\n\n")
		}
		writeNow(t, w,
			`data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
		writeNow(t, w, `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":`+report()+
			"}\n\ndata: [DONE]\n\n")
	})
}

// TestImplausibleUsageIsEstimated: a missing or invalid count is not 0, no prompt has 0 tokens, and no model generates
// a million tokens under max_tokens of 50. An estimate replaces only the count that is not plausible.
func TestImplausibleUsageIsEstimated(t *testing.T) {
	const cannotBe = 999999999999999999
	for _, c := range []struct {
		usage     string
		estimated bool
		prompt    int64 // 0: the gateway's estimate
		output    int64 // -1: the gateway's estimate
		note      string
	}{
		{`{"prompt_tokens":3,"completion_tokens":40,"total_tokens":43}`, false, 3, 40, ""},
		{`{"prompt_tokens":3,"completion_tokens":40}`, false, 3, 40, ""},
		{`{"prompt_tokens":3,"total_tokens":43}`, false, 3, 40, ""},
		{`{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3}`, false, 3, 0, ""},
		{`{"prompt_tokens":3,"completion_tokens":164}`, false, 3, 164, ""},
		{`{"prompt_tokens":3,"completion_tokens":165}`, false, 3, 165, "output above max_tokens"},
		{`{"prompt_tokens":10,"completion_tokens":3000}`, false, 10, 3000, "output above max_tokens"},
		{`{"prompt_tokens":3,"completion_tokens":262144}`, false, 3, 262144, "output above max_tokens"},
		{`{"prompt_tokens":3,"completion_tokens":null}`, true, 0, -1, ""},
		{`{"prompt_tokens":3,"completion_tokens":-1}`, true, 0, -1, ""},
		{`{"prompt_tokens":3,"completion_tokens":1e30}`, true, 0, -1, ""},
		{`{"prompt_tokens":3,"completion_tokens":1.5}`, true, 0, -1, ""},
		{`{"completion_tokens":40}`, true, 0, -1, ""},
		{`{"total_tokens":43}`, true, 0, -1, ""},
		{fmt.Sprintf(`{"prompt_tokens":777,"completion_tokens":%d}`, cannotBe), true, 777, -1, "output not plausible"},
		{fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":8}`, cannotBe), true, 0, 8, "prompt not plausible"},
		{fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, cannotBe, cannotBe), true, 0, -1, "usage not plausible"},
		{`{"prompt_tokens":777,"completion_tokens":1000000}`, true, 777, -1, "output not plausible"},
		{`{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, true, 0, -1, "usage not plausible"},
		{`{"prompt_tokens":0,"completion_tokens":8,"total_tokens":8}`, true, 0, 8, "prompt not plausible"},
		{`null`, true, 0, -1, ""},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(c.usage, stream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := limitedRig(t, "limits: { tpm: 100000 }", reportingEngine(t, func() string { return c.usage }), bigEngine())
					a := r.post("/v1/chat/completions",
						fmt.Sprintf(`{"model":"cheap","stream":%t,"max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`, stream),
						"Authorization", "Bearer key")
					waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
					got := r.row("ok")
					if a.status != 200 || got.Requests != 1 || (got.Estimated == 1) != c.estimated {
						t.Errorf("%d: the ledger has %+v, want estimated: %t", a.status, got, c.estimated)
					}
					if c.prompt > 0 && got.Prompt != c.prompt || got.Prompt < 1 || got.Prompt > 777 {
						t.Errorf("the ledger has a prompt of %d, want %d (0: an estimate)", got.Prompt, c.prompt)
					}
					if c.output >= 0 && got.Output != c.output || c.output < 0 && (got.Output < 5 || got.Output > 300) {
						t.Errorf("the ledger has an output of %d, want %d (-1: an estimate)", got.Output, c.output)
					}
					waitUntil(t, "the log line", func() bool { return r.accessLog() != "" })
					if want := `"usage_note":"` + c.note + `"`; strings.Contains(r.accessLog(), `"usage_note"`) != (c.note != "") ||
						c.note != "" && !strings.Contains(r.accessLog(), want) {
						t.Errorf("the log has no note %q, or an unexpected one: %s", c.note, r.accessLog())
					}
				})
			})
		}
	}
}

// TestUsageAboveMaxTokensSpendsTheBudget: an engine that ignores max_tokens generates tokens all the same.
func TestUsageAboveMaxTokensSpendsTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { day_tokens: 2000 }",
			reportingEngine(t, func() string { return `{"prompt_tokens":10,"completion_tokens":3000}` }), bigEngine())
		const body = `{"model":"cheap","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`
		statuses := map[int]int{}
		for range 40 {
			statuses[r.post("/v1/chat/completions", body, "Authorization", "Bearer key").status]++
		}
		if statuses[200] != 1 || statuses[429] != 39 {
			t.Errorf("40 requests of 3,010 tokens under a budget of 2,000 got %v, want one 200 and 39 times 429", statuses)
		}
	})
}

// TestUsageOfCompletionsIsCharged, although the request body is freed before the usage of a stream
// arrives.
func TestUsageOfCompletionsIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { tpm: 100000 }", fakeEngine(), bigEngine())
		for _, stream := range []bool{false, true} {
			a := r.post("/v1/completions", fmt.Sprintf(`{"model":"cheap","stream":%t,"max_tokens":5,"prompt":["hi","there"]}`,
				stream), "Authorization", "Bearer key")
			if a.status != 200 || stream && !strings.Contains(a.body, "[DONE]") {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
		if got := r.row("ok"); got.Requests != 2 || got.Output < 4 || got.Estimated != 0 {
			t.Errorf("the ledger has %+v", got)
		}
	})
}

// TestAnOutputEstimateAloneRejectsNoRequest: a request without max_tokens is not rejected for the
// output length that the pool has learned, even if a broken engine reports wrong usage.
func TestAnOutputEstimateAloneRejectsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		digest := sha256.Sum256([]byte("other"))
		second := ", limits: { tpm: 1000 } }, { name: other, sha256: " + hex.EncodeToString(digest[:])
		r := limitedRig(t, second[2:],
			reportingEngine(t, func() string { return `{"prompt_tokens":3,"completion_tokens":100000}` }), bigEngine())
		const body = `{"model":"cheap","messages":[{"role":"user","content":"hi"}]}`
		for range 30 {
			if a := r.post("/v1/chat/completions", body, "Authorization", "Bearer other"); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if a := r.post("/v1/chat/completions", body, "Authorization", "Bearer key"); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}
