package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
)

// rankServer is a server with data-parallel ranks that records what it is asked.
type rankServer struct {
	*engines.Ranks
	mu     sync.Mutex
	hosts  map[string]bool
	checks []time.Time // of GET /health
	chosen []string    // the headers that select a rank, of chats
}

func newRankServer(t *testing.T, n int, publish bool) *rankServer {
	t.Helper()
	s := &rankServer{hosts: map[string]bool{}, Ranks: engines.NewRanks(engines.Config{Name: "fake", Model: "fake-7b",
		Seed: 1, CacheTokens: 1 << 20, Network: networkOf(t).zmtp()}, n)}
	for r := range n {
		if !publish {
			break
		}
		if err := s.Rank(r).PublishEvents(t.Context(), "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.Close)
	return s
}

func (s *rankServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.hosts[r.Host] = true
	switch r.URL.Path {
	case "/health":
		s.checks = append(s.checks, time.Now())
	case "/v1/chat/completions":
		s.chosen = append(s.chosen, strings.Join(r.Header.Values("X-Data-Parallel-Rank"), ","))
	}
	s.mu.Unlock()
	s.Ranks.ServeHTTP(w, r)
}

// chats returns the number of chats that each rank got.
func (s *rankServer) chats(n int) []int64 {
	all := make([]int64, n)
	for r := range all {
		all[r] = s.Rank(r).Stats().Requests["/v1/chat/completions"]
	}
	return all
}

// withRanks is a tier whose worker w0 has four ranks, on a server that is checked every 100 ms.
func withRanks(policy, workers string) string {
	return `
auth: { required: false }
health: { interval: 100ms, timeout: 100ms }
tiers:
  - name: small
    model: fake-7b
    policy: { name: ` + policy + ` }
    workers: [ ` + workers + ` ]
# %s
`
}

func TestRanksAreWorkersOfOneServer(t *testing.T) {
	for form, workers := range map[string]string{
		"ranks": `{ name: w0, url: "%s", ranks: 4 }`,
		"one entry for each": `{ name: "r0", url: "%[1]s@0" }, { name: "r1", url: "%[1]s@1" },
      { name: "r2", url: "%[1]s@2" }, { name: "r3", url: "%[1]s@3" }`,
	} {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRankServer(t, 4, false)
				url := startServer(t, s)
				before := s.chats(4)
				r := newRig(t, withRanks("chwbl", fmt.Sprintf(workers, url)))
				name := "w0@"
				if form != "ranks" {
					name = "r"
				}
				r.runControl()
				homes := map[int]string{} // the worker of each prompt
				for i := range 32 {
					prompt := i % 8
					a := r.post("/v1/chat/completions", chatAbout(prompt), "X-Data-Parallel-Rank", "0", "X-DP-Rank", "0")
					to := a.header.Get("X-Routed-To")
					if a.status != http.StatusOK || !strings.HasPrefix(to, name) {
						t.Fatalf("%d from %q: %s", a.status, to, a.body)
					}
					if homes[prompt] == "" {
						homes[prompt] = to
					}
					if homes[prompt] != to {
						t.Errorf("prompt %d went to %s and to %s", prompt, homes[prompt], to)
					}
					s.mu.Lock()
					if got := s.chosen[len(s.chosen)-1]; name+got != to {
						t.Errorf("a request to %s selects the rank %q", to, got)
					}
					s.mu.Unlock()
				}
				want := make([]int64, 4)
				for prompt := range 8 {
					for rank := range want {
						if homes[prompt] == fmt.Sprintf("%s%d", name, rank) {
							want[rank] += 4
						}
					}
				}
				used := 0
				for rank, n := range s.chats(4) {
					if n -= before[rank]; n != want[rank] {
						t.Errorf("rank %d answered %d chats, want %d", rank, n, want[rank])
					} else if n > 0 {
						used++
					}
				}
				if used < 2 {
					t.Errorf("eight prompts went to %d ranks", used)
				}
				waitUntil(t, "third check", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.checks) >= 3 })
				s.mu.Lock()
				defer s.mu.Unlock()
				for i, at := range s.checks[1:] { // four per interval would be closer to each other
					if apart := at.Sub(s.checks[i]); apart < 90*time.Millisecond {
						t.Errorf("two checks are %s apart", apart)
					}
				}
				for host := range s.hosts {
					if strings.Contains(host, "@") || !strings.HasSuffix(url, host) {
						t.Errorf("the host %q was dialled", host)
					}
				}
				if strings.Contains(r.logs.String(), url+"@") || strings.Contains(r.accessLog(), url) {
					t.Errorf("the logs have the URL with a rank")
				}
				scrape := r.scrape()
				for rank := range 4 {
					if row := fmt.Sprintf("tierway_worker_up{tier=\"small\",worker=\"%s%d\"} 1", name, rank); !strings.Contains(scrape,
						row) {
						t.Errorf("the metrics lack %s", row)
					}
				}
			})
		})
	}
}

