package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
)

// lmcacheConfig is a tier of engines with LMCache, with the options of the policy and the controller's URL.
func lmcacheConfig(t *testing.T, controller http.Handler, options string) string {
	t.Helper()
	return fmt.Sprintf(`
auth: { required: false }
health: { interval: 100ms, timeout: 100ms }
tiers:
  - name: small
    model: fake-7b
    policy: { name: lmcache_aware, controller_url: %q, %s }
    workers: [ %%s ]
`, startServer(t, controller), options)
}

const (
	lookupOptions    = `mode: prefix_lookup, lookup_timeout: 10s, ` + lmcacheMap
	occupancyOptions = `mode: occupancy, fallback: round_robin, ` + lmcacheMap
	lmcacheMap       = `lmcache_worker_map: { vllm-0: w0, vllm-1: w1, vllm-2: w2 }`
)

// lmcacheFleet returns three engines that are the instances vllm-0 to vllm-2.
func lmcacheFleet(t *testing.T, l *engines.LMCache) (all []http.Handler) {
	t.Helper()
	for i := range 3 {
		e := engines.New(engines.Config{Name: "fake", Model: "fake-7b", Seed: uint64(i), CacheTokens: 1 << 20})
		t.Cleanup(e.Close)
		l.Attach(fmt.Sprint("vllm-", i), e)
		all = append(all, e)
	}
	return all
}

func (r *rig) chatGoesTo(number int, worker, reason string) httpAnswer {
	r.t.Helper()
	a := r.post("/v1/chat/completions", chatAbout(number))
	if a.status != http.StatusOK {
		r.t.Fatalf("%d %s", a.status, a.body)
	}
	to, why := a.header.Get("X-Routed-To"), a.header.Get("X-Route-Reason")
	if to != worker && worker != "" || why != reason {
		r.t.Errorf("chat %d went to %s (%s), want %s (%s)", number, to, why, worker, reason)
	}
	return a
}

func (r *rig) wantMetrics(lines ...string) {
	r.t.Helper()
	scrape := r.scrape()
	for _, want := range lines {
		if !strings.Contains(scrape, want+"\n") {
			r.t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestRequestGoesToTheWorkerThatLMCacheNames (L1): only direct traffic has filled its cache.
func TestRequestGoesToTheWorkerThatLMCacheNames(t *testing.T) {
	for name, c := range map[string]engines.LMCacheConfig{"layout_info": {}, "res": {Old: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := engines.NewLMCache(c)
				r := newRig(t, lmcacheConfig(t, l, lookupOptions), lmcacheFleet(t, l)...)
				r.runControl()
				for chat := range 3 {
					sendDirectly(t, r.member(fmt.Sprint("w", chat)).Worker.Spec().URL, chatAbout(chat))
				}
				for _, chat := range []int{2, 0, 1} {
					a := r.chatGoesTo(chat, fmt.Sprint("w", chat), "lmcache_lookup")
					if strings.Contains(a.body, `"cached_tokens":0`) {
						t.Errorf("chat %d was not cached: %s", chat, a.body)
					}
				}
				if l.Lookups() != 3 {
					t.Errorf("%d look-ups", l.Lookups())
				}
				r.wantMetrics(`tierway_lmcache_lookups_total{result="match",tier="small"} 3`, `tierway_lmcache_up{tier="small"} 1`,
					`tierway_prefix_predictions_total{source="lookup",tier="small"} 3`,
					`tierway_lmcache_lookup_seconds_count{tier="small"} 3`,
					`tierway_prompt_lookups_total{result="answered",tier="small"} 3`)
			})
		})
	}
}

// TestExplanationLooksUpAsTheRequestDoes, with the tokens that are known.
func TestExplanationLooksUpAsTheRequestDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		r := newRig(t, lmcacheConfig(t, l, lookupOptions), lmcacheFleet(t, l)...)
		r.runControl()
		sendDirectly(t, r.member("w2").Worker.Spec().URL, chatAbout(1))
		r.chatGoesTo(1, "w2", "lmcache_lookup")
		e := r.explained("/v1/chat/completions", chatAbout(1))
		if e.Worker != "w2" || l.Lookups() != 2 {
			t.Errorf("explained as %s (%s) after %d look-ups", e.Worker, e.Reason, l.Lookups())
		}
		r.wantMetrics(`tierway_lmcache_lookups_total{result="match",tier="small"} 1`)
		for _, c := range e.Candidates {
			if (c.Worker == "w2") != (c.LMCacheTokens > 1000) {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestOverloadedHolderGetsNoRequest (L3): its backlog costs more than the prefill elsewhere.
func TestOverloadedHolderGetsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		fleet := lmcacheFleet(t, l)
		var blocked atomic.Bool
		release := make(chan struct{})
		holder := fleet[2]
		fleet[2] = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if blocked.Load() && strings.HasPrefix(q.URL.Path, "/v1/chat") {
				<-release
			}
			holder.ServeHTTP(w, q)
		})
		r := newRig(t, lmcacheConfig(t, l, lookupOptions), fleet...)
		r.runControl()
		url := r.member("w2").Worker.Spec().URL
		for chat := range 40 {
			sendDirectly(t, url, chatAbout(chat))
		}
		r.chatGoesTo(0, "w2", "lmcache_lookup")
		blocked.Store(true)
		var clients sync.WaitGroup
		onHolder, elsewhere := 0, 0
		for chat := 1; chat < 40; chat++ { // each is only on the holder
			clients.Go(func() { r.post("/v1/chat/completions", chatAbout(chat)) })
			synctest.Wait()
		}
		for _, g := range r.control.Pools.Gauges() {
			if g.Worker == "w2" {
				onHolder = g.Inflight
			}
		}
		close(release)
		clients.Wait()
		for _, w := range []string{"w0", "w1"} {
			elsewhere += int(r.answeredBy(w))
		}
		if onHolder == 0 || elsewhere == 0 {
			t.Errorf("%d requests waited on the worker that has all prompts, %d went elsewhere", onHolder, elsewhere)
		}
	})
}

