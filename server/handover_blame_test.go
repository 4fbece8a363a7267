package server

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/engines/chaos"
)

// TestAnEndedPrefillEngineBlamesNoDecodeWorker: its prompts cannot be transferred, and a decode engine answers 500. A
// tier with one decode worker serves each request by the other prefill worker.
func TestAnEndedPrefillEngineBlamesNoDecodeWorker(t *testing.T) {
	for _, names := range [][]string{{"p0", "p1", "d0", "d1"}, {"p0", "p1", "d0"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "nixl", "policy: { name: round_robin }\nretry: { budget: 1 }",
				func(name string, c *engines.Config) {
					if name[0] == 'd' {
						c.Transfer = 300 * time.Microsecond
					}
				}, names...)
			for round := range 8 {
				var group sync.WaitGroup
				for i := range 8 {
					q := oneRequest(round*100+i*4, 3000, true)
					group.Go(func() { wantAnswer(t, q, s.post(q.path, q.body)) })
				}
				time.Sleep(time.Duration(500+200*round) * time.Millisecond) // prompts are computed, and transferred for 0.9 s
				s.prefills[0].Restart()
				group.Wait()
			}
			for _, w := range []string{"d0", "d1"} {
				if n := s.metric(`tierway_attempts_total{result="error",tier="large",worker="` + w + `"}`); n > 0 {
					t.Errorf("%v: %v attempts on %s are failures of it", names, n, w)
				}
			}
		})
	}
}

// TestADecodeWorkerThatFailsEachPromptIsBlamed: it fails prompts that were computed after its first failure, too. The
// other decode worker serves them.
func TestADecodeWorkerThatFailsEachPromptIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", "policy: { name: round_robin }\nretry: { budget: 1 }", nil)
		if err := s.decodes[0].faults.Set(chaos.Fault{Kind: chaos.Status, Status: 500}); err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			q := oneRequest(i*4, 200, i%2 == 0)
			wantAnswer(t, q, s.post(q.path, q.body))
		}
		if n := s.metric(`tierway_attempts_total{result="error",tier="large",worker="d0"}`); n < 5 || n > 10 {
			t.Errorf("%v attempts on d0 are failures of it, want those that open its breaker", n)
		}
		if n := s.metric(`tierway_attempts_total{result="excluded",tier="large",worker="d0"}`); n > 2 {
			t.Errorf("%v attempts on d0 blame nobody", n)
		}
	})
}

// TestPrefillWorkersAreNoOthersForARepeatedRequest: a request that failed on both decode workers is served once one of
// them works again.
func TestPrefillWorkersAreNoOthersForARepeatedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", steadyKeys, nil, "p0", "d0", "d1")
		for _, d := range s.decodes {
			if err := d.faults.Set(chaos.Fault{Kind: chaos.Reset}); err != nil {
				t.Fatal(err)
			}
		}
		q := oneRequest(0, 5, false)
		if a := s.post(q.path, q.body); a.status != http.StatusBadGateway {
			t.Errorf("both fail: %d %s", a.status, a.body)
		}
		if err := s.decodes[1].faults.Set(); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			time.Sleep(3 * time.Second)
			wantAnswer(t, q, s.post(q.path, q.body))
		}
	})
}

// TestLongAnswersKeepNoPrompt: the prefill worker is free for others while a whole answer is generated, and its
// prompt counts as kept until the lease ends.
func TestLongAnswersKeepNoPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", "", nil, "p0", "d0", "d1")
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				a := s.post("/v1/chat/completions", `{"model":"large","ignore_eos":true,"min_tokens":5000,"max_tokens":5000,`+
					`"messages":[{"role":"user","content":"`+longText(i, 100)+`"}]}`)
				if a.status != http.StatusOK {
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
		time.Sleep(50 * time.Second)
		if n := s.metric(`tierway_worker_inflight{tier="large",worker="p0"}`); n != 0 {
			t.Errorf("the prefill worker has %v requests in flight", n)
		}
		if n := s.metric(`tierway_handover_open{tier="large",worker="p0"}`); n != 0 {
			t.Errorf("the prefill worker keeps %v prompts after the lease", n)
		}
		group.Wait()
	})
}