// TestRequestGoesToTheRankWhoseEventsNameItsPrompt: direct traffic has filled the cache of rank 2.
func TestRequestGoesToTheRankWhoseEventsNameItsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRankServer(t, 4, true)
		url := startServer(t, s)
		r := newRig(t, withRanks("kv_aware, lookup_timeout: 10s", fmt.Sprintf("{ name: w0, url: %q, ranks: 4 }", url)))
		r.runControl()
		for rank := range 4 {
			m := r.member(fmt.Sprintf("w0@%d", rank))
			waitUntil(t, "stream", func() bool { return m.Events.View().Live && m.Events.View().Streams == 1 })
		}
		direct := httptest.NewRequest(http.MethodPost, url+"/v1/chat/completions", strings.NewReader(chatAbout(1)))
		direct.Header.Set("X-Data-Parallel-Rank", "2")
		s.Rank(2).ServeHTTP(httptest.NewRecorder(), direct)
		home := r.member("w0@2")
		waitUntil(t, "event of the direct request", func() bool { return home.Events.View().Blocks > 0 })
		for rank := range 4 {
			if v := r.member(fmt.Sprintf("w0@%d", rank)).Events.View(); v.Blocks > 0 && rank != 2 {
				t.Errorf("rank %d has %d blocks of another rank", rank, v.Blocks)
			}
		}
		if a := r.post("/v1/chat/completions", chatAbout(1)); a.header.Get("X-Routed-To") != "w0@2" {
			t.Errorf("%d from %s", a.status, a.header.Get("X-Routed-To"))
		}
	})
}

// TestRanksOfAnUnreachableServerAreNotTried: the second attempt goes to another server.
func TestRanksOfAnUnreachableServerAreNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := newServer(t, http.NotFoundHandler())
		gone.Close()
		live := startServer(t, fakeEngine())
		yaml := strings.Replace(withRanks("round_robin",
			fmt.Sprintf("{ name: gone, url: %q, ranks: 16 }, { name: live, url: %q }",
				gone.URL, live)), "health: {", "health: { path: \"off\",", 1)
		r := newRig(t, yaml)
		for range 4 {
			if a := r.post("/v1/chat/completions", chatAbout(1)); a.status != http.StatusOK ||
				a.header.Get("X-Routed-To") != "live" {
				t.Fatalf("%d from %s: %s", a.status, a.header.Get("X-Routed-To"), a.body)
			}
		}
	})
}

