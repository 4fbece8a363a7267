package telemetry

import "github.com/prometheus/client_golang/prometheus"

// CacheResult is what the response cache did for a request.
type CacheResult uint8

// The results.
const (
	CacheExactHit    CacheResult = iota // it answered an equal request
	CacheSemanticHit                    // it answered a request that means the same
	CacheMiss                           // it has no answer
	CacheBypass                         // it was not asked
)

// cacheResults are the values of the label result, by CacheResult.
var cacheResults = [...]string{"exact_hit", "semantic_hit", "miss", "bypass"}

// Similarity is the result of a semantic look-up.
type Similarity uint8

// The results.
const (
	SimilarityHit       Similarity = iota // the answer was sent
	SimilarityMiss                        // the texts are not similar enough
	SimilarityEqual                       // in shadow mode: both answers are equal
	SimilarityDifferent                   // in shadow mode: they differ
)

// similarities are the values of the label result, by Similarity.
var similarities = [...]string{"hit", "miss", "shadow_equal", "shadow_different"}

// similarityRatios are the buckets of similarities, from the least one that a look-up finds.
var similarityRatios = []float64{.9, .91, .92, .93, .94, .95, .96, .97, .98, .99, 1}

// String returns the value of the label result.
func (r CacheResult) String() string { return cacheResults[r] }

// ResponseCache holds the series of the response cache. It is safe for concurrent use.
type ResponseCache struct {
	LookUp     prometheus.Histogram // in seconds
	similarity [len(similarities)]prometheus.Observer
	embeddings counterSet
	requests   [len(cacheResults)]prometheus.Counter
	bypassed   *prometheus.CounterVec
	answered   *prometheus.CounterVec
	bypasses   counterSet
	answers    counterSet

	savedPrompt, savedOutput prometheus.Counter // tokens
}

// cacheSeconds are the buckets of look-ups: some microseconds in memory.
var cacheSeconds = []float64{.000001, .0000025, .000005, .00001, .000025, .0001, .00025, .001, .005, .025, .1}

func newResponseCache(d *definer) *ResponseCache {
	d.setSubject("Response cache")
	requests := d.counters("tierway_response_cache_requests_total", "Requests in tiers and pools with a response_cache, "+
		"by result. exact_hit: answered as an equal request was. semantic_hit: answered as a request was that means the same. miss: sent to a worker. "+
		"bypass: sent to a worker without a look-up.", "result")
	c := &ResponseCache{
		bypassed: d.counters("tierway_response_cache_bypass_total", "Requests that bypassed the response cache, by reason: "+
			"temperature, tools, media, choices, logprobs, stored, handover, size, tenant, no_cache.", "reason"),
		answered: d.counters("tierway_response_cache_answers_total", "Answers to requests that missed the response cache, "+
			"or asked for a new answer, by result: kept, or the reason for which they were not. finish: the model did not "+
			"end the answer itself, or it is not complete. content: it has more than text and reasoning. size: it exceeds "+
			"256 KiB. choices: it has several choices. logprobs: it has log probabilities. no_store: the request has "+
			"Cache-Control: no-store. fallback: another tier, pool or model generated it. dropped: the tenant was purged "+
			"meanwhile, the answer exceeds the memory, or Redis failed at the look-up. failed: the request failed, or its "+
			"client left.", "result"),
		LookUp: d.histogram("tierway_response_cache_lookup_seconds", "Time of look-ups in the response cache, without the "+
			"reading of the request.", cacheSeconds),
	}
	similarity := d.histograms("tierway_response_cache_similarity_ratio", "Similarity of the texts of requests to the "+
		"nearest earlier one, from 0.9, of hits and misses. In shadow mode by whether both answers are equal: "+
		"shadow_equal, shadow_different.", similarityRatios, "result")
	for i, result := range similarities {
		c.similarity[i] = similarity.WithLabelValues(result)
	}
	c.embeddings = resolved(d.counters("tierway_response_cache_embeddings_total", "Texts that were embedded for semantic "+
		"look-ups, by result: ok, failed (also too late).", "result"), []string{"ok", "failed"})
	saved := d.counters("tierway_response_cache_saved_tokens_total", "Tokens of kept answers that were sent, and of "+
		"their prompts, by kind: prompt, output. No engine has read or generated them.", "kind")
	c.savedPrompt, c.savedOutput = saved.WithLabelValues("prompt"), saved.WithLabelValues("output")
	for i, result := range cacheResults {
		c.requests[i] = requests.WithLabelValues(result)
	}
	describe[CacheMemory](d)
	return c
}

// SetCacheLabels sets the reasons of bypasses and the results of answers. It is called once, before requests.
func (m *Metrics) SetCacheLabels(reasons, results []string) {
	m.Cache.bypasses, m.Cache.answers = resolved(m.Cache.bypassed, reasons), resolved(m.Cache.answered, results)
}

// Request counts a request.
func (c *ResponseCache) Request(r CacheResult) { c.requests[r].Inc() }

// Bypass counts a request that bypasses the cache.
func (c *ResponseCache) Bypass(reason string) {
	c.Request(CacheBypass)
	c.bypasses.inc(reason)
}

// Saved counts the tokens of a kept answer that is sent.
func (c *ResponseCache) Saved(prompt, output int64) {
	c.savedPrompt.Add(float64(prompt))
	c.savedOutput.Add(float64(output))
}

// Answer counts the answer to a request that missed the cache by its result.
func (c *ResponseCache) Answer(result string) { c.answers.inc(result) }

// Similar observes the similarity that a semantic look-up has found.
func (c *ResponseCache) Similar(result Similarity, ratio float64) {
	c.similarity[result].Observe(ratio)
}

// Embedded counts an embedding for a look-up.
func (c *ResponseCache) Embedded(ok bool) {
	if ok {
		c.embeddings.inc("ok")
	} else {
		c.embeddings.inc("failed")
	}
}

// Requests returns the number of requests by CacheResult since the gateway started.
func (c *ResponseCache) Requests() (counts [len(cacheResults)]float64) {
	for i, requests := range c.requests {
		for _, s := range readSeries(requests) {
			counts[i] = s.GetCounter().GetValue()
		}
	}
	return counts
}

// CacheMemory is the memory of the response cache.
type CacheMemory struct {
	Entries   int   `metric:"tierway_response_cache_entries" help:"Answers that the response cache of this gateway keeps."`
	Bytes     int64 `metric:"tierway_response_cache_bytes" help:"Memory of these answers; response_cache.max_bytes bounds it."`
	Evictions int64 `metric:"tierway_response_cache_evicted_total" help:"Answers that were removed before their time because the memory was full."`
}
