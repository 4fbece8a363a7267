package workers

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/http1"
	"tierway/workers/kvcache"
)

func TestRankIsSplitFromHostAndPortOnly(t *testing.T) {
	const none = -1
	for raw, want := range map[string]struct {
		url  string
		rank int
	}{
		"http://w:8000@0":      {"http://w:8000", 0},
		"http://w:8000@63":     {"http://w:8000", 63},
		"http://w:8000@64":     {"http://w:8000", 64}, // the configuration rejects it
		"https://w@12":         {"https://w", 12},
		"HTTP://W:8000/@2":     {"HTTP://W:8000/", 2},
		"http://[::1]:8000@3":  {"http://[::1]:8000", 3},
		"http://[::1]@3":       {"http://[::1]", 3},
		"http://10.0.0.1:80@1": {"http://10.0.0.1:80", 1},

		"http://w:8000":                   {rank: none},
		"http://w:8000@":                  {rank: none},
		"http://w:8000@02":                {rank: none},
		"http://w:8000@+2":                {rank: none},
		"http://w:8000@-2":                {rank: none},
		"http://w:8000@2.5":               {rank: none},
		"http://w:8000@99999999999":       {rank: none},
		"http://w:8000@2/v1":              {rank: none},
		"http://w:8000/v1@2":              {rank: none},
		"http://user@w:8000@2":            {rank: none},
		"http://user:secret@10":           {rank: none},
		"http://user:secret@w:8000":       {rank: none},
		"http://user@w":                   {rank: none},
		"http://w:8000?x@2":               {rank: none},
		"http://w:8000#@2":                {rank: none},
		"http://@2":                       {rank: none},
		"http://169.254.169.254@2":        {rank: none},
		"unix:///run/vllm@0":              {rank: none},
		"unix:///run/vllm.sock:/@0":       {rank: none},
		"unix:///run/vllm.sock:/base@0":   {rank: none},
		"ftp://w@2":                       {rank: none},
		"@2":                              {rank: none},
		"":                                {rank: none},
		"https://h/models/claude@2024062": {rank: none},
	} {
		if want.rank == none {
			want.url = raw
		}
		got, rank, ranked := SplitRank(raw)
		if got != want.url || ranked != (want.rank != none) || ranked && rank != want.rank {
			t.Errorf("SplitRank(%q) = %q, %d, %v", raw, got, rank, ranked)
		}
	}
}

// FuzzSplitRank: a URL with a rank is the URL of its server and the rank; no URL that is dialled has an @.
func FuzzSplitRank(f *testing.F) {
	for _, seed := range []string{"http://w:8000@2", "http://[::1]@63", "http://u:p@h@2", "https://h/a@2",
		"unix:///a@0:/b@1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		server, rank, ranked := SplitRank(raw)
		switch {
		case !ranked:
			if server != raw {
				t.Fatalf("%q became %q", raw, server)
			}
			return
		case fmt.Sprintf("%s@%d", server, rank) != raw:
			t.Fatalf("%q is %q and rank %d", raw, server, rank)
		}
		canonical, err := Canonical(server)
		if err != nil {
			t.Fatalf("%q has no canonical form: %v", server, err)
		}
		u, err := url.Parse(canonical)
		if err != nil || u.User != nil || strings.Contains(canonical, "@") {
			t.Fatalf("%q of %q has a user or a rank: %v", canonical, raw, err)
		}
	})
}

func TestEntryWithRanksIsOneWorkerPerRank(t *testing.T) {
	entry := Spec{Config: Config{Name: "w", URL: "http://h:1", Ranks: 3, Weight: new(2)}, Pool: "p"}
	ranks := entry.PerRank()
	if len(ranks) != 3 {
		t.Fatalf("%d workers", len(ranks))
	}
	for r, s := range ranks {
		if s.Name != fmt.Sprintf("w@%d", r) || *s.Rank != r || s.URL != "http://h:1" || *s.Weight != 2 || s.Ranks != 0 {
			t.Errorf("rank %d is %+v", r, s.Config)
		}
		for o, other := range ranks {
			if s.SameWorker(&other) != (r == o) {
				t.Errorf("ranks %d and %d are the same worker: %t", r, o, s.SameWorker(&other))
			}
		}
	}
	at := func(url string) *Spec { return &Spec{Config: Config{Name: "w", URL: url}}.PerRank()[0] }
	one, two, none := at("http://h:1@1"), at("http://h:1@2"), at("http://h:1")
	if one.Name != "w" || *one.Rank != 1 || one.URL != "http://h:1" || none.Rank != nil {
		t.Errorf("%+v and %+v", one, none)
	}
	if one.SameWorker(two) || one.SameWorker(none) || none.SameWorker(one) || !one.SameWorker(at("http://h:1@1")) {
		t.Error("a worker with another rank is another worker")
	}
	if text := one.String() + fmt.Sprint(one.LogValue()); strings.Contains(text, "@") {
		t.Errorf("the printed form has the rank in its URL: %s", text)
	}
}

func TestRequestsSelectTheRankAndChecksDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		ranks := atServer("w", "small", func(s *Spec) { s.Ranks = 2 }).PerRank()
		fleet, fake, _ := sharedFleet(t, engine, append(ranks, atServer("whole", "medium"))...)
		advanceTime(3500 * time.Millisecond)
		if n := fake.count(pathHealth); n != 4 {
			t.Errorf("the server was checked %d times in three seconds, want 4", n)
		}
		for _, r := range fake.sent {
			if r.Header[rankHeader] != nil {
				t.Errorf("a check of %s selects the rank %q", r.Path, r.Header[rankHeader])
			}
		}
		for name, want := range map[string][]string{"w@0": {"0"}, "w@1": {"1"}, "whole": nil} {
			for _, header := range []http.Header{nil, {"X-Other": {"a"}}} {
				answer, err := fleet.Get(name).Send(context.Background(), &http1.Request{Method: "POST", Path: "/x",
					Header: header})
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
				if got := fake.last().Header[rankHeader]; !slices.Equal(got, want) {
					t.Errorf("a request to %s selects %q, want %q", name, got, want)
				}
			}
		}
	})
}

