package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tierway/memnet"
	"tierway/routing/kvindex"
	"tierway/workers/kvcache"
	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
)

// indexSink feeds an index from a stream.
type indexSink struct {
	*kvindex.Worker
	mu      sync.Mutex
	changed sync.Cond // of the two below
	live    bool
	applied uint64 // batches
}

func (s *indexSink) Apply(b *kvevents.Batch) {
	s.Worker.Apply(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied++
	s.changed.Broadcast()
}

func (s *indexSink) Report(kvstream.Happening, error) {}
func (s *indexSink) SetLive(live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = live
	s.changed.Broadcast()
}

// waitFor waits until the stream is live and has given a number of batches.
func (s *indexSink) waitFor(batches uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.live || s.applied != batches {
		s.changed.Wait()
	}
}

// TestIndexOfPublishedEventsPredictsCachedTokens sends chats with and without a salt to an engine
// with a small cache. Before each, the index has to say what the engine will take from its
// cache.
func TestIndexOfPublishedEventsPredictsCachedTokens(t *testing.T) {
	e := New(Config{Model: "m", CacheTokens: 34 * blockTokens})
	ctx, cancel := context.WithCancel(context.Background())
	if err := e.PublishEvents(ctx, "tcp://127.0.0.1:0", "ipc://"+t.TempDir()+"/replay"); err != nil {
		t.Fatal(err)
	}
	network := memnet.New()
	s := network.NewServer(e)
	client := &http.Client{Transport: network.Transport()}
	var announced json.RawMessage
	get(t, client, s.URL+"/kv_event_sources", &announced)
	found, err := kvcache.ParseSources(announced)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v", announced, err)
	}
	source := kvcache.Config{}.Sources("127.0.0.1", found)[0]
	x := kvindex.New(1 << 20)
	w, err := x.Add("")
	if err != nil {
		t.Fatal(err)
	}
	sink := &indexSink{Worker: w}
	sink.changed.L = &sink.mu
	var stream sync.WaitGroup
	stream.Go(func() {
		kvstream.New(kvstream.Config{Topic: source.Topic, Replay: source.Replay}, sink).Follow(ctx, source.Address)
	})
	defer func() { cancel(); stream.Wait(); s.Close(); e.Close() }()

	predicted := 0
	for i := range 60 {
		salt := []string{"", "tenant-a"}[i%2]
		text := fmt.Sprintf("chat %d: %s", i/4%5, strings.Repeat("the same words again ", 3+i/4%5*4))
		body := fmt.Sprintf(`{"model":"m","cache_salt":%q,"max_tokens":20,"messages":[{"role":"user","content":%q}]}`,
			salt, text)
		var tokens struct{ Tokens []uint32 }
		post(t, client, s.URL+"/tokenize", body, &tokens)
		keys := kvindex.AppendKeys(nil, kvindex.Root("", blockTokens), blockTokens, tokens.Tokens[:len(tokens.Tokens)-1],
			[]uint64{kvevents.ExtraKey(salt)}, 0)
		agree(t, e, sink)
		var m [kvindex.MaxWorkers]kvindex.Match
		x.Overlap(keys, &m)
		var answer struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		post(t, client, s.URL+"/v1/chat/completions", body, &answer)
		if got := m[w.ID()].Blocks * blockTokens; got != answer.Usage.Details.Cached {
			t.Fatalf("request %d: %d tokens predicted, %d cached", i, got, answer.Usage.Details.Cached)
		}
		predicted += m[w.ID()].Blocks
	}
	if predicted == 0 || w.Counts().Removed == 0 {
		t.Errorf("%d blocks were cached, %d were evicted", predicted, w.Counts().Removed)
	}
}

// agree waits until the index has taken all changes of the cache.
func agree(t *testing.T, e *Engine, s *indexSink) {
	t.Helper()
	s.waitFor(e.events.published())
	if s.Len() != e.cache.len() {
		t.Fatalf("the index has %d blocks, the cache %d", s.Len(), e.cache.len())
	}
}

func get(t *testing.T, client *http.Client, url string, into any) {
	t.Helper()
	res, err := client.Get(url)
	decodeAnswer(t, res, err, into)
}

func post(t *testing.T, client *http.Client, url, body string, into any) {
	t.Helper()
	res, err := client.Post(url, "application/json", strings.NewReader(body))
	decodeAnswer(t, res, err, into)
}

func decodeAnswer(t *testing.T, res *http.Response, err error, into any) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() // it was only read
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", res.Status, err)
	}
}

// published is the number of batches so far.
func (l *cacheEvents) published() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}
