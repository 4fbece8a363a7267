package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/engines"
	"tierway/openai/prompt"
	"tierway/server/learning"
	"tierway/telemetry"
)

// learningRig is a rig that writes features and labels. The keys of its tenants are their names. The tenant little may
// use one tier.
type learningRig struct {
	*rig
	dir string
}

const learningYAML = `
store: { sql: "" }
learning: { hash_key: 0123456789abcdef, directory: %q%s }
auth:
  keys:
    - { name: acme, sha256: %s, response_cache: true }
    - { name: other, sha256: %s }
    - { name: little, sha256: %s, tiers: [small] }
    - { name: private, sha256: %s, isolate_cache: true }
    - { name: slow, sha256: %s, limits: { rpm: 2, burst: 2, tpm: 1, day_tokens: 1 } }
health: { path: "off" }
retry: { attempts: 1 }
classifier: { preset: none, max_tokens: {}, keywords: [ { tier: large, name: proof, match: [prove] } ] }
tiers:
  - { name: small, model: s, context: 8000, response_cache: { exact: {} }, workers: [ { name: s0, url: %q } ] }
  - { name: large, model: l, context: 32000, workers: [ { name: l0, url: %q } ] }
`

// newLearningRig serves learningYAML with more keys of learning. The engine holds or refuses requests that say so.
func newLearningRig(t *testing.T, more string) *learningRig {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "learning")
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(1, 2))
	draw := func(o *Options) {
		o.Rand = func() uint64 { mu.Lock(); defer mu.Unlock(); return source.Uint64() }
	}
	return &learningRig{newRigWith(t, learningText(t, dir, more)+"# %s\n", draw), dir}
}

// learningText returns learningYAML with two engines.
func learningText(t *testing.T, dir, more string) string {
	t.Helper()
	url := func(name string) string {
		return startServer(t, engines.New(engines.Config{Name: name, AnyModel: true, Seed: 1,
			Script: func(_ string, body []byte) (s engines.Script) {
				switch text := string(body); {
				case strings.Contains(text, "hold"):
					s.HoldAfter = 1
				case strings.Contains(text, "refuse"):
					s.Refuse = http.StatusServiceUnavailable
				}
				return s
			}}))
	}
	return fmt.Sprintf(learningYAML, dir, more, digestHex("acme"), digestHex("other"), digestHex("little"),
		digestHex("private"), digestHex("slow"), url("s0"), url("l0"))
}

// as sends a request of a tenant.
func (r *learningRig) as(tenant, path, body string, headers ...string) httpAnswer {
	r.t.Helper()
	return r.post(path, body, append(headers, "Authorization", "Bearer "+tenant)...)
}

// flush writes the lines that wait, and returns those of both files.
func (r *learningRig) flush() (features []learning.Features, labels []learning.Label) {
	r.t.Helper()
	r.until("the requests have ended", func() bool { return r.Inflight() == 0 })
	ctx, stop := context.WithCancel(r.t.Context())
	stop()
	r.learning.Run(ctx)
	return linesOf[learning.Features](r.t, r.dir, "features.jsonl"), linesOf[learning.Label](r.t, r.dir, "labels.jsonl")
}

