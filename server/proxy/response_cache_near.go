package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"tierway/openai/answers"
	"tierway/responsecache"
	"tierway/telemetry"
)

// lookUpNear looks for the answer to a request that means the same, and reports whether it may be sent. Without an
// embedding in time there is none.
func (x *exchange) lookUpNear(form *answers.Form) bool {
	c, config := x.cached, x.cached.pool.ResponseCache.Semantic
	text := string(form.Text)
	marks, ok := answers.Marks(text)
	if !ok {
		return false
	}
	start := time.Now()
	c.span = x.trace.Attempt(start)
	e, err := x.s.embed(x.in.HTTP.Context(), config.Embeddings, text, config.Timeout, c.span)
	c.embedding = time.Since(start)
	c.record.EmbeddingMs = ms(c.embedding)
	if c.metrics.Embedded(err == nil); err != nil {
		return false
	}
	n := &near{vector: e.vector, key: c.key, group: c.key}
	n.key.Body = hashOf("answer", c.key.Body[:])
	n.group.Body = hashOf("group", form.Rest[:], []byte(marks), []byte(config.Embeddings), []byte(e.model),
		binary.BigEndian.AppendUint32(nil, uint32(len(e.vector))))
	c.near = n
	return c.useNearest()
}

// useNearest looks for the nearest answer and reports whether it may be sent.
func (c *cached) useNearest() bool {
	n, config, start := c.near, c.pool.ResponseCache.Semantic, time.Now()
	threshold := *config.Threshold
	if config.Shadow {
		threshold = responsecache.LeastSimilarity // all similarities are recorded
	}
	key, similarity, ok := c.memory.Nearest(&n.group, n.vector, threshold, start)
	var entry responsecache.Entry
	if ok {
		entry, ok = c.memory.Get(&key, start)
	}
	if c.lookedUp(start); !ok {
		return false
	}
	c.record.Similarity = similarity
	switch {
	case !c.usable(&entry, config.TTL, start):
		return false
	case config.Shadow:
		n.shadowed = &entry
		return false
	case similarity < threshold:
		c.metrics.Similar(telemetry.SimilarityMiss, similarity)
		return false
	}
	c.metrics.Similar(telemetry.SimilarityHit, similarity)
	c.setHit(&entry, start)
	return true
}

// hashOf returns the hash of a kind and of parts with their lengths.
func hashOf(kind string, parts ...[]byte) [sha256.Size]byte {
	b := append([]byte(kind), 0)
	for _, p := range parts {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(p))), p...)
	}
	return sha256.Sum256(b)
}

// keepNear keeps an answer for requests that mean the same. In shadow mode it compares the answer with the kept one.
func (c *cached) keepNear(entry responsecache.Entry) bool {
	n := c.near
	if was := n.shadowed; was != nil {
		result := telemetry.SimilarityDifferent
		if c.record.Shadow = "different"; was.Content.Text == entry.Content.Text {
			result, c.record.Shadow = telemetry.SimilarityEqual, "equal"
		}
		c.metrics.Similar(result, c.record.Similarity)
	}
	return c.memory.PutNear(&n.key, &n.group, n.vector, entry, c.pool.ResponseCache.Semantic.TTL, c.generation)
}
