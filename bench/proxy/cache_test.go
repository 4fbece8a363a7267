package main

import (
	"encoding/json"
	"strings"
	"testing"

	"tierway/config"
)

// TestCacheReportHasAllFigures: ratios compare figures of the same round.
func TestCacheReportHasAllFigures(t *testing.T) {
	rounds := [][]result{
		{{CPU: 100, P99: 10}, {CPU: 120, P99: 11}, {CPU: 50, P99: 5}, {CPU: 180, P99: 30}},
		{{CPU: 200, P99: 20}, {CPU: 240, P99: 22}, {CPU: 100, P99: 10}, {CPU: 360, P99: 60}}, // a slower machine
	}
	r := cacheReport{setup: setup{Tierway: "tierway x", Cores: 2, Rounds: 2, Rate: 300}, Cases: cacheCostsOf(rounds)}
	text := r.String()
	for _, want := range []string{"150 (100–200)", "1.20 (1.20–1.20)", "0.50 (0.50–0.50)", "1.80 (1.80–1.80)",
		"3.00 (3.00–3.00)", "exact, misses", "semantic, hits"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

// TestConfigurationsOfCachesAreValid, and only that without a cache keeps no answers.
func TestConfigurationsOfCachesAreValid(t *testing.T) {
	for i, c := range cacheCases {
		file, err := config.Parse("bench.yaml", []byte(cacheConf("cache", "127.0.0.1:2", "the-key", c.section)),
			func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		if got := file.Tiers[0].ResponseCache != nil; got != (i > 0) || file.Auth.Keys[0].ResponseCache != got {
			t.Errorf("%s: the tier has a cache: %t, and its tenant: %t", c.name, got, file.Auth.Keys[0].ResponseCache)
		}
	}
}

// TestTheWorkerEmbeds.
func TestTheWorkerEmbeds(t *testing.T) {
	addr := serveInTest(t, newFixedWorker().serve)
	c, err := dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	request := strings.Replace(string(httpRequest(addr, "key", []byte(`{"input":"a","model":"embed"}`))),
		"/v1/chat/completions", "/v1/embeddings", 1)
	body, err := c.do([]byte(request))
	var answer struct {
		Data []struct{ Embedding []float32 }
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil || len(answer.Data) != 1 || len(answer.Data[0].Embedding) != embeddingDims {
		t.Errorf("%v %.80s", err, body)
	}
}

// TestKeptAnswersDifferFromTheWorkers: the shapes of hits refuse the worker's answer, and those of misses a kept one.
func TestKeptAnswersDifferFromTheWorkers(t *testing.T) {
	own := answer()
	kept := []byte(strings.Replace(string(own), "chatcmpl-bench", "chatcmpl-0123456789abcdef0123456789abcdef", 1))
	for _, s := range cacheShapes() {
		if hits := s.name != newChats; (s.check(kept) == nil) != hits || (s.check(own) == nil) == hits {
			t.Errorf("%s: the kept answer: %v, the worker's: %v", s.name, s.check(kept), s.check(own))
		}
		if len(s.body) != cacheBytes {
			t.Errorf("%s: %d bytes", s.name, len(s.body))
		}
	}
}