// linesOf returns the lines of a file of learning.directory.
func linesOf[T any](t *testing.T, dir, name string) (all []T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

// TestFeaturesOfAnsweredRequestsAreWritten: one line for each classified request that an engine answered, and none for
// any other request. No line has text.
func TestFeaturesOfAnsweredRequestsAreWritten(t *testing.T) {
	const chat = "/v1/chat/completions"
	hello := chatBody("auto", "Say hello", "")
	for _, c := range []struct {
		name, path, body string
		headers          []string
		times            int
		status           int
		want             []string // tier and rule of each line
	}{
		{name: "the default", path: chat, body: hello, want: []string{"small default"}},
		{name: "a keyword", path: chat, body: chatBody("auto", "prove it", ""), want: []string{"large keyword:proof"}},
		{name: "a stream", path: chat, body: chatBody("auto", "Say hello", `,"stream":true`), want: []string{"small default"}},
		{name: "a response", path: "/v1/responses", body: `{"model":"auto","input":"Say hello","store":false}`,
			want: []string{"small default"}},
		{name: "a message", path: "/v1/messages",
			body: `{"model":"auto","max_tokens":9,"messages":[{"role":"user","content":"Say hello"}]}`,
			want: []string{"small default"}},
		{name: "a kept answer", path: chat, body: chatBody("auto", "Say hello", `,"temperature":0`), times: 2,
			want: []string{"small default"}},
		{name: "an unknown tier", path: chat, body: hello, headers: []string{"X-Model-Tier", "huge"},
			want: []string{"small default"}},
		{name: "a named model", path: chat, body: chatBody("small", "Say hello", "")},
		{name: "X-Model-Tier", path: chat, body: hello, headers: []string{"X-Model-Tier", "large"}},
		{name: "a count of tokens", path: "/v1/messages/count_tokens",
			body: `{"model":"auto","messages":[{"role":"user","content":"Say hello"}]}`},
		{name: "an engine's error", path: chat, body: chatBody("auto", "refuse", ""), status: http.StatusServiceUnavailable},
		{name: "an invalid request", path: chat, body: `{"model":"auto"}`, status: http.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLearningRig(t, "")
				ids := make([]string, 0, 2)
				for range max(1, c.times) {
					got := r.as("acme", c.path, c.body, c.headers...)
					if want := max(c.status, http.StatusOK); got.status != want {
						t.Fatalf("%d %s", got.status, got.body)
					}
					ids = append(ids, got.header.Get("X-Request-Id"))
				}
				lines, labels := r.flush()
				var got []string
				for _, l := range lines {
					got = append(got, l.Tier+" "+l.Rule)
					if l.ID != ids[0] || l.Tenant != "acme" || l.Time.IsZero() || l.Baseline <= 0 || l.Explored != 0 ||
						l.Model != nil || l.Features.WordCount() == 0 {
						t.Errorf("%+v", l)
					}
				}
				if !slices.Equal(got, c.want) || len(labels) > 0 {
					t.Errorf("lines %v, want %v; %d labels", got, c.want, len(labels))
				}
				text, err := os.ReadFile(filepath.Join(r.dir, "features.jsonl"))
				if err != nil || strings.Contains(string(text), "hello") {
					t.Errorf("%v: %s", err, text)
				}
			})
		})
	}
}

// TestAnIsolatedTenantHasNoFeatures, explored requests or escalations.
func TestAnIsolatedTenantHasNoFeatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, ", exploration: 0.1")
		for range 50 {
			if got := r.as("private", "/v1/chat/completions", chatBody("auto", "Say hello", "")); got.status != http.StatusOK ||
				strings.HasPrefix(got.header.Get("X-Tier-Reason"), "exploration") {
				t.Fatalf("%d %v: %s", got.status, got.header, got.body)
			}
		}
		r.as("private", "/v1/chat/completions", chatBody("auto", "Say hello", ""), "X-Model-Tier", "large")
		if features, labels := r.flush(); len(features)+len(labels) > 0 {
			t.Errorf("%d lines of features, %d labels", len(features), len(labels))
		}
	})
}

// TestAClientThatLeavesHasNoFeatures: nothing is known about its answer.
func TestAClientThatLeavesHasNoFeatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, "")
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions",
			strings.NewReader(chatBody("auto", "hold", `,"stream":true`)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer acme")
		req.Header.Set("Content-Type", "application/json")
		resp, err := r.net.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		leave()
		resp.Body.Close()
		if features, _ := r.flush(); len(features) != 0 {
			t.Errorf("%+v", features)
		}
	})
}

