package proxy

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"tierway/responsecache"
)

// sharedAnswer is the form of a kept answer in Redis.
type sharedAnswer struct {
	Partition string // its hash
	responsecache.Entry
}

// sharedKey returns the key of an answer in Redis, and the hash of its partition.
func sharedKey(k *responsecache.Key) (key []byte, partition string) {
	p := hashOf("partition", []byte(k.Owner.Name), binary.BigEndian.AppendUint64(nil, uint64(k.Since)), []byte(k.Pool),
		[]byte(k.Model), []byte(k.Path), []byte(k.Extras))
	sum := hashOf("key", p[:], k.Body[:])
	return sum[:], hex.EncodeToString(p[:])
}

// getAnswer returns the kept answer of the request's key, from Redis if gateways share answers. A failure of Redis is
// a miss.
func (x *exchange) getAnswer(now time.Time) (e responsecache.Entry, ok bool) {
	c := x.cached
	if c.shared == nil {
		return c.memory.Get(&c.key, now)
	}
	key, partition := sharedKey(&c.key)
	look := c.shared.Get
	if x.explained {
		look = c.shared.Peek
	}
	value, generation, err := look(x.in.HTTP.Context(), responsecache.PurgedBy(c.key.Owner.Name), key)
	c.sharedGeneration, c.unshared = generation, err != nil
	var found sharedAnswer
	if value != nil {
		value, err = c.openAnswer(value, key)
	}
	if err != nil || value == nil || json.Unmarshal(value, &found) != nil || found.Partition != partition ||
		found.Content == nil {
		return e, false
	}
	return found.Entry, true
}

// openAnswer decrypts an answer if the configuration has a secret.
func (c *cached) openAnswer(value, key []byte) ([]byte, error) {
	sealer, err := responsecache.NewSealer(c.secret, c.key.Owner.Name)
	if err != nil {
		return nil, err
	}
	return sealer.Open(value, key)
}

// putAnswer keeps the answer to the request, and reports whether it did.
func (c *cached) putAnswer(e responsecache.Entry, ttl time.Duration) bool {
	if c.shared == nil {
		return c.memory.Put(&c.key, e, ttl, c.generation)
	}
	key, partition := sharedKey(&c.key)
	value, err := json.Marshal(sharedAnswer{partition, e})
	if err != nil || c.unshared { // the generation is unknown
		return false
	}
	sealer, err := responsecache.NewSealer(c.secret, c.key.Owner.Name)
	if err != nil {
		return false
	}
	value = sealer.Seal(value, key)
	c.shared.Put(responsecache.PurgedBy(c.key.Owner.Name), key, value, ttl, c.sharedGeneration)
	return true
}

// PurgeCache removes the kept answers of a tenant and of its group, and those that are being generated. It returns the
// number of answers that were in the memory of this gateway. The tenant may have been in another group, so in Redis the
// answers of all groups are removed, and in memory those that are being generated and those of groups not in force.
func (px *Proxy) PurgeCache(ctx context.Context, tenant string) (removed int, err error) {
	snap := px.control.Snapshot()
	for _, owner := range []string{tenant, responsecache.Groups} {
		if shared := px.control.Stores.Answers; shared != nil {
			err = errors.Join(err, shared.Purge(ctx, owner))
		}
		removed += px.cache.Purge(owner)
	}
	if g := snap.AnswerGroup(tenant); g != nil {
		removed += px.cache.Purge(g.Owner.Name)
	}
	px.cache.Forget(snap.KeepsAnswers)
	return removed, err
}