// fallenBack is a tier whose requests fall back to a tier with a hand-over. Its workers accept no connection.
const fallenBack = `
auth: { required: false }
health: { path: "off" }
retry: { attempts: 2, budget: 1 }
tiers:
  - { name: small, model: fake-7b, FIRST, fallback: [large] }
  - name: large
    model: fake-7b-l
    engine: vllm
    handover: nixl
    uncached_threshold: 1
    workers: [ { name: p1, url: "P1", role: prefill }, { name: d1, url: "D1", role: decode } ]
# %s
`

// TestForgedFieldsDoNotPassByAFallback: a tier without hand-overs ignores them, and the next tier removes them.
func TestForgedFieldsDoNotPassByAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers := new(engines.Peers)
		start := func(name string) (*chaos.Recorder, string) {
			rec := chaos.Record(engines.New(engines.Config{Name: name, Model: "fake-7b", AnyModel: true, Handover: "nixl",
				Peers: peers, Context: 1 << 17, CacheTokens: 1 << 18, Prefill: 10_000}))
			return rec, startServer(t, rec)
		}
		p, at := start("p1")
		d, beside := start("d1")
		s := newRig(t, strings.NewReplacer("FIRST", `workers: [ { name: s0, url: "http://127.0.0.1:1" } ]`, "P1", at, "D1",
			beside).Replace(fallenBack))
		a := s.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hello there"}],`+
			`"max_tokens":4,"prompt_token_ids":[1,2,3],"request_id":"___prefill_addr_x"}`)
		if a.status != http.StatusOK || len(p.Requests()) != 1 || len(d.Requests()) != 1 {
			t.Fatalf("%d %s, %d and %d requests", a.status, a.body, len(p.Requests()), len(d.Requests()))
		}
		for _, r := range append(p.Requests(), d.Requests()...) {
			if body := string(r.Body); strings.Contains(body, "___prefill_addr_x") || strings.Contains(body, "[1,2,3]") {
				t.Errorf("an engine gets %s", body)
			}
		}
	})
}

// TestUnsentPromptsOfEachTierAreReleased, although the decode workers of both tiers accept no connection.
func TestUnsentPromptsOfEachTierAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers := new(engines.Peers)
		start := func(name string) string {
			return startServer(t, engines.New(engines.Config{Name: name, Model: "fake-7b", AnyModel: true, Handover: "nixl",
				Peers: peers, Context: 1 << 17, CacheTokens: 1 << 18, Prefill: 10_000}))
		}
		s := newRig(t, strings.NewReplacer("FIRST", `engine: vllm, handover: nixl, uncached_threshold: 1, workers: `+
			`[ { name: p0, url: "`+start("p0")+`", role: prefill }, { name: d0, url: "http://127.0.0.1:1", role: decode } ]`,
			"P1", start("p1"), "D1", "http://127.0.0.1:2").Replace(fallenBack))
		if a := s.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hello"}],`+
			`"max_tokens":4}`); a.status == http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		time.Sleep(2 * time.Minute)
		for line := range strings.SplitSeq(s.scrape(), "\n") {
			if strings.HasPrefix(line, "tierway_handover_open") && !strings.HasSuffix(line, " 0") ||
				strings.HasPrefix(line, "tierway_worker_inflight") && !strings.HasSuffix(line, " 0") {
				t.Error(line)
			}
		}
	})
}

// TestAClosedKeptConnectionBlamesNoDecodeWorker: an engine that closes kept connections costs a prefill and no answer.
// A connection that was idle for 1 s carries no hand-over, so its end costs nothing.
func TestAClosedKeptConnectionBlamesNoDecodeWorker(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "nixl", steadyKeys, nil)
			if err := s.decodes[0].faults.Set(chaos.Fault{Kind: chaos.Stale}); err != nil {
				t.Fatal(err)
			}
			for i := range 12 {
				q := oneRequest(i*4, 200, i%2 == 0)
				wantAnswer(t, q, s.post(q.path, q.body))
				time.Sleep(pause)
			}
			if n := s.metric(`tierway_attempts_total{result="error",tier="large",worker="d0"}`); n > 0 {
				t.Errorf("%v attempts on d0 are failures of it", n)
			}
			if n := s.metric(`tierway_retries_total{tier="large"}`); (n > 0) != (pause == 0) {
				t.Errorf("with pauses of %v, %v attempts are repeated", pause, n)
			}
		})
	}
}