// TestExploredRequestsAreMarked: their line has the propensity, the header and the record have the rule, and the chat
// stays at its tier. A tenant that may not use both tiers is not explored.
func TestExploredRequestsAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, ", exploration: 0.1")
		explored := map[string]int{}
		for i := range 200 {
			text := fmt.Sprintf("Say hello %d", i)
			if _, rule := tierOf(r.as("little", "/v1/chat/completions", chatBody("auto", text, ""))); rule == "exploration" {
				t.Fatal("a tenant of one tier is explored")
			}
			tier, rule := tierOf(r.as("acme", "/v1/chat/completions", chatBody("auto", text, "")))
			if rule != "exploration" {
				continue
			}
			explored[tier]++
			next := `{"model":"auto","messages":[{"role":"user","content":"` + text +
				`"},{"role":"assistant","content":"Hi"},{"role":"user","content":"Again"}]}`
			if again, by := tierOf(r.as("acme", "/v1/chat/completions", next)); again != tier || by == "exploration" {
				t.Fatalf("chat %d at %s went to %s by %s", i, tier, again, by)
			}
		}
		// 20 are expected, with a standard error of 4.
		if n := explored["small"] + explored["large"]; n < 8 || n > 32 || explored["small"] == 0 || explored["large"] == 0 {
			t.Errorf("explored are %v of 200", explored)
		}
		features, _ := r.flush()
		for _, l := range features {
			if want := map[bool]float64{true: 0.5}[l.Rule == "exploration"]; l.Explored != want {
				t.Errorf("a request by %s has the propensity %v", l.Rule, l.Explored)
			}
		}
		if !slices.ContainsFunc(r.recorded().Last(0), func(d *decisions.Decision) bool { return d.Rule == "exploration" }) {
			t.Error("no record has the rule exploration")
		}
		e := r.explained("/v1/chat/completions", chatBody("auto", "Say hello", ""), "Authorization", "Bearer acme")
		if e.Rule != "default" || !strings.Contains(strings.Join(e.Notes, "\n"),
			"learning.exploration: 10 % of such requests get the first or the last tier at random") {
			t.Errorf("explained by %s: %q", e.Rule, e.Notes)
		}
		r.as("acme", "/v1/chat/completions", chatBody("auto", "Say hello", ""))
		for name, body := range map[string][2]string{
			"a tenant without both tiers": {"little", chatBody("auto", "Say hello", "")},
			"a known chat": {"acme", `{"model":"auto","messages":[{"role":"user","content":"Say hello"},` +
				`{"role":"assistant","content":"Hi"},{"role":"user","content":"Again"}]}`},
			"a named tier": {"acme", chatBody("small", "Say hello", "")},
		} {
			e := r.explained("/v1/chat/completions", body[1], "Authorization", "Bearer "+body[0])
			if strings.Contains(strings.Join(e.Notes, "\n"), "learning.exploration") {
				t.Errorf("%s: %q", name, e.Notes)
			}
		}
	})
}