func TestEachRankHasTheLoadOfItsLabel(t *testing.T) {
	type figures struct {
		waiting, running int
		usage            float64
		cache            int64
	}
	of := func(s Status) figures { return figures{s.Waiting, s.Running, s.KVUsage, s.CacheTokens} }
	for name, c := range map[string]struct {
		metrics    string
		first, all figures // of rank 0, and of a worker without a rank
	}{
		"vLLM": {`vllm:num_requests_waiting{engine="0",model_name="m"} 4
vllm:num_requests_waiting{engine="1",model_name="m"} 1
vllm:num_requests_running{model_name="m",engine="0"} 2
vllm:num_requests_running{model_name="m",engine="1"} 5
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.7
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="300"} 1
`, figures{4, 2, 0.2, 1600}, figures{5, 7, 0.7, 6400}},
		"SGLang": {`sglang:num_queue_reqs{dp_rank="0",engine_type="unified"} 3
sglang:num_queue_reqs{dp_rank="1",engine_type="unified"} 2
sglang:token_usage{dp_rank="1"} 0.5
sglang:cache_config_info{page_size="1",num_pages="500"} 1
`, figures{3, 0, 0, 500}, figures{5, 0, 0.5, 500}},
		"no labels": {"vllm:num_requests_waiting 4\nvllm:num_requests_running 3\n", figures{waiting: 4, running: 3},
			figures{waiting: 4, running: 3}},
		"labels of other ranks": {`vllm:num_requests_waiting{engine="7"} 4` + "\n" + `vllm:num_requests_waiting{engine="99"} 1` +
			"\n" + `vllm:num_requests_waiting{engine="x"} 1` + "\n", figures{waiting: 6}, figures{waiting: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := new(scriptedHealth)
				engine.set(pathHealth, 200, "")
				engine.set(pathMetrics, 200, c.metrics)
				fleet, fake, _ := sharedFleet(t, engine, atServer("r0", "small", func(s *Spec) { s.Rank = new(0) }),
					atServer("whole", "medium"))
				if first, all := of(fleet.Get("r0").Status()), of(fleet.Get("whole").Status()); first != c.first || all != c.all {
					t.Errorf("rank 0 has %+v, want %+v; the server has %+v, want %+v", first, c.first, all, c.all)
				}
				if n := fake.count(pathMetrics); n != 1 {
					t.Errorf("the metrics were read %d times", n)
				}
			})
		})
	}
}

// TestARankStallsAlone: the counters of the other rank move.
func TestARankStallsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		step := func(i int) {
			engine.set(pathMetrics, 200, fmt.Sprintf(`vllm:num_requests_running{engine="0"} 1
vllm:num_requests_running{engine="1"} 1
vllm:generation_tokens_total{engine="0"} 5
vllm:generation_tokens_total{engine="1"} %d
`, i))
		}
		step(0)
		fleet, _, _ := sharedFleet(t, engine, atServer("w", "small", func(s *Spec) { s.Ranks = 2 }).PerRank()...)
		for i := range 6 {
			step(i)
			advanceTime(time.Second)
		}
		if a, b := fleet.Get("w@0").Status().StalledSince, fleet.Get("w@1").Status().StalledSince; a.IsZero() || !b.IsZero() {
			t.Errorf("rank 0 stalls since %v, rank 1 since %v", a, b)
		}
	})
}

func TestRankReadsItsOwnEventsOnly(t *testing.T) {
	announced := []kvcache.Announced{{Endpoint: "tcp://*:5557"}, {Rank: 2, Endpoint: "tcp://*:6000", Topic: "kv"}}
	for name, c := range map[string]struct {
		config    kvcache.Config
		announced []kvcache.Announced
		rank      *int
		want      []kvcache.Source
	}{
		"port": {config: kvcache.Config{Port: 5557, ReplayPort: 5657}, rank: new(2),
			want: []kvcache.Source{{Rank: 2, Address: "tcp://h:5559", Replay: "tcp://h:5659"}}},
		"port with a number of ranks": {config: kvcache.Config{Port: 5557, Ranks: 4}, rank: new(0),
			want: []kvcache.Source{{Address: "tcp://h:5557"}}},
		"port without a rank": {config: kvcache.Config{Port: 5557, Ranks: 2},
			want: []kvcache.Source{{Address: "tcp://h:5557"}, {Rank: 1, Address: "tcp://h:5558"}}},
		"announced": {announced: announced, rank: new(2),
			want: []kvcache.Source{{Rank: 2, Address: "tcp://h:6000", Topic: "kv"}}},
		"not announced":        {announced: announced, rank: new(1)},
		"topic of rank 0":      {config: kvcache.Config{Topic: "kv"}, rank: new(0), want: []kvcache.Source{{Topic: "kv"}}},
		"topic of other ranks": {config: kvcache.Config{Topic: "kv"}, rank: new(1)},
		"off":                  {config: kvcache.Config{Port: 1, Enabled: new(false)}, rank: new(0)},
	} {
		c.config.Rank = c.rank
		if got := c.config.Sources("h", c.announced); len(got)+len(c.want) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