// TestOccupancySelectsByKeys (L1): of versions with and without key_count; without numbers, the fallback decides.
func TestOccupancySelectsByKeys(t *testing.T) {
	for keys, reason := range map[string]string{engines.KeysInWorkers: "lmcache_occupancy",
		engines.KeysInStats: "lmcache_occupancy", engines.KeysNowhere: "power_of_two"} {
		t.Run(keys, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := engines.NewLMCache(engines.LMCacheConfig{Keys: keys})
				r := newRig(t, lmcacheConfig(t, l, `lmcache_worker_map: { vllm-0: w0, vllm-1: w1, vllm-2: w2 }`),
					lmcacheFleet(t, l)...)
				r.runControl()
				sendDirectly(t, r.member("w1").Worker.Spec().URL, chatAbout(1))
				time.Sleep(11 * time.Second)
				if reason == "power_of_two" {
					r.chatGoesTo(7, "", reason)
					return
				}
				r.chatGoesTo(7, "w1", reason)
				r.wantMetrics(`tierway_lmcache_workers{tier="small"} 3`)
			})
		})
	}
}

// TestFaultyControllerFailsNoRequest (L2): of each client's requests, one waits 200 ms at most, and the others do not
// wait.
func TestFaultyControllerFailsNoRequest(t *testing.T) {
	for name, fault := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, q *http.Request) { _, _ = io.ReadAll(q.Body); <-q.Context().Done() },
		"500":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"empty": func(http.ResponseWriter, *http.Request) {},
	} {
		for _, mode := range []string{lookupOptions, occupancyOptions} {
			t.Run(name+" "+mode[:17], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := engines.NewLMCache(engines.LMCacheConfig{})
					var faulty atomic.Bool
					controller := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
						if faulty.Load() {
							fault(w, q)
						} else {
							l.ServeHTTP(w, q)
						}
					})
					r := newRig(t, lmcacheConfig(t, controller, mode), lmcacheFleet(t, l)...)
					r.runControl()
					r.post("/v1/chat/completions", chatAbout(1))
					faulty.Store(true)
					const clients = 8
					var load sync.WaitGroup
					var slow atomic.Int64
					for client := range clients {
						load.Go(func() {
							for i := range 30 {
								began := time.Now()
								if a := r.post("/v1/chat/completions", chatAbout(client%2)); a.status != http.StatusOK {
									t.Errorf("%d %s", a.status, a.body)
								}
								took := time.Since(began)
								if took > 200*time.Millisecond {
									t.Errorf("request %d of client %d took %v", i, client, took)
								}
								if took > 100*time.Millisecond {
									slow.Add(1)
								}
								time.Sleep(500 * time.Millisecond)
							}
						})
					}
					load.Wait()
					if slow.Load() > clients {
						t.Errorf("%d requests waited", slow.Load())
					}
					r.wantMetrics(`tierway_lmcache_up{tier="small"} 0`)
					if mode != lookupOptions {
						r.chatGoesTo(1, "", "round_robin")
					}
				})
			})
		}
	}
}

// TestSaltedPromptsAreNotLookedUp: the controller knows a prompt by its tokens alone.
func TestSaltedPromptsAreNotLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		r := newRig(t, lmcacheConfig(t, l, lookupOptions), lmcacheFleet(t, l)...)
		r.runControl()
		body := strings.Replace(chatAbout(1), `"max_tokens"`, `"cache_salt":"tenant-a","max_tokens"`, 1)
		sendDirectly(t, r.member("w2").Worker.Spec().URL, body)
		if a := r.post("/v1/chat/completions", body); a.status != http.StatusOK ||
			a.header.Get("X-Route-Reason") == "lmcache_lookup" || l.Lookups() != 0 {
			t.Errorf("%d by %s after %d look-ups", a.status, a.header.Get("X-Route-Reason"), l.Lookups())
		}
	})
}