// TestDifferentPromptsAreNoEscalation: several prompts in a request, and a prompt that is longer than its chain, are
// known by their beginning only.
func TestDifferentPromptsAreNoEscalation(t *testing.T) {
	turns := strings.Repeat(`{"role":"user","content":"a"},`, prompt.MaxBlocks)
	for name, c := range map[string]struct {
		path, body string // %s is the end
		want       int
	}{
		"one prompt":      {"completions", `{"model":"auto","prompt":["Say hello"],"max_tokens":3}`, 1},
		"several prompts": {"completions", `{"model":"auto","prompt":["Say hello","Say %s"],"max_tokens":3}`, 0},
		"a long prompt":   {"chat/completions", `{"model":"auto","messages":[` + turns + `{"role":"user","content":"%s"}],"max_tokens":3}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLearningRig(t, "")
				r.as("acme", "/v1/"+c.path, strings.Replace(c.body, "%s", "one", 1))
				answer := r.as("acme", "/v1/"+c.path, strings.Replace(c.body, "%s", "two", 1), "X-Model-Tier", "large")
				if _, labels := r.flush(); len(labels) != c.want {
					t.Errorf("status %d, %d labels, want %d", answer.status, len(labels), c.want)
				}
			})
		})
	}
}

// TestRepeatsAtAHigherTierAreEscalations of the same tenant only.
func TestRepeatsAtAHigherTierAreEscalations(t *testing.T) {
	const chat = "/v1/chat/completions"
	for _, c := range []struct {
		name, tenant, model, text, header string
		after                             time.Duration
		want                              int
	}{
		{"by X-Model-Tier", "acme", "auto", "Say hello", "large", time.Minute, 1},
		{"by name", "acme", "large", "Say hello", "", time.Minute, 1},
		{"by the engine's name", "acme", "l", "Say hello", "", time.Minute, 1},
		{"at the same tier", "acme", "auto", "Say hello", "small", time.Minute, 0},
		{"without a tier", "acme", "auto", "Say hello", "", time.Minute, 0},
		{"of another prompt", "acme", "auto", "Say hi", "large", time.Minute, 0},
		{"of another tenant", "other", "auto", "Say hello", "large", time.Minute, 0},
		{"after an hour", "acme", "auto", "Say hello", "large", time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLearningRig(t, "")
				first := r.as("acme", chat, chatBody("auto", "Say hello", ""))
				time.Sleep(c.after)
				r.as(c.tenant, chat, chatBody(c.model, c.text, ""), "X-Model-Tier", c.header)
				_, labels := r.flush()
				if len(labels) != c.want {
					t.Fatalf("%d labels, want %d", len(labels), c.want)
				}
				for _, l := range labels {
					if l.ID != first.header.Get("X-Request-Id") || l.Tenant != "acme" || l.Tier != "small" || l.OK || l.Weight != 1 ||
						l.Source != learning.SourceEscalation {
						t.Errorf("%+v", l)
					}
				}
			})
		})
	}
}

// TestWaitingLinesAreWrittenAtTheEnd: a drain loses no line.
func TestWaitingLinesAreWrittenAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, net := t.TempDir(), networkOf(t)
		text := "listen: 127.0.0.1:9900\ninsecure: true\ndrain: { accept_grace: 0s }\n" + learningText(t, dir, "")
		file, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Config: file, Log: slog.New(slog.DiscardHandler), Metrics: telemetry.New("test"),
			Rand: func() uint64 { return 1 }, Listen: net.Listen, Dial: net.Dial})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		r := &learningRig{&rig{t: t, net: net, url: "http://127.0.0.1:9900"}, dir}
		for i := range 20 {
			id := fmt.Sprint("r", i)
			got := r.as("acme", "/v1/chat/completions", chatBody("auto", "Say hello", ""), "X-Request-Id", id)
			if got.status != http.StatusOK {
				t.Fatal(got.status, got.body)
			}
			if got := r.as("acme", "/v1/feedback", `{"id":"`+id+`","ok":true}`); got.status != http.StatusAccepted {
				t.Fatal(got.status, got.body)
			}
		}
		stop()
		running.Wait()
		features := linesOf[learning.Features](t, dir, "features.jsonl")
		labels := linesOf[learning.Label](t, dir, "labels.jsonl")
		if len(features) != 20 || len(labels) != 20 {
			t.Errorf("%d lines of features and %d of labels, want 20", len(features), len(labels))
		}
	})
}

// TestFeaturesOfStreamsAreWrittenForEachDialect: the bodies of streams are dropped before the
// request ends.
func TestFeaturesOfStreamsAreWrittenForEachDialect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLearningRig(t, "")
		for path, body := range map[string]string{
			"/v1/chat/completions": `{"model":"auto","stream":true,"messages":[{"role":"user","content":"How are you?"}]}`,
			"/v1/completions":      `{"model":"auto","stream":true,"prompt":["How are you?"]}`,
			"/v1/messages":         `{"model":"auto","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"How are you?"}]}`,
			"/v1/responses":        `{"model":"auto","stream":true,"store":false,"input":"How are you?"}`,
		} {
			if a := r.as("acme", path, body); a.status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, a.status, a.body)
			}
		}
		if features, _ := r.flush(); len(features) != 4 {
			t.Errorf("%d requests have features", len(features))
		}
		if n := r.counter("tierway_panics_total"); n != 0 {
			t.Errorf("%v panics: %s", n, r.logs)
		}
	})
}
