package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/config"
	"tierway/server/learning"
	"tierway/telemetry"
)

// repeating repeats every classified request on the tiers small and large, as the tenant operator. The model judge
// judges. The key of each tenant is its name. %[1]q is the directory of the labels, and the others are workers.
const repeating = `
store: { sql: "" }
drain: { accept_grace: 1s, timeout: 30s }
auth: { keys: [ { name: acme, sha256: ACME }, { name: operator, sha256: OPERATOR, default_priority: interactive } ] }
health: { path: "off" }
policy: { name: round_robin }
tiers:
  - { name: small, model: s, workers: [ { name: w0, url: %[2]q, max_inflight: 4 } ] }
  - { name: large, model: l, workers: [ { name: w1, url: %[3]q, max_inflight: 4 } ] }
pools: [ { name: judges, model: judge, serves: [chat], workers: [ { name: w2, url: %[4]q } ] } ]
learning:
  hash_key: 0123456789abcdef
  directory: %[1]q
  replay: { share: 0.1, api_key: operator, judge: { model: judge }, timeout: 60s }
`

// auto is a request that the classifier decides.
const auto = `{"model":"auto","temperature":0.5,"max_tokens":9,"stream":true,"messages":[{"role":"user","content":"How are you?"}]}`

// repeatsRig is a whole gateway that repeats requests. Its own handler is the engine of all workers.
type repeatsRig struct {
	*rig
	stop func() // ends the gateway; also called at the end of the test

	mu     sync.Mutex // guards the rest
	bodies []string   // requests of the workers, as "model body"
	answer func(w http.ResponseWriter, q *http.Request, model string)
}

// newRepeatsRig runs a gateway in a bubble.
func newRepeatsRig(t *testing.T) *repeatsRig {
	t.Helper()
	r := &repeatsRig{rig: &rig{t: t, net: networkOf(t), access: &logBuffer{}, logs: &logBuffer{}}}
	r.text = strings.NewReplacer("ACME", digestOf("acme"), "OPERATOR", digestOf("operator")).Replace(
		fmt.Sprintf(repeating, t.TempDir(), startServer(t, r), startServer(t, r), startServer(t, r)))
	file, err := r.parse()
	if err != nil {
		t.Fatal(err)
	}
	r.Server, err = New(Options{Config: file, Source: r.readSource, Log: slog.New(slog.NewTextHandler(r.logs, nil)),
		Access: r.access, Metrics: telemetry.New("test"), Rand: func() uint64 { return 0 }, Listen: r.net.Listen,
		Dial: r.net.Dial})
	if err == nil {
		err = r.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + r.Addr("data")
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = func() {
		stop()
		running.Wait()
		if n := r.Inflight(); n != 0 {
			t.Errorf("%d requests are in flight", n)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// parse reads the configuration.
func (r *repeatsRig) parse() (*config.File, error) {
	return config.Parse("test.yaml", []byte(r.text), func(string) (string, bool) { return "", false })
}

// change reloads the configuration with a change.
func (r *repeatsRig) change(old, new string) {
	r.t.Helper()
	r.text = strings.Replace(r.text, old, new, 1)
	r.source = r.parse
	r.reload()
}

// digestOf returns the digest of a key.
func digestOf(key string) string {
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(digest[:])
}

// ServeHTTP is the engine of all workers.
func (r *repeatsRig) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var request struct {
		Model  string
		Stream bool
	}
	if err != nil || json.Unmarshal(body, &request) != nil {
		r.t.Errorf("%s %v", body, err)
	}
	r.mu.Lock()
	r.bodies = append(r.bodies, request.Model+" "+string(body))
	answer := r.answer
	r.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, q, request.Model)
	case request.Stream:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}`,
			"\n\ndata: [DONE]\n\n")
	case request.Model == "judge":
		writeAnswer(w, `{"A": true, "B": false}`)
	default:
		writeAnswer(w, "I am "+request.Model)
	}
}

// writeAnswer writes a chat completion.
func writeAnswer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}`, text)
}

