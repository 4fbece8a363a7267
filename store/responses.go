package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed remember.lua
var rememberLua string

//go:embed forget.lua
var forgetLua string

const (
	// responseLife is how long a response is known. OpenAI keeps responses for as long.
	responseLife = 30 * 24 * time.Hour
	// responsesPerTenant is the largest number of known responses of a tenant. Redis uses about 400 bytes
	// for each.
	responsesPerTenant = 100_000
	// responseShards is the number of hash tags over which the responses are distributed by their id. A
	// cluster thus uses several nodes, and one script can change a response with its index.
	responseShards = 16
	// maxStoredID is the longest id in bytes that is stored. Ids of engines have about 40.
	maxStoredID = 256
	// maxUnsent bounds the responses that wait to be sent again. It is the number that a gateway remembers; beyond it,
	// all of them are sent.
	maxUnsent = 100_000
)

// StoredResponse is a response or conversation that an engine stores: its tenant, and the worker that has
// it. Worker is a name, because a reload may replace the worker.
type StoredResponse struct {
	ID     string
	Tenant string
	Pool   string
	Worker string
	Model  string // as the client requested it; "" for a conversation
	Server uint64 // identifies the worker's server beside its name; 0: unknown
	// Foreign is set if the tenant may not access the response: another tenant has it or has the same id,
	// or it is deleted. For Put it means that another tenant has the same id.
	Foreign bool
}

// ResponsesConfig configures Responses.
type ResponsesConfig struct {
	Redis   *Redis
	Log     *slog.Logger // nil: no log
	Recover Recover      // nil: a panic ends the process
}

// Responses is the directory of stored responses that gateways share in Redis. Keys and values have hashes
// of ids and tenants. Each entry expires after 30 days. A tenant has at most 100,000 entries: beyond 6,250 in one
// of 16 shards, the oldest of the shard is removed. Each method takes at most the timeout of Redis, and no
// time while Redis is down. Run sends again what a failed Put did not add. It is safe for concurrent use.
type Responses struct {
	redis    *Redis
	log      *slog.Logger
	recover  Recover
	perShard int // largest number of entries of a tenant in each shard
	known    func() []StoredResponse

	mu     sync.Mutex
	all    bool             // Run must send all known responses
	unsent []StoredResponse // Redis may not know them; the oldest first

	rememberScript, forgetScript *redis.Script
}

// NewResponses returns the directory of a Redis that does not run yet. The caller must call Run.
func NewResponses(c ResponsesConfig) *Responses {
	r := &Responses{redis: c.Redis, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), recover: c.Recover.orNone(),
		perShard:       responsesPerTenant / responseShards,
		rememberScript: redis.NewScript(rememberLua), forgetScript: redis.NewScript(forgetLua)}
	c.Redis.onBack(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = true
	})
	return r
}

// OnBack sets the function that returns the responses of this gateway, the oldest first. When Redis is
// available again, Run adds those that Redis does not know: it may have missed or lost them. OnBack must be
// called before Run.
func (r *Responses) OnBack(known func() []StoredResponse) { r.known = known }

// Run sends the gateway's responses to Redis after each outage, and those of failed calls of Put, until ctx ends. It
// looks every 0.5 s, as the probes do.
func (r *Responses) Run(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// An error is a panic that recover has logged.
			_ = r.recover("sending stored responses to Redis", func() error { r.sendUnsent(ctx); return nil })
		}
	}
}

// sendUnsent sends the responses that Redis may not know, one after the other, which uses a small part of Redis's time.
// It stops at a failure: the next round sends the rest.
func (r *Responses) sendUnsent(ctx context.Context) {
	for ctx.Err() == nil && r.redis.Up() {
		s, ok := r.nextUnsent()
		if !ok {
			return
		}
		if _, err := r.put(ctx, s, true); err != nil {
			return
		}
	}
}

// nextUnsent removes and returns the oldest response that Redis may not know.
func (r *Responses) nextUnsent() (s StoredResponse, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all && r.known != nil { // they include the unsent ones
		r.all, r.unsent = false, r.known()
	}
	if len(r.unsent) == 0 {
		r.unsent = nil
		return s, false
	}
	s, r.unsent = r.unsent[0], r.unsent[1:]
	return s, true
}

// keepUnsent keeps a response for the next round.
func (r *Responses) keepUnsent(s StoredResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unsent) < maxUnsent {
		r.unsent = append(r.unsent, s)
	} else {
		r.all = true
	}
}

