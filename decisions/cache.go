package decisions

import "tierway/telemetry"

// Cache is what the response cache did for a request.
type Cache struct {
	Result   string  `json:"result" enum:"exact_hit,semantic_hit,miss,bypass" doc:"exact_hit: it answered as an equal request was. semantic_hit: it answered as a request was that means the same. miss: it has no answer. bypass: it was not asked."`
	Reason   string  `json:"reason,omitempty" doc:"Why the request bypassed the cache."`
	Shared   string  `json:"shared,omitempty" doc:"Group of response_cache.shared that the tenant is in."`
	AtMs     float64 `json:"at_ms,omitempty" doc:"When the look-up began, after the request's start."`
	AgeMs    float64 `json:"age_ms,omitempty" doc:"Age of the kept answer."`
	LookUpUs float64 `json:"lookup_us,omitempty" doc:"Time of the look-up in microseconds."`
	// of the semantic cache
	Similarity  float64 `json:"similarity,omitempty" doc:"Similarity of the text to the nearest earlier one, if it is at least 0.9."`
	EmbeddingMs float64 `json:"embedding_ms,omitempty" doc:"Time to embed the text."`
	Shadow      string  `json:"shadow,omitempty" enum:"equal,different" doc:"In shadow mode: whether the kept answer equals the new one."`
	Answer      string  `json:"answer,omitempty" doc:"After a miss: 'kept', or why the answer was not kept."`
}

func appendCache(b []byte, c *Cache) []byte {
	if c == nil {
		return b
	}
	b = appendText(b, "cache", c.Result)
	b = appendText(b, "cache_reason", c.Reason)
	if c.AgeMs > 0 {
		b = appendNumber(b, "cache_age_ms", c.AgeMs)
	}
	if c.Similarity > 0 {
		b = appendNumber(b, "cache_similarity", c.Similarity)
	}
	return b
}

func (t Trace) addCache(a *attrs) {
	if c := t.Cache; c != nil {
		a.text("tierway.cache", c.Result)
		a.text("tierway.cache.reason", c.Reason)
	}
}

func (c *Cache) looked() bool { return c != nil && c.Result != "bypass" }

// cacheSpan returns the span of the look-up, with the embedding.
func (t Trace) cacheSpan(a *attrs) telemetry.Span {
	c := t.Cache
	a.text("tierway.cache", c.Result)
	a.ms("tierway.cache.age_ms", c.AgeMs)
	a.ms("tierway.cache.similarity", c.Similarity)
	a.ms("tierway.cache.embedding_ms", c.EmbeddingMs)
	return telemetry.Span{Name: "response_cache", Begun: t.LookUp, Start: t.at(c.AtMs),
		End: t.at(c.AtMs + c.EmbeddingMs + c.LookUpUs/1000), Attributes: a.next()}
}
