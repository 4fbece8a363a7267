package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/memnet"
	"tierway/openai"
	"tierway/pairing"
)

// sampling samples every request of a rig whose random numbers are 0. The key of each tenant is its name.
const sampling = `
# %%s
auth:
  keys: [ %[1]s ]
tiers:
  - { name: small, model: s, fallback: [large], serves: [chat, completions, responses, messages, embeddings], workers: [ { name: w0, url: %[2]q } ] }
  - { name: large, model: l, serves: [chat, completions, responses, messages], workers: [ { name: w1, url: %[3]q } ] }
models: { alias: classify, "gpt-4*": large }
learning:
  hash_key: 0123456789abcdef
  directory: d
  replay: { share: 0.1, api_key: operator, judge: { model: l } }
`

// newSamplingRig serves two tiers. answer is the engine of both.
func newSamplingRig(t *testing.T, answer http.Handler) *proxyRig {
	t.Helper()
	network := memnet.New()
	var keys, urls []string
	for tenant, more := range map[string]string{"acme": "", "operator": "limits: { day_tokens: 30 }",
		"private": "isolate_cache: true", "bounded": "tiers: [ small ]"} {
		digest := sha256.Sum256([]byte(tenant))
		keys = append(keys, "{ name: "+tenant+", sha256: "+hex.EncodeToString(digest[:])+", "+more+" }")
	}
	for range 2 {
		w := network.NewServer(answer)
		t.Cleanup(w.Close)
		urls = append(urls, w.URL)
	}
	r := newProxyRigOn(t, network, fmt.Sprintf(sampling, strings.Join(keys, ", "), urls[0], urls[1]))
	r.rand = func() uint64 { return 0 }
	return r
}

// postAs sends a request with the key of a tenant and further headers.
func (r *proxyRig) postAs(tenant, path, body string, headers ...string) (status int) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+tenant)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestOnlyComparableRequestsAreSampled: those that the classifier decides, that may run twice, and whose tenant may use
// both tiers and shares its prompts.
func TestOnlyComparableRequestsAreSampled(t *testing.T) {
	const chat, turn = "/v1/chat/completions", `"messages":[{"role":"user","content":"Hi"}],"max_tokens":3`
	auto := `{"model":"auto",` + turn + `}`
	for name, c := range map[string]struct {
		tenant, path, body string
		headers            []string
		want               bool
	}{
		"auto":                   {"acme", chat, auto, nil, true},
		"a stream":               {"acme", chat, `{"model":"auto","stream":true,` + turn + `}`, nil, true},
		"an alias":               {"acme", chat, `{"model":"alias",` + turn + `}`, nil, true},
		"a deployment":           {"acme", "/openai/deployments/auto/chat/completions", "{" + turn + "}", nil, true},
		"completions":            {"acme", "/v1/completions", `{"model":"auto","prompt":"Hi","max_tokens":3}`, nil, true},
		"messages":               {"acme", "/v1/messages", auto, []string{"Anthropic-Version", "2023-06-01"}, true},
		"responses, not stored":  {"acme", "/v1/responses", `{"model":"auto","input":"Hi","store":false}`, nil, true},
		"responses":              {"acme", "/v1/responses", `{"model":"auto","input":"Hi"}`, nil, false},
		"stored":                 {"acme", chat, `{"model":"auto","store":true,` + turn + `}`, nil, false},
		"in the background":      {"acme", "/v1/responses", `{"model":"auto","input":"Hi","background":true,"store":true}`, nil, false},
		"a tier's name":          {"acme", chat, `{"model":"small",` + turn + `}`, nil, false},
		"a pattern":              {"acme", chat, `{"model":"gpt-4o",` + turn + `}`, nil, false},
		"X-Model-Tier":           {"acme", chat, auto, []string{"X-Model-Tier", "large"}, false},
		"several choices":        {"acme", chat, `{"model":"auto","n":2,` + turn + `}`, nil, false},
		"tools":                  {"acme", chat, `{"model":"auto","tools":[{"type":"function","function":{"name":"f"}}],` + turn + `}`, nil, false},
		"a search of the web":    {"acme", chat, `{"model":"auto","web_search_options":{},` + turn + `}`, nil, false},
		"servers of tools":       {"acme", "/v1/messages", `{"model":"auto","mcp_servers":[{"type":"url","url":"http://h","name":"n"}],` + turn + `}`, nil, false},
		"a stored prompt":        {"acme", "/v1/responses", `{"model":"auto","input":"Hi","store":false,"prompt":{"id":"p"}}`, nil, false},
		"a stored item":          {"acme", "/v1/responses", `{"model":"auto","input":[{"type":"item_reference","id":"i"}],"store":false}`, nil, false},
		"tokens only":            {"acme", "/v1/messages/count_tokens", auto, nil, false},
		"embeddings":             {"acme", "/v1/embeddings", `{"model":"small","input":"Hi"}`, nil, false},
		"invalid":                {"acme", chat, `{"model":"auto","messages":1}`, nil, false},
		"isolate_cache":          {"private", chat, auto, nil, false},
		"one tier only":          {"bounded", chat, auto, nil, false},
		"the operator's own key": {"operator", chat, auto, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSamplingRig(t, engines.New(engines.Config{Name: "e", AnyModel: true, Seed: 1}))
			status := r.postAs(c.tenant, c.path, c.body, c.headers...)
			s := r.samples.Next()
			if (s != nil) != c.want {
				t.Fatalf("status %d: sampled is %t", status, s != nil)
			}
			if n, bytes := r.samples.Len(); n+bytes != 0 {
				t.Errorf("%d samples with %d bytes are left", n, bytes)
			}
			if s == nil {
				return
			}
			if !strings.Contains(string(s.Body), `"model"`) || s.Tenant != c.tenant || s.ID == "" || s.Key == "" {
				t.Errorf("%+v", s)
			}
			if version := s.Header["Anthropic-Version"]; len(s.Header) != len(c.headers)/2 ||
				len(c.headers) > 0 && version[0] != c.headers[1] {
				t.Errorf("the headers are %v", s.Header)
			}
		})
	}
}