// Put adds a response, which replaces one of the same tenant with the same id. It reports whether another
// tenant has the id, as Redis or the caller knows; then neither may use it. During an outage it does nothing.
func (r *Responses) Put(ctx context.Context, s StoredResponse) (contested bool) {
	contested, _ = r.put(ctx, s, false) // an error is logged, and Run sends the response again
	return contested
}

// put is Put. If onlyUnknown is set, it changes nothing that Redis knows about the tenant's response. After an error
// Redis may not know the response, which is kept for the next round.
func (r *Responses) put(ctx context.Context, s StoredResponse, onlyUnknown bool) (contested bool, err error) {
	if !s.Valid() {
		return false, nil
	}
	names := []string{s.Pool, s.Worker, s.Model}
	if s.Server != 0 {
		names = append(names, strconv.FormatUint(s.Server, 16))
	}
	at, err := json.Marshal(names)
	if err != nil {
		return false, err
	}
	key, index := responseKeys(s.Tenant, s.ID)
	err = r.redis.do(ctx, "storing the worker of a response", func(ctx context.Context) error {
		n, err := r.rememberScript.Run(ctx, r.redis.client, []string{key, index}, hashed(s.Tenant), at,
			responseLife.Milliseconds(), r.perShard, number(onlyUnknown), number(s.Foreign)).Int()
		contested = n == 1
		return err
	})
	if err != nil && !errors.Is(err, errAway) { // after an outage all are sent
		r.keepUnsent(s)
	}
	r.logFailure(err)
	return contested, err
}

// Get returns what Redis knows about a response for a tenant. An error means that Redis did not answer, so it may know
// the response.
func (r *Responses) Get(ctx context.Context, tenant, id string) (s StoredResponse, known bool, err error) {
	if len(id) > maxStoredID {
		return s, false, nil
	}
	key, _ := responseKeys(tenant, id)
	var value string
	err = r.redis.do(ctx, "finding the worker of a response", func(ctx context.Context) (err error) {
		value, err = r.redis.client.Get(ctx, key).Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			return redis.Nil // Put replaces the key
		}
		return err
	})
	if errors.Is(err, redis.Nil) {
		return s, false, nil
	}
	if err != nil {
		r.logFailure(err)
		return s, false, err
	}
	version, rest, _ := strings.Cut(value, ":")
	state, rest, _ := strings.Cut(rest, ":")
	owner, at, ok := strings.Cut(rest, ":")
	if !ok || version != "1" {
		return s, false, nil
	}
	s = StoredResponse{ID: id, Tenant: tenant, Foreign: state != "o" || owner != hashed(tenant)}
	if s.Foreign {
		return s, true, nil
	}
	var names []string
	if json.Unmarshal([]byte(at), &names) != nil || len(names) < 3 {
		return StoredResponse{}, false, nil
	}
	s.Pool, s.Worker, s.Model = names[0], names[1], names[2]
	if len(names) > 3 {
		s.Server, _ = strconv.ParseUint(names[3], 16, 64) // 0 is unknown
	}
	return s, true, nil
}

// Forget marks a tenant's response as deleted. During an outage it does nothing.
func (r *Responses) Forget(ctx context.Context, tenant, id string) {
	r.mu.Lock()
	r.unsent = slices.DeleteFunc(r.unsent, func(s StoredResponse) bool { return s.ID == id && s.Tenant == tenant })
	r.mu.Unlock()
	key, _ := responseKeys(tenant, id)
	r.logFailure(r.redis.do(ctx, "forgetting a response", func(ctx context.Context) error {
		return r.forgetScript.Run(ctx, r.redis.client, []string{key}, hashed(tenant)).Err()
	}))
}

// logFailure logs an error of Redis. Redis itself logs its outages.
func (r *Responses) logFailure(err error) {
	if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, errAway) {
		r.log.Debug("stored responses are not shared", "cause", err)
	}
}

// Valid reports whether a response has an id that directories store: 1 to 256 bytes.
func (s *StoredResponse) Valid() bool { return s.ID != "" && len(s.ID) <= maxStoredID }

// responseKeys returns the key of a response and the key of its tenant's index in the same shard.
func responseKeys(tenant, id string) (key, index string) {
	sum := hashed(id)
	base := "tierway:v1:{responses-" + sum[:1] + "}:" // one of 16 shards
	return base + "id:" + sum, base + "tenant:" + hashed(tenant)
}

// hashed returns 128 bits of the SHA-256 of a text as 32 hexadecimal digits.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
