package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/engines"
	"tierway/engines/chaos"
)

// TestADecodeWorkerThatClosesEachConnectionIsBlamed, although whole requests keep its connections in use.
func TestADecodeWorkerThatClosesEachConnectionIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl", "policy: { name: round_robin }\nretry: { budget: 1 }", nil)
		err := s.decodes[0].faults.Set(chaos.Fault{Kind: chaos.Close, Paths: []string{"/v1/chat/completions"}})
		if err != nil {
			t.Fatal(err)
		}
		whole := wholeRequests["prompt"][0]
		for i := range 40 {
			for range 2 { // one for each decode worker
				if a := s.post(whole.path, whole.body); a.status != http.StatusOK {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
			q := oneRequest(i*4, 200, i%2 == 0)
			wantAnswer(t, q, s.post(q.path, q.body))
		}
		failed := s.metric(`tierway_attempts_total{result="error",tier="large",worker="d0"}`)
		if excused := s.metric(`tierway_attempts_total{result="excluded",tier="large",worker="d0"}`); failed < 5 ||
			excused > 1 {
			t.Errorf("%v attempts on d0 are failures of it, %v blame nobody", failed, excused)
		}
	})
}

// oneAttempt sends each request to one worker only.
const oneAttempt = "policy: { name: round_robin }\nretry: { attempts: 1 }"

// postUnsent posts a request whose decode worker is x0, which accepts no connection, when d0 has the faults.
func (s *stagesRig) postUnsent(faults ...chaos.Fault) (a httpAnswer, took time.Duration) {
	s.t.Helper()
	q := oneRequest(0, 2000, false) // computed for 0.2 s
	if a = s.post(q.path, q.body); a.status != http.StatusOK {
		time.Sleep(5 * time.Second) // x0 gets requests again
		wantAnswer(s.t, q, s.post(q.path, q.body))
	}
	time.Sleep(5 * time.Second)
	if err := s.decodes[0].faults.Set(faults...); err != nil {
		s.t.Fatal(err)
	}
	q = oneRequest(4, 2000, false)
	began := time.Now()
	a = s.post(q.path, q.body)
	return a, time.Since(began)
}

// TestTheReleaseOfAPromptIsNoPartOfItsRequest: the answer does not wait until another decode worker has read the
// prompt, and the record shows the worker that failed.
func TestTheReleaseOfAPromptIsNoPartOfItsRequest(t *testing.T) {
	for _, faults := range [][]chaos.Fault{nil, {{Kind: chaos.Hang}}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "nixl", oneAttempt, nil, "p0", "d0", "x0")
			failed := s.handovers("failed")
			a, took := s.postUnsent(faults...)
			if a.status != http.StatusBadGateway || took > time.Second {
				t.Errorf("answered after %v: %d %s", took, a.status, a.body)
			}
			if s.Inflight() == 0 {
				t.Error("a drain does not wait for the release")
			}
			time.Sleep(abandonTime)
			synctest.Wait()
			if n := s.Inflight(); n != 0 {
				t.Errorf("%d requests are in flight", n)
			}
			for _, w := range s.stages {
				for _, q := range w.Requests() {
					if q.Header.Get("X-Request-Id") == "" {
						t.Errorf("%s receives a request without X-Request-Id", w.name)
					}
				}
			}
			d := s.recorded().Last(1)[0]
			if len(d.Attempts) != 1 || d.Worker != "x0" || d.Attempts[0].ErrorType != decisions.ErrorConnect {
				t.Errorf("the record is %+v", d)
			}
			if n := s.handovers("failed") - failed; n < 1 || n > 2 || s.handovers("abandoned") != 0 {
				t.Errorf("%v hand-overs failed, %v are abandoned", n, s.handovers("abandoned"))
			}
			for _, w := range []string{"p0", "d0", "x0"} {
				if n := s.metric(`tierway_worker_inflight{tier="large",worker="` + w + `"}`); n != 0 {
					t.Errorf("%s has %v requests in flight", w, n)
				}
			}
			if faults == nil {
				s.wantClean()
			}
		})
	}
}

