package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"tierway/spool"
)

// answerTimeout is the longest wait of a request for a kept answer. A miss costs the request at most that.
const answerTimeout = 20 * time.Millisecond

// maxAnswerWrites is the largest number of answers that wait to be written: 16 MiB of usual ones.
const maxAnswerWrites = 4096

// generationLife is how long the generation of an owner without new answers lives, unless an answer lives longer.
const generationLife = 30 * 24 * time.Hour

// Answers is the directory of kept answers that gateways share in Redis. It is asked for one key at a time, and its
// entries expire. An owner is a tenant, or all groups of tenants. Its generation is part of each value. It is random,
// so that none comes twice: after a purge, or the loss of the generation, no older answer is found. While Redis is
// down, nothing is found and nothing is written. Run writes the answers. It is safe for concurrent use.
type Answers struct {
	redis  *Redis
	writes *spool.Spool[answerWrite]
}

// answerWrite is an answer to be written, with the key of its owner's generation.
type answerWrite struct {
	generation, key, value string
	ttl                    time.Duration
}

// NewAnswers returns the directory of a Redis that does not run yet. The caller must call Run.
func NewAnswers(r *Redis) *Answers {
	a := &Answers{redis: r}
	a.writes = spool.New(spool.Config[answerWrite]{Max: maxAnswerWrites, Batch: 64, Write: a.write})
	return a
}

// Run writes answers until ctx ends.
func (a *Answers) Run(ctx context.Context) { a.writes.Run(ctx) }

// answerKeys returns the keys of an owner's generation and of an answer. They are in one slot of a cluster.
func answerKeys(owner string, key []byte) (generation, answer string) {
	base := "tierway:v1:{answers-" + hashed(owner) + "}:"
	return base + "generation", base + hex.EncodeToString(key)
}

// Get returns the answer of a key of an owner, nil if there is none, and the generation of the owner for Put.
// It takes at most 20 ms.
func (a *Answers) Get(ctx context.Context, owner string, key []byte) (value []byte, generation string, err error) {
	return a.find(ctx, owner, key, a.beginGeneration)
}

// Peek is Get without a write: generation is empty if the owner has none.
func (a *Answers) Peek(ctx context.Context, owner string, key []byte) (value []byte, generation string, err error) {
	return a.find(ctx, owner, key, func(context.Context, string) (string, error) { return "", nil })
}

// find looks up an answer. begin returns the generation of an owner that has none.
func (a *Answers) find(ctx context.Context, owner string, key []byte,
	begin func(ctx context.Context, key string) (generation string, err error),
) (value []byte, generation string, err error) {
	first, second := answerKeys(owner, key)
	var found []any
	err = a.redis.do(ctx, "finding an answer", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		found, err = a.redis.client.MGet(ctx, first, second).Result()
		if err == nil && len(found) == 2 && found[0] == nil {
			generation, err = begin(ctx, first)
		}
		return err
	})
	if err != nil || generation != "" {
		return nil, generation, err
	}
	if len(found) != 2 {
		return nil, "", errors.New("finding an answer: Redis returned another number of values")
	}
	generation, _ = found[0].(string)
	text, _ := found[1].(string)
	of, rest, ok := strings.Cut(text, ":")
	if !ok || of != generation {
		return nil, generation, nil
	}
	return []byte(rest), generation, nil
}

// beginGeneration stores a new generation at a key without one, and returns it. If another request or purge was faster,
// it returns the generation of that one.
func (a *Answers) beginGeneration(ctx context.Context, key string) (generation string, err error) {
	var now *redis.StringCmd
	_, err = a.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, key, rand.Text(), generationLife)
		now = p.Get(ctx, key)
		return nil
	})
	if err != nil {
		return "", err
	}
	return now.Val(), nil
}

// Put keeps an answer of an owner for a time, in the background. generation is that of the look-up.
func (a *Answers) Put(owner string, key, value []byte, ttl time.Duration, generation string) {
	if !a.redis.Up() {
		return
	}
	first, name := answerKeys(owner, key)
	a.writes.Add(answerWrite{generation: first, key: name, value: generation + ":" + string(value), ttl: ttl})
}

// write writes answers, and renews the expiry of their generations. Those that cannot be written are lost: they would
// be old when Redis is back.
func (a *Answers) write(ctx context.Context, batch []answerWrite) (lost int, err error) {
	err = a.redis.do(ctx, "keeping answers", func(ctx context.Context) error {
		_, err := a.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			lives := map[string]time.Duration{}
			for _, w := range batch {
				p.Set(ctx, w.key, w.value, w.ttl)
				lives[w.generation] = max(lives[w.generation], w.ttl, generationLife)
			}
			for generation, life := range lives {
				p.Expire(ctx, generation, life)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return len(batch), nil
	}
	return 0, nil
}

// Purge makes the answers of an owner unfindable for all gateways, also those that are being generated.
func (a *Answers) Purge(ctx context.Context, owner string) error {
	key, _ := answerKeys(owner, nil)
	return a.redis.do(ctx, "removing the answers of an owner", func(ctx context.Context) error {
		return a.redis.client.Set(ctx, key, rand.Text(), generationLife).Err()
	})
}