// TestAdminDrainsOneRank: names, weights and records are those of the rank.
func TestAdminDrainsOneRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRankServer(t, 2, false)
		yaml := strings.Replace(adminYAML(memoryDB), "workers: [ %s ]",
			fmt.Sprintf("workers: [ { name: w0, url: %q, ranks: 2 } ] # %%s", startServer(t, s)), 1)
		r := adminRigOf(newRig(t, yaml))
		list := r.ops(http.StatusOK, http.MethodGet, "/admin/workers", "").body
		for _, want := range []string{`"name":"w0@0"`, `"name":"w0@1"`, `"rank":0`, `"rank":1`} {
			if !strings.Contains(list, want) {
				t.Errorf("the list lacks %s: %s", want, list)
			}
		}
		r.ops(http.StatusAccepted, http.MethodPost, "/admin/workers/w0@1/drain", "{}")
		for range 8 {
			a := r.post("/v1/chat/completions", chatAbout(1), "Authorization", "Bearer filed")
			if a.status != http.StatusOK || a.header.Get("X-Routed-To") != "w0@0" {
				t.Fatalf("%d from %s: %s", a.status, a.header.Get("X-Routed-To"), a.body)
			}
		}
		explained := r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain",
			`{"tenant":"filed","request":`+chatAbout(1)+`}`).body
		records := r.ops(http.StatusOK, http.MethodGet, "/admin/decisions", "").body
		if !strings.Contains(explained, `"w0@0"`) || !strings.Contains(records, `"w0@0"`) {
			t.Errorf("the explanation and the records do not name the rank: %s %s", explained, records)
		}
		r.ops(http.StatusOK, http.MethodPost, "/admin/workers/w0@1/undrain", "")
	})
}

// TestResponsesAreBookedOnTheServerOfARank: vLLM 0.32 chooses the rank of a response itself. The record names the
// server, its ranks' cached tokens count by their mean, and the engine's report does not judge the events of a rank.
func TestResponsesAreBookedOnTheServerOfARank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRankServer(t, 2, true)
		elsewhere := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/responses" {
				r.Header.Set("X-Data-Parallel-Rank", "1")
			}
			s.ServeHTTP(w, r)
		})
		url := startServer(t, elsewhere)
		other := publishing(t)
		yaml := strings.Replace(withRanks("kv_aware, lookup_timeout: 10s", fmt.Sprintf(
			"{ name: w0, url: %q, ranks: 2 }, { name: w1, url: %q }", url, startServer(t, other))), "model: fake-7b",
			"model: fake-7b\n    engine: vllm", 1)
		r := newRig(t, yaml)
		r.runControl()
		names := []string{"w0@0", "w0@1", "w1"}
		for _, name := range names {
			m := r.member(name)
			waitUntil(t, "stream", func() bool { return m.Events.View().Live })
		}
		rules := strings.Repeat("the rules of this agent have the same long words ", 200)
		body := fmt.Sprintf(`{"model":"fake-7b","max_output_tokens":1,"store":false,"instructions":%q,"input":"hello"}`,
			rules)
		direct := httptest.NewRequest(http.MethodPost, url+"/v1/responses", strings.NewReader(body))
		elsewhere.ServeHTTP(httptest.NewRecorder(), direct)
		waitUntil(t, "event of the direct request", func() bool { return r.member("w0@1").Events.View().Blocks > 0 })
		for i := range 40 {
			a := r.post("/v1/responses", body)
			if a.status != http.StatusOK || a.header.Get("X-Routed-To") != "w0" {
				t.Fatalf("response %d: %d from %s by %s", i, a.status, a.header.Get("X-Routed-To"), a.header.Get("X-Route-Reason"))
			}
		}
		for _, v := range r.control.Snapshot().Pools[0].Routing.Snapshot(time.Now()) {
			if v.EventsCredit < 1 || v.HistoryCredit < 1 {
				t.Errorf("%s: the credit of the events is %v, that of the history %v", v.ID, v.EventsCredit, v.HistoryCredit)
			}
		}
		if a := r.post("/v1/chat/completions", chatAbout(1)); !strings.HasPrefix(a.header.Get("X-Routed-To"), "w") ||
			a.status != http.StatusOK {
			t.Errorf("%d from %s", a.status, a.header.Get("X-Routed-To"))
		}
	})
}