// setAnswer sets how the workers answer.
func (r *repeatsRig) setAnswer(f func(w http.ResponseWriter, q *http.Request, model string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// ask sends a request that the classifier decides, with an id.
func (r *repeatsRig) ask(id string) {
	r.t.Helper()
	if a := r.post("/v1/chat/completions", auto, "Authorization", "Bearer acme", "X-Request-Id", id); a.status != 200 {
		r.t.Errorf("%s: %d %s", id, a.status, a.body)
	}
}

// pass lets time pass and returns the requests since the last call.
func (r *repeatsRig) pass(d time.Duration) (bodies []string) {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	bodies, r.bodies = r.bodies, nil
	return bodies
}

// labels returns the lines of labels as "id tenant tier ok".
func (r *repeatsRig) labels() (all []string) {
	r.t.Helper()
	learned := r.control.Snapshot().File.Learning
	text, err := os.ReadFile(learned.LabelsFile())
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l learning.Label
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Source != learning.SourceReplay {
			r.t.Errorf("%s %v", line, err)
		}
		all = append(all, fmt.Sprintf("%s %s %s %t", l.ID, l.Tenant, l.Tier, l.OK))
	}
	return all
}

// ended returns the number of samples with an outcome.
func (r *repeatsRig) ended(outcome string) string {
	_, rest, _ := strings.Cut(r.scrape(), `tierway_learning_samples_total{outcome="`+outcome+`"} `)
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// TestRepeatedRequestsGiveLabels: a classified request is sent to both tiers without its stream, as a batch request of
// the operator's tenant, and the labels have the id of the client's request.
func TestRepeatedRequestsGiveLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatsRig(t)
		r.ask("r1")
		bodies := r.pass(3 * time.Second)
		if len(bodies) != 4 || strings.Contains(bodies[1]+bodies[2], "stream") || !strings.HasPrefix(bodies[1], "s ") ||
			!strings.HasPrefix(bodies[2], "l ") || !strings.HasPrefix(bodies[3], "judge ") ||
			!strings.Contains(bodies[1], `"temperature":0.5`) {
			t.Errorf("%q", bodies)
		}
		r.pass(time.Second) // the files are written with a delay
		if diff := cmp.Diff([]string{"r1 acme small true", "r1 acme large false"}, r.labels()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		var records []string
		for _, d := range r.recorded().Last(3) {
			records = append(records, d.Tenant+" "+d.Class+" "+d.Tier)
			if d.RequestID == "r1" {
				t.Error("a repeated request has the id of the client's")
			}
		}
		if diff := cmp.Diff([]string{"operator batch small", "operator batch large", "operator batch judges"},
			records); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if r.ended("labelled") != "1" || strings.Contains(r.logs.String()+r.accessLog(), "How are you") {
			t.Errorf("%s labelled; the logs have the prompt: %s", r.ended("labelled"), r.logs)
		}
	})
}

// TestRequestsWithTheReplayKeyGiveNoLabels: none is explored, repeated or written to the features.
func TestRequestsWithTheReplayKeyGiveNoLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatsRig(t)
		r.change("  directory:", "  exploration: 0.1\n  directory:")
		for tenant, rule := range map[string]string{"operator": "default", "acme": "exploration"} {
			a := r.post("/v1/chat/completions", auto, "Authorization", "Bearer "+tenant)
			if reason := a.header.Get("X-Tier-Reason"); !strings.HasPrefix(reason, rule) {
				t.Errorf("%s: %s", tenant, reason)
			}
		}
		r.pass(3 * time.Second)
		learned := r.control.Snapshot().File.Learning
		text, err := os.ReadFile(learned.FeaturesFile())
		if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), `"tenant":"acme"`) {
			t.Errorf("%s %v", text, err)
		}
		if got := r.ended("labelled"); got != "1" {
			t.Errorf("%s labelled", got)
		}
	})
}

// TestRequestsOfClientsDeferRepeatedOnes: two of four slots of the large tier are in use.
func TestRequestsOfClientsDeferRepeatedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatsRig(t)
		r.ask("r1")
		release := make(chan struct{})
		r.setAnswer(func(w http.ResponseWriter, _ *http.Request, model string) {
			if model == "l" {
				<-release
			}
			writeAnswer(w, `{"A": true, "B": true}`)
		})
		var clients sync.WaitGroup
		for range 2 {
			clients.Go(func() {
				r.post("/v1/chat/completions", `{"model":"large","messages":[{"role":"user","content":"x"}]}`,
					"Authorization", "Bearer acme")
			})
		}
		synctest.Wait()
		r.pass(0)
		if bodies := r.pass(time.Minute); len(bodies) != 0 {
			t.Errorf("sent %q", bodies)
		}
		close(release)
		clients.Wait()
		r.pass(3 * time.Second)
		if got := r.labels(); len(got) != 2 {
			t.Errorf("%q", got)
		}
	})
}

// TestBudgetOfTheOperatorEndsTheRepetition, while clients are served.
func TestBudgetOfTheOperatorEndsTheRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatsRig(t)
		r.change("default_priority: interactive", "limits: { day_tokens: 70 }")
		for i := range 4 {
			r.ask(fmt.Sprint("r", i))
		}
		r.pass(time.Minute)
		if r.ended("labelled") != "1" || r.ended("refused")+r.ended("judge_failed") == "00" ||
			!strings.Contains(r.logs.String(), "code insufficient_quota") {
			t.Errorf("%s labelled, %s refused, %s; %s", r.ended("labelled"), r.ended("refused"), r.ended("judge_failed"), r.logs)
		}
	})
}

// TestReloadWithoutAShareDropsTheSamples at once.
func TestReloadWithoutAShareDropsTheSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatsRig(t)
		r.ask("r1")
		r.change("share: 0.1", "share: 0")
		if got := r.ended("dropped"); got != "1" {
			t.Errorf("%s dropped", got)
		}
		r.ask("r2")
		if bodies := r.pass(time.Minute); len(bodies) != 2 {
			t.Errorf("sent %q", bodies)
		}
	})
}

// TestDrainEndsTheRepeatedRequestInFlight: the gateway stops although an engine hangs, and nothing is left.
func TestDrainEndsTheRepeatedRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatsRig(t)
		r.ask("r1")
		r.setAnswer(func(_ http.ResponseWriter, q *http.Request, _ string) {
			_, _ = io.Copy(io.Discard, q.Body)
			<-q.Context().Done()
		})
		if bodies := r.pass(10 * time.Second); len(bodies) != 2 || r.Inflight() != 1 {
			t.Errorf("sent %q, %d in flight", bodies, r.Inflight())
		}
		r.stop()
		if got := r.ended("dropped"); got != "1" {
			t.Errorf("%s dropped", got)
		}
	})
}
