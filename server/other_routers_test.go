package server

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/fixedseed"
	"tierway/routing"
)

// otherRoutersHead begins the configuration of every example: two workers, whose list follows.
const otherRoutersHead = `
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
`

// ask sends a chat and returns the worker and the reason.
func (r *rig) ask(model, more string, headers ...string) (worker, reason string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]%s}`, model, more)
	got := r.post("/v1/chat/completions", body, headers...)
	if got.status != http.StatusOK {
		r.t.Fatalf("%d %s", got.status, got.body)
	}
	return got.header.Get("X-Routed-To"), got.header.Get("X-Route-Reason")
}

// staysTogether fails the test unless twenty values of a key each stay at one worker, and not all at the
// same. send sends a request with that value.
func (r *rig) staysTogether(reason routing.Reason, send func(value string) (worker, why string)) {
	r.t.Helper()
	used := map[string]int{}
	for i := range 20 {
		value := fmt.Sprint("value-", i)
		first, why := send(value)
		used[first]++
		if again, _ := send(value); again != first || why != string(reason) {
			r.t.Errorf("%s went to %s (%s), and then to %s", value, first, why, again)
		}
	}
	if len(used) < 2 {
		r.t.Errorf("all values went to %v", used)
	}
}

// counts returns how many of n equal requests each worker got.
func (r *rig) counts(n int, model, more string) map[string]int {
	r.t.Helper()
	got := map[string]int{}
	for range n {
		worker, _ := r.ask(model, more)
		got[worker]++
	}
	return got
}

// TestExamplesOfOtherRouters serves the examples of the documents of vLLM Router, its fork, Continuum Router and of a
// router built by hand: each with its own words, where these are read, and the behaviour that it describes.
func TestExamplesOfOtherRouters(t *testing.T) {
	bySession := func(header string) func(r *rig) {
		return func(r *rig) {
			r.staysTogether(routing.ReasonSessionHome, func(v string) (string, string) { return r.ask("small", "", header, v) })
		}
	}
	inBody := func(field string) func(r *rig) {
		return func(r *rig) {
			r.staysTogether(routing.ReasonSessionHome, func(v string) (string, string) {
				return r.ask("small", fmt.Sprintf(field, v))
			})
		}
	}
	inTurn := func(r *rig) {
		if got := r.counts(10, "small", ""); got["w0"] != 5 || got["w1"] != 5 {
			r.t.Errorf("ten requests went to %v", got)
		}
	}
	both := func(r *rig) {
		if got := r.counts(40, "small", ""); got["w0"] < 5 || got["w1"] < 5 {
			r.t.Errorf("forty requests went to %v", got)
		}
	}
	oneWorker := func(model string, reason routing.Reason) func(r *rig) {
		return func(r *rig) {
			if got := r.counts(10, model, ""); len(got) != 1 {
				r.t.Errorf("ten requests went to %v", got)
			}
			if _, why := r.ask(model, ""); why != string(reason) {
				r.t.Errorf("the reason is %q, want %q", why, reason)
			}
		}
	}
	const hash, model = "policy: { name: consistent_hash }\n",
		"policy: { name: random }\nmodels: { gpt-4: small, llama3: small, gpt-3.5-turbo: small }\n"
	for name, c := range map[string]struct {
		config string
		check  func(r *rig)
	}{
		"vLLM Router, X-Session-ID":             {hash, bySession("X-Session-ID")},
		"vLLM Router, X-User-ID":                {hash, bySession("X-User-ID")},
		"vLLM Router, X-Tenant-ID":              {hash, bySession("X-Tenant-ID")},
		"vLLM Router, X-Request-ID":             {hash + "session_keys: [X-Session-ID, X-Request-ID]\n", bySession("X-Request-ID")},
		"vLLM Router, X-Correlation-ID":         {hash + "session_keys: [X-Correlation-ID]\n", bySession("X-Correlation-ID")},
		"vLLM Router, session_params":           {hash, inBody(`,"session_params":{"session_id":%q}`)},
		"vLLM Router, user":                     {hash, inBody(`,"user":%q`)},
		"vLLM Router, session_id":               {hash, inBody(`,"session_id":%q`)},
		"vLLM Router, user_id":                  {hash, inBody(`,"user_id":%q`)},
		"OpenAI, prompt_cache_key":              {hash, inBody(`,"prompt_cache_key":%q`)},
		"Codex, Session-Id":                     {hash, bySession("Session-Id")},
		"vLLM Router, no key: the body's hash":  {"policy: { name: consistent_hash, fallback_key: body }\n", oneWorker("small", routing.ReasonBodyHome)},
		"vLLM Router, no key: the prompt":       {hash, oneWorker("small", routing.ReasonPrefixHome)},
		"vLLM Router, round_robin":              {"policy: { name: round_robin }\n", inTurn},
		"vLLM Router, random":                   {"policy: { name: random }\n", both},
		"vLLM Router, power_of_two":             {"policy: { name: power_of_two }\n", both},
		"vLLM Router, cache_aware":              {"policy: { name: cache_aware, cache_threshold: 0.5, balance_abs_threshold: 32, balance_rel_threshold: 1.1, eviction_interval: 30s, max_tree_size: 10000 }\n", cacheMatch},
		"its fork, rendezvous_hash":             {"policy: { name: rendezvous_hash }\n", bySession("X-Session-ID")},
		"its fork, X-Semantic-Cluster-ID":       {"policy: { name: rendezvous_hash }\nsession_keys: [X-Semantic-Cluster-ID, X-Session-ID]\n", bySession("X-Semantic-Cluster-ID")},
		"its fork, kv_aware":                    {"policy: { name: kv_aware }\n", repeatsStay},
		"Continuum, RoundRobin":                 {"policy: { name: round_robin }\n", inTurn},
		"Continuum, Random":                     {"policy: { name: random }\n", both},
		"Continuum, LeastLatency":               {"policy: { name: least_latency }\n", both},
		"Continuum, ConsistentHash":             {"policy: { name: consistent_hash, key: model }\n", oneWorker("small", routing.ReasonModelHome)},
		"Continuum, PrefixAwareHash":            {"policy: { name: chwbl, no_key: model_hash, max_prefix_length: 1024, epsilon: 0.25, virtual_nodes: 150 }\n", oneWorker("small", routing.ReasonPrefixHome)},
		"Continuum, KvOverlapScorer":            {"policy: { name: kv_overlap, fallback: chwbl, no_key: model_hash, epsilon: 0.25 }\n", overlaps},
		"Continuum, mixed with a fallback":      {"policy: { name: least_latency, fallback: round_robin }\n", inTurn},
		"Continuum, an override for a model":    {model + "policy_rules: [ { model: gpt-4, policy: { name: consistent_hash, key: model } }, { model: llama3, policy: { name: weighted_round_robin } } ]\n", overridden},
		"Continuum, rules for requests":         {model + "policy_rules: [ { model: gpt-4, max_tokens: { above: 2000 }, policy: { name: consistent_hash, key: model } }, { model: gpt-3.5-turbo, stream: true, policy: { name: least_latency, fallback: round_robin } } ]\n", ruled},
		"a router by hand, the system prompt":   {"policy: { name: chwbl, max_prefix_length: 512 }\n", oneWorker("small", routing.ReasonPrefixHome)},
		"a router by hand, no prompt in common": {"policy: { name: least_load }\n", both},
		"nginx, least_conn":                     {"policy: { name: least_load }\n", both},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRigWith(t, otherRoutersHead+c.config, fixedRand, fakeEngine(), fakeEngine())
				c.check(r)
				r.until("nothing is in flight", func() bool { return r.Inflight() == 0 })
			})
		})
	}
}

// cacheMatch: the second request of a prompt goes where its cache is.
func cacheMatch(r *rig) {
	long := `,"metadata":{"x":"y"}`
	first, why := r.ask("small", long)
	if again, match := r.ask("small", long); again != first || why != string(routing.ReasonCacheMiss) ||
		match != string(routing.ReasonCacheMatch) {
		r.t.Errorf("%s (%s), then %s (%s)", first, why, again, match)
	}
}

// repeatsStay: equal prompts stay with the worker that has computed them.
func repeatsStay(r *rig) {
	first, _ := r.ask("small", "")
	for range 5 {
		if again, why := r.ask("small", ""); again != first || why != string(routing.ReasonKVHistory) {
			r.t.Errorf("%s, then %s (%s)", first, again, why)
		}
	}
}

// overlaps: without overlap the prefix decides, and then the score.
func overlaps(r *rig) {
	first, why := r.ask("small", "")
	if again, then := r.ask("small", ""); again != first || why != string(routing.ReasonPrefixHome) ||
		then != string(routing.ReasonKVOverlap) {
		r.t.Errorf("%s (%s), then %s (%s)", first, why, again, then)
	}
}

func overridden(r *rig) {
	for model, want := range map[string]routing.Reason{
		"gpt-4": routing.ReasonModelHome, "llama3": routing.ReasonWeightedRoundRobin, "gpt-3.5-turbo": routing.ReasonRandom,
	} {
		if _, why := r.ask(model, ""); why != string(want) {
			r.t.Errorf("%s: %s, want %s", model, why, want)
		}
	}
}

func ruled(r *rig) {
	for name, c := range map[string]struct {
		model, more string
		want        routing.Reason
	}{
		"a long answer": {"gpt-4", `,"max_tokens":2001`, routing.ReasonModelHome},
		"a short one":   {"gpt-4", `,"max_tokens":2000`, routing.ReasonRandom},
		"a stream":      {"gpt-3.5-turbo", `,"stream":true`, routing.ReasonRoundRobin},
		"no stream":     {"gpt-3.5-turbo", ``, routing.ReasonRandom},
	} {
		if _, why := r.ask(c.model, c.more); why != string(c.want) {
			r.t.Errorf("%s: %s, want %s", name, why, c.want)
		}
	}
}

func fixedRand(o *Options) { o.Rand = fixedseed.Uint64() }

// TestLoadPoliciesAvoidABusyWorker
func TestLoadPoliciesAvoidABusyWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []string{"least_load", "power_of_two", "kv_aware"} {
			r := newRigWith(t, otherRoutersHead+"policy: { name: "+policy+" }\n", fixedRand,
				fakeEngine(), fakeEngine())
			small := r.control.Snapshot().ByName["small"]
			lease, err := small.Routing.Acquire(&routing.Request{Now: time.Now(), Only: small.Members["w0"], Stream: true,
				PromptTokens: 20_000, OutputTokens: 5000})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.counts(10, "small", ""); got["w1"] != 10 {
				t.Errorf("%s: ten requests went to %v", policy, got)
			}
			lease.Release(routing.Result{})
		}
	})
}

// TestImbalancedLoadsOverrideTheCache, as cache_aware of vLLM Router describes it.
func TestImbalancedLoadsOverrideTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, otherRoutersHead+"policy: { name: cache_aware, balance_abs_threshold: 2 }\n", fakeEngine(),
			fakeEngine())
		small := r.control.Snapshot().ByName["small"]
		home, _ := r.ask("small", "")
		var leases []routing.Lease
		for range 3 {
			lease, err := small.Routing.Acquire(&routing.Request{Now: time.Now(), Only: small.Members[home]})
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		if worker, why := r.ask("small", ""); worker == home || why != string(routing.ReasonImbalanced) {
			t.Errorf("it went to %s (%s)", worker, why)
		}
		for i := range leases {
			leases[i].Release(routing.Result{})
		}
		if worker, why := r.ask("small", ""); why != string(routing.ReasonCacheMatch) { // both have it now
			t.Errorf("it went to %s (%s)", worker, why)
		}
	})
}

// TestStreamsPreferTheFasterWorker after ten samples of each.
func TestStreamsPreferTheFasterWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := engines.New(engines.Config{Model: "fake-7b", Prefill: 100}) // each prompt takes a tenth of a second
		r := newRig(t, otherRoutersHead+"policy: { name: least_latency, fallback: round_robin }\n", slow,
			engines.New(engines.Config{Model: "fake-7b"}))
		for i := range 30 {
			worker, why := r.ask("small", `,"stream":true`)
			if warm := i >= 20; warm && (worker != "w1" || why != string(routing.ReasonLeastLatency)) ||
				!warm && why != string(routing.ReasonRoundRobin) {
				t.Errorf("stream %d went to %s (%s)", i, worker, why)
			}
		}
	})
}

// TestBackendsOfSomeModelsRegionsAndPriorities: a request goes to a worker with its model, of the nearest region and
// the first priority.
func TestBackendsOfSomeModelsRegionsAndPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var urls []any
		for range 4 {
			urls = append(urls, startServer(t, engines.New(engines.Config{AnyModel: true})))
		}
		r := newRig(t, fmt.Sprintf(`