// TestAComputedPromptIsNotRefunded, whether a decode worker is left that reads it or not.
func TestAComputedPromptIsNotRefunded(t *testing.T) {
	for _, names := range [][]string{{"p0", "x0"}, {"p0", "x0", "d0"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStagesRig(t, "nixl", oneAttempt, nil, names...)
			limited := s.another(1, "auth: { required: false }", fmt.Sprintf(
				"auth: { keys: [ { name: acme, sha256: %s, limits: { rpm: 1, burst: 6 } } ] }", digestHex("acme")))
			var left []string
			for i := range 3 {
				q := oneRequest(4*i, 2000, false)
				a := limited.post(q.path, q.body, "Authorization", "Bearer acme")
				left = append(left, a.header.Get("X-Ratelimit-Remaining-Requests"))
				time.Sleep(5 * time.Second)
			}
			if got := strings.Join(left, " "); got != "5 4 3" {
				t.Errorf("%v: %s requests are left", names, got)
			}
		})
	}
}

// TestEachTierHasTimeToReleaseItsPrompt: neither the fallback nor the release in its tier waits for the first one.
func TestEachTierHasTimeToReleaseItsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers, all, faults := new(engines.Peers), map[string]*engines.Engine{}, map[string]*chaos.Handler{}
		start := func(name string) string {
			all[name] = engines.New(engines.Config{Name: name, Model: "fake-7b", AnyModel: true, Handover: "nixl", Peers: peers,
				Context: 1 << 17, CacheTokens: 1 << 18, Prefill: 10_000})
			faults[name] = chaos.New(all[name])
			return startServer(t, faults[name])
		}
		tier := func(n string) string {
			return `engine: vllm, handover: nixl, uncached_threshold: 1, policy: { name: round_robin }, workers: [ ` +
				`{ name: p` + n + `, url: "` + start("p"+n) + `", role: prefill }, { name: d` + n + `, url: "` + start("d"+n) +
				`", role: decode }, { name: x` + n + `, url: "http://127.0.0.1:1` + n + `", role: decode } ] }` + "\n"
		}
		s := newRig(t, "auth: { required: false }\nhealth: { path: \"off\" }\nretry: { attempts: 1 }\ntiers:\n"+
			"  - { name: small, model: fake-7b, fallback: [large], "+tier("0")+"  - { name: large, model: fake-7b-l, "+tier("1")+
			"# %s\n")
		post := func(model string) httpAnswer {
			return s.post("/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"Hello"}],`+
				`"max_tokens":4}`)
		}
		for _, next := range [][2]string{{"small", "d0"}, {"large", "d1"}} { // then it is the turn of x0 and x1
			for range 2 {
				post(next[0])
				synctest.Wait()
				time.Sleep(5 * time.Second) // x0 and x1 get requests again
				if s.recorded().Last(1)[0].Attempts[0].Worker == next[1] {
					break
				}
			}
		}
		used := all["d1"].Stats().ObjectsUsed
		if err := faults["d0"].Set(chaos.Fault{Kind: chaos.Hang}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a := post("small")
		if took := time.Since(began); a.status == http.StatusOK || took > time.Second {
			t.Errorf("answered after %v: %d %s", took, a.status, a.body)
		}
		time.Sleep(2 * time.Minute)
		if n := all["d1"].Stats().ObjectsUsed - used; n != 1 || all["p0"].Stats().BlocksLeaked == 0 {
			t.Errorf("d1 has read %d prompts, and p0 has %d leaked blocks", n, all["p0"].Stats().BlocksLeaked)
		}
		if n := all["p1"].Stats().BlocksLeaked; n != 0 || s.Inflight() != 0 {
			t.Errorf("p1 has %d leaked blocks, and %d requests are in flight", n, s.Inflight())
		}
	})
}