// TestReloadKeepsTheClientOfTheController if its options are the same, and ends it with the policy.
func TestReloadKeepsTheClientOfTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		var polls atomic.Int64
		controller := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			polls.Add(1)
			l.ServeHTTP(w, q)
		})
		e := startServer(t, lmcacheFleet(t, l)[0])
		text := "classifier: { preset: none }\nstore: { sql: \"\" }\n" + fmt.Sprintf(lmcacheConfig(t, controller,
			"poll_interval: 1s"), listOf(entryOf("vllm-0", e, 1)))
		r, from := newReloadRig(t, strings.ReplaceAll(text, "%", "%%")+"# %s\n")
		r.runControl()
		time.Sleep(time.Minute)
		from.write(strings.Replace(text, "weight: 1", "weight: 2", 1))
		r.reload()
		before := polls.Load()
		time.Sleep(time.Minute)
		if n := polls.Load() - before; n < 55 || n > 65 {
			t.Errorf("%d polls in a minute after a reload", n)
		}
		from.write(strings.Replace(text, "name: lmcache_aware", "name: kv_aware } # ", 1))
		r.reload()
		before = polls.Load()
		time.Sleep(time.Minute)
		if n := polls.Load() - before; n > 1 || strings.Contains(r.scrape(), "tierway_lmcache_up") {
			t.Errorf("%d polls in a minute without the policy", n)
		}
	})
}

// TestOverviewShowsTheStateOfTheController, with an item for the operator unless it is up.
func TestOverviewShowsTheStateOfTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		yaml := strings.Replace(adminYAML(memoryDB), "tiers:", fmt.Sprintf("policy: { name: lmcache_aware, "+
			"controller_url: %q, mode: prefix_lookup, lmcache_worker_map: { vllm-0: w0 } }\ntiers:", startServer(t, l)), 1)
		r := adminRigOf(newRig(t, yaml, fakeEngine(), fakeEngine()))
		r.runControl()
		state := func() string {
			v := r.overview()
			for _, item := range v.Attention {
				if strings.Contains(item.Message, "LMCache") {
					return v.Tiers[0].LMCache.State + ": " + item.Subject + ": " + item.Message
				}
			}
			return v.Tiers[0].LMCache.State
		}
		synctest.Wait()
		if got := state(); !strings.HasPrefix(got, "no_workers: tier small: LMCache's controller lists no worker:") {
			t.Error(got)
		}
		l.Attach("other", nil)
		time.Sleep(11 * time.Second)
		if got := state(); !strings.HasPrefix(got, "no_instance: tier small: LMCache's controller lists no worker of the") {
			t.Error(got)
		}
		l.Attach("vllm-0", nil)
		time.Sleep(10 * time.Second)
		if got := state(); got != "up" {
			t.Error(got)
		}
	})
}

// TestPrefillPolicyLooksUp: the policy of the prefill stage alone uses the controller, as in the fork's example.
func TestPrefillPolicyLooksUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, peers := engines.NewLMCache(engines.LMCacheConfig{}), new(engines.Peers)
		var list []string
		for i, role := range []string{engines.RolePrefill, engines.RolePrefill, engines.RoleDecode} {
			e := engines.New(engines.Config{Name: "fake", Model: "fake-7b", Seed: uint64(i), CacheTokens: 1 << 20,
				Handover: engines.HandoverNIXL, Role: role, Peers: peers})
			t.Cleanup(e.Close)
			l.Attach(fmt.Sprint("w", i), e)
			list = append(list, fmt.Sprintf("{ name: w%d, url: %q, role: %s }", i, startServer(t, e), role))
		}
		r := newRig(t, fmt.Sprintf(`
auth: { required: false }
health: { interval: 100ms, timeout: 100ms }
tiers:
  - name: small
    model: fake-7b
    handover: nixl
    uncached_threshold: 1
    policy: { name: round_robin }
    prefill_policy: { name: lmcache_aware, mode: prefix_lookup, lookup_timeout: 10s, controller_url: %q }
    workers: [ %s ]
`, startServer(t, l), strings.Join(list, ", "))+"# %s\n")
		r.runControl()
		for _, holder := range []string{"w0", "w1"} {
			number := int(holder[1] - '0')
			sendDirectly(t, r.member(holder).Worker.Spec().URL, chatAbout(number))
			if a := r.post("/v1/chat/completions", chatAbout(number)); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if l.Lookups() != 2 {
			t.Errorf("%d look-ups", l.Lookups())
		}
		r.wantMetrics(`tierway_lmcache_lookups_total{result="match",tier="small"} 2`)
	})
}