// TestSamplesKeepTheirBodies although later requests reuse the buffers of earlier ones.
func TestSamplesKeepTheirBodies(t *testing.T) {
	r := newSamplingRig(t, engines.New(engines.Config{Name: "e", AnyModel: true, Seed: 1}))
	bodyOf := func(i int) string {
		return `{"model":"auto","max_tokens":3,"messages":[{"role":"user","content":"` +
			strings.Repeat(string(rune('a'+i))+" ", 9000) + `"}]}`
	}
	for i := range 8 {
		r.postAs("acme", "/v1/chat/completions", bodyOf(i))
	}
	for i := range 8 {
		if s := r.samples.Next(); s == nil || string(s.Body) != bodyOf(i) {
			t.Errorf("sample %d has another body", i)
		}
	}
}

// TestRequestWithoutAnAnswerIsNotRepeated, and none is without a share or a store of labels.
func TestRequestWithoutAnAnswerIsNotRepeated(t *testing.T) {
	const chat, auto = "/v1/chat/completions", `{"model":"auto","messages":[{"role":"user","content":"Hi"}]}`
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	r := newSamplingRig(t, fails)
	if status := r.postAs("acme", chat, auto); status != http.StatusBadGateway {
		t.Errorf("status %d", status)
	}
	if n, _ := r.samples.Len(); n != 0 {
		t.Error("a failed request is sampled")
	}
	r = newSamplingRig(t, engines.New(engines.Config{Name: "e", AnyModel: true, Seed: 1}))
	r.rand = func() uint64 { return math.MaxUint64 / 10 } // a share of 0.1
	r.postAs("acme", chat, auto)
	r.samples, r.rand = nil, func() uint64 { return 0 }
	if status := r.postAs("acme", chat, auto); status != http.StatusOK {
		t.Errorf("status %d without samples", status)
	}
}

// TestRepeatedRequestIsOneOfTheKeysTenant: it is charged and recorded, the header selects its tier, and its answer is
// whole.
func TestRepeatedRequestIsOneOfTheKeysTenant(t *testing.T) {
	r := newSamplingRig(t, engines.New(engines.Config{Name: "e", AnyModel: true, Seed: 1}))
	repeat := func(key, tier string) pairing.Answer {
		body := `{"model":"auto","messages":[{"role":"user","content":"Hi"}],"max_tokens":8}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + key},
			"X-Model-Tier": {tier}}
		return r.Repeat(req)
	}
	for _, tier := range []string{"small", "large"} {
		a := repeat("operator", tier)
		text, _ := pairing.Text(openai.Chat, a.Body)
		if a.Result != pairing.Answered || a.Tier != tier || text == "" {
			t.Errorf("%s: %+v", tier, a)
		}
		d := r.lastRecord()
		if d.Tenant != "operator" || d.Tier != tier || d.Rule != "header" || d.Usage.Output == 0 {
			t.Errorf("the record is %+v", d)
		}
	}
	if n, _ := r.samples.Len(); n != 0 {
		t.Error("a repeated request is sampled")
	}
	if a := repeat("operator", "small"); a.Result != pairing.Refused || a.Status != http.StatusTooManyRequests {
		t.Errorf("beyond the budget: %d %s", a.Status, a.Code)
	}
	if a := repeat("revoked", "small"); a.Result != pairing.Refused || a.Status != http.StatusUnauthorized {
		t.Errorf("with an unknown key: %d %s", a.Status, a.Code)
	}
}

// TestRepeatedRequestStaysAtItsTier: the tenant of the key could move to a tier that the client may not use.
func TestRepeatedRequestStaysAtItsTier(t *testing.T) {
	var large atomic.Int32
	r := newSamplingRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if strings.Contains(string(body), `"l"`) {
			large.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions",
		strings.NewReader(`{"model":"auto","messages":[{"role":"user","content":"Hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer operator"},
		"X-Model-Tier": {"small"}}
	if a := r.Repeat(req); a.Result == pairing.Answered || large.Load() > 0 {
		t.Errorf("%+v; %d requests for the large tier", a, large.Load())
	}
}

// TestRepeatedRequestEndsWithItsContext without a result, whether its engine answers or not.
func TestRepeatedRequestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body) // net/http notices the end of a connection after the body
			<-q.Context().Done()
		})
		r := newSamplingRig(t, hangs)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions",
			strings.NewReader(`{"model":"small","messages":[{"role":"user","content":"Hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer operator"}}
		if a := r.Repeat(req); a.Result != pairing.Failed {
			t.Errorf("%+v", a)
		}
	})
}