auth: { required: false }
health: { path: "off" }
region: us-west
policy: { name: round_robin }
pools:
  - name: all
    models: [fake-a, fake-b]
    serves: [chat]
    workers:
      - { name: a0, url: %q, models: [fake-a], region: us-east, priority: 1 }
      - { name: a1, url: %q, models: [fake-a], region: us-west, priority: 1 }
      - { name: a2, url: %q, models: [fake-a], region: us-west, priority: 2 }
      - { name: b0, url: %q, models: [fake-b], region: us-east }
`, urls...)+"# %s\n")
		if got := r.counts(4, "fake-a", ""); got["a1"] != 4 {
			t.Errorf("requests of fake-a went to %v", got)
		}
		if got := r.counts(4, "fake-b", ""); got["b0"] != 4 {
			t.Errorf("requests of fake-b went to %v", got)
		}
		all := r.control.Snapshot().ByName["all"]
		all.Routing.Observe("a1", all.Members["a1"], routing.Status{})
		if got := r.counts(4, "fake-a", ""); got["a0"] != 4 {
			t.Errorf("without a1, requests of fake-a went to %v", got)
		}
	})
}

// TestAWeightOfThreeGetsThreeRequestsOfFour, as in the example of weighted round robin.
func TestAWeightOfThreeGetsThreeRequestsOfFour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := startServer(t, fakeEngine()), startServer(t, fakeEngine())
		r := newRig(t, fmt.Sprintf(otherRoutersHead+"policy: { name: weighted_round_robin }\n",
			fmt.Sprintf("{ name: w0, url: %q, weight: 3 }, { name: w1, url: %q, weight: 1 }", a, b))+"# %s\n")
		if got := r.counts(8, "small", ""); got["w0"] != 6 || got["w1"] != 2 {
			t.Errorf("eight requests went to %v", got)
		}
	})
}

// TestHashedSessionsMoveFromAWorkerThatIsDown, and only those.
func TestHashedSessionsMoveFromAWorkerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []string{"consistent_hash", "rendezvous_hash"} {
			r := newRig(t, otherRoutersHead+"policy: { name: "+policy+" }\n", fakeEngine(), fakeEngine(), fakeEngine())
			homes := map[string]string{}
			for i := range 30 {
				session := fmt.Sprint("s", i)
				homes[session], _ = r.ask("small", "", "X-Session-ID", session)
			}
			member := r.control.Snapshot().ByName["small"].Members["w1"]
			down := routing.Status{}
			r.control.Snapshot().ByName["small"].Routing.Observe("w1", member, down)
			for session, home := range homes {
				if now, _ := r.ask("small", "", "X-Session-ID", session); now == "w1" || home != "w1" && now != home {
					t.Errorf("%s: session %s moved from %s to %s", policy, session, home, now)
				}
			}
		}
	})
}

// TestEveryStrategyOfOtherRoutersIsListed in docs/policies.md, with what to write here.
func TestEveryStrategyOfOtherRoutersIsListed(t *testing.T) {
	text, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Names in other routers\n")
	listed := ""
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \| (.*) \|$`).FindAllStringSubmatch(table, -1)[1:] {
		listed += row[2] + "\n"
		if here := row[3]; here == "" || regexp.MustCompile(`(?i)\bnot (there|yet|supported|available)\b|\bmissing\b`).
			MatchString(here) {
			t.Errorf("%s is listed as absent: %q", row[2], here)
		}
	}
	for _, name := range []string{"`round_robin`", "`random`", "`power_of_two`", "`cache_aware`", "`consistent_hash`",
		"`kv_aware`", "`rendezvous_hash`", "`lmcache_aware`", "`lookup_mode`", "`model_overrides`", "`selection_strategy`",
		"`fallback_strategy`", "`RoundRobin`", "`WeightedRoundRobin`", "`LeastLatency`", "`Random`", "`ConsistentHash`",
		"`PrefixAwareHash`", "KvOverlapScorer", "`Custom`", "Geographic", "least_conn", "dynamic_weight_adjustment",
		"`anthropic_cache_control_injection`", "`--prefill-policy`", "`--decode-policy`", "`pd_uncached_token_threshold`",
		"`cache`", "`semantic_cache`", "`prompt_cache`", "`pre_routing_hooks`"} {
		if !strings.Contains(listed, name) {
			t.Errorf("%s is not listed", name)
		}
	}
}
