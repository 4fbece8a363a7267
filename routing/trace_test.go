package routing

import (
	"bufio"
	"container/heap"
	"container/list"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tierway/routing/prefix"
)

// traced is one request of the Mooncake conversation trace.
type traced struct {
	Timestamp int64    `json:"timestamp"` // ms
	Input     int64    `json:"input_length"`
	Output    int64    `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"` // one for each 512 tokens
}

// readTrace returns the first requests of the trace. It skips the test if the file is missing.
func readTrace(t *testing.T, most int) (trace []traced) {
	name := filepath.Join("..", "..", "shared", "data", "mooncake", "conversation_trace.jsonl")
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the trace is not at %s", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && len(trace) < most {
		var r traced
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		trace = append(trace, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return trace
}

// cache is a worker's KV cache of recently used blocks. It evicts the tail of a chain before its head.
type cache struct {
	size   int
	order  list.List
	blocks map[uint64]*list.Element
}

// serve returns how many blocks of the chain were cached, and caches all.
func (c *cache) serve(chain []Block) (hits int) {
	for hits < len(chain) && c.blocks[chain[hits].Hash] != nil {
		hits++
	}
	for _, b := range slices.Backward(chain) {
		if e := c.blocks[b.Hash]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		c.blocks[b.Hash] = c.order.PushFront(b.Hash)
		if c.order.Len() > c.size {
			delete(c.blocks, c.order.Remove(c.order.Back()).(uint64))
		}
	}
	return hits
}

// replay sends each request to a worker of the pool at its time. It returns the share of tokens that were
// cached there, the imbalance of the tokens, and the share of requests that did not go home. A worker
// takes 0.2 ms per token that is not cached and 20 ms per output token, at any load.
func replay(t *testing.T, policy Policy, trace []traced, workers int) (hit, uneven, away float64) {
	const blockTokens, blocks = 512, 10_000
	members, caches, tokens := make([]Member, workers), make([]cache, workers), make([]int64, workers)
	for i := range members {
		members[i] = Member{ID: fmt.Sprint("w", i), Weight: 1, Ref: i}
		caches[i] = cache{size: blocks, blocks: map[uint64]*list.Element{}}
	}
	pool := NewPool(policy, members)
	for _, m := range members {
		pool.Observe(m.ID, m.Ref, Status{Up: true, CacheTokens: blocks * blockTokens})
	}
	cached, all, d, due := int64(0), int64(0), rng(7), steps{}
	for _, r := range trace {
		chain, hash := make([]Block, len(r.HashIDs)), uint64(1)
		for i, id := range r.HashIDs {
			hash = Mix(hash + golden ^ Mix(id+1))
			chain[i] = Block{Hash: hash, End: min(int64(i+1)*blockTokens, r.Input) * 4}
		}
		now := start.Add(time.Duration(r.Timestamp) * time.Millisecond)
		for len(due) > 0 && !now.Before(due[0].at) {
			s := heap.Pop(&due).(step)
			s.do(s.at)
		}
		lease, err := pool.Acquire(&Request{
			Now: now, Rand: d.next(), Blocks: chain, Prefix: chain[0].Hash, PromptTokens: r.Input, OutputTokens: r.Output,
			Stream: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if reason := lease.Reason(); reason == ReasonPrefixOverflow || reason == ReasonPrefixSaturated {
			away += 1 / float64(len(trace))
		}
		i := lease.Ref().(int)
		hits := min(int64(caches[i].serve(chain))*blockTokens, r.Input)
		cached, all, tokens[i] = cached+hits, all+r.Input, tokens[i]+r.Input
		first := now.Add(time.Duration(r.Input-hits) * time.Second / 5000)
		heap.Push(&due, step{first, func(at time.Time) { lease.Answered(at, nil) }})
		heap.Push(&due, step{first.Add(time.Duration(r.Output) * time.Second / 50), func(at time.Time) {
			lease.Release(Result{At: at, PromptTokens: r.Input, CachedTokens: hits, OutputTokens: r.Output, Text: true})
		}})
	}
	return float64(cached) / float64(all), unfair(tokens), away
}

// step is an event of a request.
type step struct {
	at time.Time
	do func(at time.Time)
}

type steps []step

func (s steps) Len() int           { return len(s) }
func (s steps) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s steps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)        { *s = append(*s, x.(step)) }
func (s *steps) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// In this recorded trace every request begins with the same block. It runs on 8 workers of 10,000
// blocks. A single unbounded cache has 37.4 % hits over the whole trace.
func TestTraceHitsCachesAndBalancesLoad(t *testing.T) {
	trace := readTrace(t, 20_000)
	for workers, best := range map[int]float64{8: 0.369, 16: 0.373} { // hits of the best policy known
		hit, uneven, _ := replay(t, newKVAware(), trace, workers)
		t.Logf("kv_aware on %d workers: %.1f %% of the tokens cached, max/mean tokens %.2f", workers, 100*hit, uneven)
		if hit < 0.99*best || uneven > 1.05 {
			t.Errorf("kv_aware on %d workers: %.1f %% of the tokens cached, %.2f times the mean", workers, 100*hit, uneven)
		}
	}
	one, hits := 1.0, map[string]float64{}
	for _, c := range []struct {
		name   string
		config Config
		uneven float64
	}{
		{"chwbl", Config{Name: "chwbl"}, 1.2},
		{"chwbl, epsilon 1", Config{Name: "chwbl", Epsilon: &one}, 1.2},
		{"least_load", Config{Name: "least_load"}, 1.2},
		{"round_robin", Config{Name: "round_robin"}, 1.2},
	} {
		p, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		hit, uneven, moved := replay(t, p, trace, 8)
		depth := prefix.Depth{}
		if a, ok := p.(Adaptive); ok {
			depth = a.Depth()
		}
		hits[c.name] = hit
		t.Logf("%-16s %.1f %% of the tokens cached, max/mean tokens %.2f, %.1f %% away from home, %+v", c.name, 100*hit,
			uneven, 100*moved, depth)
		if uneven > c.uneven {
			t.Errorf("%s: a worker has %.2f times the mean", c.name, uneven)
		}
	}
	if hits["chwbl"] < 2*hits["least_load"] {
		t.Errorf("chwbl finds %.1f %% cached, least_load %.1f", 100*hits["chwbl"], 100*hits["least_load"])
	}
}
