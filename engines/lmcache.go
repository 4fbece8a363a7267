package engines

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Where a simulated controller of LMCache states the numbers of keys.
const (
	KeysInWorkers = "workers" // in its list of workers
	KeysInStats   = "stats"   // in /controller/key-stats
	KeysNowhere   = "nowhere" // not at all; /controller/key-stats is 404
)

// LMCacheConfig configures an LMCache.
type LMCacheConfig struct {
	Chunk    int    // tokens of a chunk; 0: 256
	Capacity int    // tokens of an instance's cache; 0: 1,000,000
	Keys     string // where the numbers of keys are; empty: KeysInWorkers
	Old      bool   // look-ups have the oldest form, {"res": instance}, and there is no list of workers
	Key      string // bearer token that requests must have; empty: none
}

// LMCache simulates LMCache: a cache of each attached engine beside its own, and the HTTP API of their controller,
// which it serves as an http.Handler. It is safe for concurrent use.
type LMCache struct {
	c   LMCacheConfig
	mux *http.ServeMux

	mu        sync.Mutex
	instances []lmcacheInstance // in the order of their registration
	lookups   int
}

type lmcacheInstance struct {
	id    string
	cache *prefixCache
	since time.Time
}

// NewLMCache returns a controller without instances.
func NewLMCache(c LMCacheConfig) *LMCache {
	if c.Chunk <= 0 {
		c.Chunk = 256
	}
	if c.Capacity <= 0 {
		c.Capacity = 1_000_000
	}
	if c.Keys == "" {
		c.Keys = KeysInWorkers
	}
	l := &LMCache{c: c, mux: http.NewServeMux()}
	l.mux.HandleFunc("POST /lookup", l.lookup)
	if !c.Old {
		l.mux.HandleFunc("GET /controller/workers", l.listWorkers)
		if c.Keys != KeysNowhere {
			l.mux.HandleFunc("GET /controller/key-stats", l.keyStats)
		}
	}
	return l
}

// Attach gives an engine a cache of LMCache, and registers it as an instance. It must be called before the
// engine's first request. A nil engine registers an instance without chunks.
func (l *LMCache) Attach(instance string, e *Engine) {
	cache := newPrefixCache(max(1, l.c.Capacity/l.c.Chunk), l.c.Chunk)
	if e != nil {
		e.cache.offload = cache
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.instances = append(l.instances, lmcacheInstance{instance, cache, time.Now()})
}

// Lookups returns the number of look-ups so far.
func (l *LMCache) Lookups() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lookups
}

// ServeHTTP implements http.Handler.
func (l *LMCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.c.Key != "" && r.Header.Get("Authorization") != "Bearer "+l.c.Key {
		l.fail(w, http.StatusUnauthorized, "the key is missing or wrong")
		return
	}
	l.mux.ServeHTTP(w, r)
}

func (l *LMCache) fail(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"detail": detail}) // the client may be gone
}

func (l *LMCache) write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// lookup credits each chunk to the first instance that has it, up to the first unknown chunk.
func (l *LMCache) lookup(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Tokens *[]uint32 `json:"tokens"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxBody)).Decode(&body); err != nil || body.Tokens == nil {
		l.fail(w, http.StatusUnprocessableEntity, "tokens: a list of integers is required")
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookups++
	layout, best := map[string][2]any{}, ""
	for i, h := range newPrefixCache(1, l.c.Chunk).chain("", *body.Tokens) {
		at := slices.IndexFunc(l.instances, func(in lmcacheInstance) bool { return in.cache.has(h) })
		if at < 0 {
			break
		}
		best = l.instances[at].id
		layout[best] = [2]any{"LocalCPUBackend", (i + 1) * l.c.Chunk}
	}
	if l.c.Old {
		var res *string
		if best != "" {
			res = &best
		}
		l.write(w, map[string]any{"res": res})
		return
	}
	l.write(w, map[string]any{"event_id": fmt.Sprintf("lookup-%d", l.lookups), "layout_info": layout})
}

func (l *LMCache) listWorkers(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := r.URL.Query().Get("instance_id")
	list := []map[string]any{}
	for i, in := range l.instances {
		if wanted != "" && wanted != in.id {
			continue
		}
		entry := map[string]any{"instance_id": in.id, "worker_id": 0, "ip": "127.0.0.1", "port": 8500 + i,
			"peer_init_url": nil, "registration_time": seconds(in.since), "last_heartbeat_time": seconds(time.Now())}
		if l.c.Keys == KeysInWorkers {
			entry["key_count"] = in.cache.len()
		}
		list = append(list, entry)
	}
	if wanted != "" && len(list) == 0 {
		l.fail(w, http.StatusNotFound, "the instance is not registered")
		return
	}
	l.write(w, map[string]any{"workers": list, "total_count": len(list)})
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func (l *LMCache) keyStats(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, total := []map[string]any{}, 0
	for _, in := range l.instances {
		total += in.cache.len()
		list = append(list, map[string]any{"instance_id": in.id, "key_count": in.cache.len(), "worker_count": 1})
	}
	l.write(w, map[string]any{"total_key_count": total, "total_instance_count": len(list),
		"total_worker_count": len(list), "instances": list})
}
