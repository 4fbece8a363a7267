package decisions

// Cache is what the response cache did for a request.
type Cache struct {
	Result   string  `json:"result" enum:"exact_hit,miss,bypass" doc:"exact_hit: it answered an equal request. miss: it has no answer. bypass: it was not asked."`
	Reason   string  `json:"reason,omitempty" doc:"Why the request bypassed the cache."`
	AgeMs    float64 `json:"age_ms,omitempty" doc:"Age of the kept answer."`
	LookUpUs float64 `json:"lookup_us,omitempty" doc:"Time of the look-up in microseconds."`
	Answer   string  `json:"answer,omitempty" doc:"After a miss: 'kept', or why the answer was not kept."`
}

// appendCache appends what the response cache did.
func appendCache(b []byte, c *Cache) []byte {
	if c == nil {
		return b
	}
	b = appendText(b, "cache", c.Result)
	b = appendText(b, "cache_reason", c.Reason)
	if c.AgeMs > 0 {
		b = appendNumber(b, "cache_age_ms", c.AgeMs)
	}
	return b
}

// addCache adds what the response cache did.
func (t Trace) addCache(a *attrs) {
	if c := t.Cache; c != nil {
		a.text("tierway.cache", c.Result)
		a.text("tierway.cache_reason", c.Reason)
		a.ms("tierway.cache_age_ms", c.AgeMs)
	}
}
