package repeats

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/memnet"
	"tierway/openai"
	"tierway/pairing"
	"tierway/server/control"
	"tierway/server/learning"
	"tierway/telemetry"
)

// rig is a Repeater with two tiers, whose answers the test makes.
type rig struct {
	*Repeater
	t       *testing.T
	control *control.Control
	text    string // the configuration
	logs    bytes.Buffer

	mu     sync.Mutex // guards the rest
	sent   []string   // tier or model, and body, of each request
	labels []string
	answer func(r *http.Request, body string) pairing.Answer
}

// twoTiers repeats requests on small and large, with four slots each. %s is the judge.
const twoTiers = `
store: { sql: "" }
classifier: { preset: none }
health: { path: "off" }
auth: { keys: [ { name: operator, sha256: ad44dc8e51cfbfa55e81ddbb626b466241069045066846e7e4cd096131505290 },
                { name: acme, sha256: 5b9b7eed7a4b0d1f8ff1e1d2d1f8b8dd0ce4bd06e5d4cd4c2d0b1e1f0e2a1b3c } ] }
tiers:
  - { name: small, model: s, workers: [ { name: w0, url: "http://127.0.0.1:9", max_inflight: 4 } ] }
  - { name: large, model: l, workers: [ { name: w1, url: "http://127.0.0.1:10", max_inflight: 4 } ] }
learning:
  hash_key: 0123456789abcdef
  directory: d
  replay: { share: 0.1, api_key: the-key, judge: { %s }, timeout: 60s }
`

// newRig runs a Repeater to the end of the test, in a bubble.
func newRig(t *testing.T, judge string) *rig {
	t.Helper()
	r := &rig{t: t, text: fmt.Sprintf(twoTiers, judge)}
	r.answer = func(req *http.Request, _ string) pairing.Answer {
		if tier := req.Header.Get("X-Model-Tier"); tier != "" {
			return answered(tier, tier+"'s answer")
		}
		return answered("large", `{"A": true, "B": false}`)
	}
	log, metrics := slog.New(slog.NewTextHandler(&r.logs, nil)), telemetry.New("test")
	file, err := r.parse()
	if err != nil {
		t.Fatal(err)
	}
	r.control, err = control.New(control.Options{Config: file, Source: r.parse, Log: log, Metrics: metrics,
		Rand: func() uint64 { return 0 }, Recover: control.NewRecoverer(log, metrics), Dial: memnet.New().Dial})
	if err != nil {
		t.Fatal(err)
	}
	r.Repeater = New(Options{Control: r.control, Samples: new(pairing.Samples), Send: r.send, Labels: r, Log: log,
		Metrics: metrics, Rand: func() uint64 { return 0 }})
	if err := r.control.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		r.control.Close()
		if n, bytes := r.Samples.Len(); n+bytes != 0 {
			t.Errorf("%d samples with %d bytes are left", n, bytes)
		}
	})
	return r
}

// parse reads the configuration.
func (r *rig) parse() (*config.File, error) {
	return config.Parse("test.yaml", []byte(r.text), func(string) (string, bool) { return "", false })
}

// answered returns an answer of a tier in the dialect of chat.
func answered(tier, text string) pairing.Answer {
	return pairing.Answer{Tier: tier, Status: http.StatusOK, Body: fmt.Appendf(nil, `{"choices":[{"message":{"content":%q}}]}`,
		text)}
}

// send records a request and answers it.
func (r *rig) send(req *http.Request) pairing.Answer {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	to := req.Header.Get("X-Model-Tier")
	if to == "" {
		to = "judge"
	}
	r.sent = append(r.sent, to+" "+req.URL.Path+" "+string(body))
	answer := r.answer
	r.mu.Unlock()
	if a := req.Header.Get("Authorization"); a != "Bearer the-key" || req.Header.Get("X-Request-Priority") != "batch" ||
		req.Header.Get("Cache-Control") != "no-cache, no-store" {
		r.t.Errorf("the headers are %v", req.Header)
	}
	return answer(req, string(body))
}

// AddLabels implements Labels.
func (r *rig) AddLabels(labels ...learning.Label) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range labels {
		r.labels = append(r.labels, fmt.Sprintf("%s %s %s %t", l.ID, l.Tenant, l.Tier, l.OK))
		if l.Source != learning.SourceReplay || l.Weight != 1 || l.Time.IsZero() || l.Time.Location() != time.UTC {
			r.t.Errorf("%+v", l)
		}
	}
	if len(labels) != 2 {
		r.t.Errorf("%d labels at once", len(labels))
	}
	return nil
}

// add adds an answered sample.
func (r *rig) add(id string) {
	s := &pairing.Sample{ID: id, At: time.Now(), Tenant: "acme", Key: "config-5b9b7eed",
		Tiers: [2]string{"small", "large"}, Path: "/v1/chat/completions", Dialect: openai.Chat,
		Header: http.Header{"Openai-Beta": {"x"}},
		Body:   []byte(`{"model":"auto","messages":[{"role":"user","content":"secret"}],"stream":true,"temperature":0.5}`)}
	r.Samples.Add(s)
	r.Samples.Answered(s)
}

// pass lets time pass, and returns the requests and the labels since the last call.
func (r *rig) pass(d time.Duration) (sent, labels []string) {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, labels = r.sent, r.labels
	r.sent, r.labels = nil, nil
	return sent, labels
}

// setAnswer sets how requests are answered.
func (r *rig) setAnswer(f func(r *http.Request, body string) pairing.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// outcomes returns the number of samples by outcome, without those of 0.
func (r *rig) outcomes() string {
	rec := httptest.NewRecorder()
	r.Metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var all []string
	for line := range strings.Lines(rec.Body.String()) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), `tierway_learning_samples_total{outcome="`); ok &&
			!strings.HasSuffix(v, " 0") {
			all = append(all, strings.Replace(v, `"}`, "", 1))
		}
	}
	return strings.Join(all, ", ")
}
