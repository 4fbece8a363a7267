package lmcache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tierway/engines"
	"tierway/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// connect returns a client of a handler, which runs until the test ends, and its log.
func connect(t *testing.T, h http.Handler, c Config) (*Controller, *lines) {
	t.Helper()
	network, log := memnet.New(), &lines{}
	server := network.NewServer(h)
	t.Cleanup(server.Close)
	c.URL, c.Dial, c.Log = server.URL, network.Dial, slog.New(slog.NewTextHandler(log, nil))
	k := New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return k, log
}

func tokensFrom(first uint32, n int) (tokens []uint32) {
	for i := range uint32(n) {
		tokens = append(tokens, first+i)
	}
	return tokens
}

// send makes an engine compute a prompt of token ids.
func send(t *testing.T, e http.Handler, tokens []uint32) {
	t.Helper()
	network := memnet.New()
	server := network.NewServer(e)
	defer server.Close()
	transport := network.Transport()
	defer transport.CloseIdleConnections()
	body := fmt.Sprintf(`{"model":"m","max_tokens":1,"prompt":[%s]}`, strings.Trim(strings.ReplaceAll(fmt.Sprint(tokens),
		" ", ","), "[]"))
	answer, err := (&http.Client{Transport: transport}).Post(server.URL+"/v1/completions", "application/json",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Fatalf("%d: %s", answer.StatusCode, text)
	}
}

// TestLookupSaysWhatInstancesHave (L1): the wire of both forms of an answer, with LMCache's chunks.
func TestLookupSaysWhatInstancesHave(t *testing.T) {
	for name, c := range map[string]struct {
		config engines.LMCacheConfig
		want   []Match
	}{
		"layout_info": {want: []Match{{"a", "LocalCPUBackend", 512}, {"b", "LocalCPUBackend", 768}}},
		"res":         {config: engines.LMCacheConfig{Old: true}, want: []Match{{"b", "", Chunk}}},
		"other chunk": {config: engines.LMCacheConfig{Chunk: 1000}},
		"with a key": {config: engines.LMCacheConfig{Key: "secret"},
			want: []Match{{"a", "LocalCPUBackend", 512}, {"b", "LocalCPUBackend", 768}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := engines.NewLMCache(c.config)
				var fleet []*engines.Engine
				for _, id := range []string{"a", "b", "foreign"} {
					e := engines.New(engines.Config{Model: "m", CacheTokens: 10_000})
					defer e.Close()
					l.Attach(id, e)
					fleet = append(fleet, e)
				}
				k, _ := connect(t, l, Config{Lookups: true, Key: c.config.Key,
					Known: func(id string) bool { return id != "foreign" }})
				prompt := tokensFrom(1000, 900)
				send(t, fleet[0], prompt[:600])
				send(t, fleet[1], prompt)
				send(t, fleet[2], tokensFrom(9000, 600))
				got, ok := k.Lookup(t.Context(), prompt, true, nil)
				slices.SortFunc(got, func(a, b Match) int { return strings.Compare(a.Instance, b.Instance) })
				if !ok || !slices.Equal(got, c.want) {
					t.Errorf("got %v, %v, want %v", got, ok, c.want)
				}
				if got, ok := k.Lookup(t.Context(), tokensFrom(9000, 600), false, nil); !ok || len(got) != 0 {
					t.Errorf("of another pool: %v, %v", got, ok)
				}
				if got, ok := k.Lookup(t.Context(), tokensFrom(5000, 600), false, nil); !ok || len(got) != 0 {
					t.Errorf("of an unknown prompt: %v, %v", got, ok)
				}
			})
		})
	}
}

// TestListingHasTheKeysOfInstances (L1): in the list of workers, in the statistics, or nowhere.
func TestListingHasTheKeysOfInstances(t *testing.T) {
	for keys, want := range map[string]Listing{
		engines.KeysInWorkers: {Instances: []Instance{{"a", 2}, {"b", 0}}, Counted: true},
		engines.KeysInStats:   {Instances: []Instance{{"a", 2}, {"b", 0}}, Counted: true},
		engines.KeysNowhere:   {Instances: []Instance{{"a", 0}, {"b", 0}}},
	} {
		t.Run(keys, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := engines.NewLMCache(engines.LMCacheConfig{Keys: keys})
				e := engines.New(engines.Config{Model: "m"})
				defer e.Close()
				l.Attach("b", nil)
				l.Attach("a", e)
				send(t, e, tokensFrom(1, 600))
				k, log := connect(t, l, Config{})
				got := k.Listing()
				if got == nil || got.Counted != want.Counted || !slices.Equal(got.Instances, want.Instances) {
					t.Fatalf("got %+v, want %+v", got, want)
				}
				state, warned := StateUp, 0
				if !want.Counted {
					state, warned = StateUncounted, 1
				}
				time.Sleep(time.Minute)
				if v := k.View(); v.State != state || v.Known != 2 || log.count("states no numbers of keys") != warned {
					t.Errorf("%+v", v)
				}
				send(t, e, tokensFrom(5000, 300))
				time.Sleep(DefaultPollInterval + time.Second)
				if v := k.View(); want.Counted && v.Keys != 3 {
					t.Errorf("after another prompt: %+v", v)
				}
			})
		})
	}
}

func TestWorkersOfAnInstanceAreAddedUp(t *testing.T) {
	l, err := readWorkers([]byte(`{"workers":[{"instance_id":"a","worker_id":0,"key_count":3},
		{"instance_id":"a","worker_id":1,"key_count":4},{"instance_id":"b","key_count":1e300},
		{"instance_id":"c","key_count":-5}],"total_count":4}`))
	want := []Instance{{"a", 7}, {"b", mostKeys}, {"c", 0}}
	if err != nil || !l.Counted || !slices.Equal(l.Instances, want) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err = readWorkers([]byte(`{"workers":[{"instance_id":"a","key_count":3},{"instance_id":"b"}]}`)); err != nil ||
		l.Counted {
		t.Errorf("one worker has no number: %+v, %v", l, err)
	}
}

// faulty is a controller with a fault that can be switched off.
type faulty struct {
	healthy http.Handler
	fault   atomic.Pointer[http.HandlerFunc] // nil: none
	lookups atomic.Int64
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == lookupPath {
		f.lookups.Add(1)
	}
	if h := f.fault.Load(); h != nil {
		(*h)(w, r)
		return
	}
	f.healthy.ServeHTTP(w, r)
}

// faults are the ways in which a controller does not answer.
func faults() map[string]http.HandlerFunc {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, `{"detail":"x"}`)
		}
	}
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
	}
	return map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); <-r.Context().Done() },
		"500":   status(http.StatusInternalServerError),
		"503":   status(http.StatusServiceUnavailable),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere", http.StatusFound)
		},
		"empty":       text(""),
		"no JSON":     text("<html>"),
		"other JSON":  text(`{"ok":true}`),
		"bad layout":  text(`{"layout_info":{"a":[768]},"workers":7}`),
		"long answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+2)) },
		"no bytes":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
}

// TestFailedLookupSuspendsTheOthers (L2): one look-up waits for the limit, then none is sent until a probe succeeds.
func TestFailedLookupSuspendsTheOthers(t *testing.T) {
	for name, fault := range faults() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := engines.NewLMCache(engines.LMCacheConfig{})
				e := engines.New(engines.Config{Model: "m"})
				defer e.Close()
				l.Attach("a", e)
				prompt := tokensFrom(1, 600)
				send(t, e, prompt)
				f := &faulty{healthy: l}
				k, log := connect(t, f, Config{Lookups: true, PollInterval: time.Hour})
				f.fault.Store(&fault)
				slow := 0
				for range 1000 {
					began := time.Now()
					if _, ok := k.Lookup(t.Context(), prompt, true, nil); ok {
						t.Fatal("a look-up succeeded")
					}
					if took := time.Since(began); took > LookupLimit {
						t.Fatalf("a look-up took %v", took)
					} else if took > 0 {
						slow++
					}
				}
				if slow > 1 || f.lookups.Load() > 2 { // a kept connection that breaks is replaced once
					t.Errorf("%d look-ups waited, %d were sent", slow, f.lookups.Load())
				}
				v := k.View()
				if v.State != StateDown || v.Fault == "" || v.Counts.Failed+v.Counts.TimedOut != 1 || v.Counts.Suspended != 999 {
					t.Errorf("%+v", v)
				}
				time.Sleep(time.Minute)
				if n := f.lookups.Load(); n < 3 || n > 8 {
					t.Errorf("%d probes in a minute", n-1)
				}
				f.fault.Store(nil)
				time.Sleep(lastProbe + time.Second)
				if got, ok := k.Lookup(t.Context(), prompt, true, nil); !ok || len(got) != 1 {
					t.Errorf("after the fault: %v, %v", got, ok)
				}
				if k.View().State != StateUp || log.count("suspended") != 1 || log.count("look-ups again") != 1 {
					t.Errorf("%+v\n%s", k.View(), log.text.String())
				}
			})
		})
	}
}

// TestConcurrentLookupsWaitOnceForAHang (L2).
func TestConcurrentLookupsWaitOnceForAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{healthy: engines.NewLMCache(engines.LMCacheConfig{})}
		k, _ := connect(t, f, Config{Lookups: true, PollInterval: time.Hour})
		hang := faults()["hangs"]
		f.fault.Store(&hang)
		var clients sync.WaitGroup
		var slow atomic.Int64
		for range 200 {
			clients.Go(func() {
				for range 20 {
					began := time.Now()
					k.Lookup(t.Context(), tokensFrom(1, 600), true, nil)
					if time.Since(began) > 0 {
						slow.Add(1)
					}
				}
			})
		}
		clients.Wait()
		if slow.Load() > maxConnections || f.lookups.Load() > maxConnections {
			t.Errorf("%d look-ups waited, and %d were sent", slow.Load(), f.lookups.Load())
		}
		if v := k.View(); v.Counts.Skipped == 0 || v.Counts.TimedOut == 0 {
			t.Errorf("%+v", v)
		}
	})
}

func TestPollThatFailsSuspendsLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{healthy: engines.NewLMCache(engines.LMCacheConfig{})}
		k, _ := connect(t, f, Config{Lookups: true})
		hang := faults()["hangs"]
		f.fault.Store(&hang)
		time.Sleep(DefaultPollInterval + DefaultTimeout + time.Millisecond)
		began := time.Now()
		if _, ok := k.Lookup(t.Context(), tokensFrom(1, 600), true, nil); ok || time.Since(began) > 0 {
			t.Errorf("%v after %v", ok, time.Since(began))
		}
	})
}

// TestOldControllerWithoutAListIsUp (L1): look-ups need no list.
func TestOldControllerWithoutAListIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{Old: true})
		k, log := connect(t, l, Config{Lookups: true})
		time.Sleep(time.Minute)
		if _, ok := k.Lookup(t.Context(), tokensFrom(1, 600), false, nil); !ok || k.View().State != StateUp ||
			log.count("WARN") != 0 {
			t.Errorf("%v, %+v\n%s", ok, k.View(), log.text.String())
		}
	})
}

func TestClientThatLeavesIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{healthy: engines.NewLMCache(engines.LMCacheConfig{})}
		k, _ := connect(t, f, Config{Lookups: true, PollInterval: time.Hour})
		hang := faults()["hangs"]
		f.fault.Store(&hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, ok := k.Lookup(ctx, tokensFrom(1, 600), true, nil); ok || k.View().State == StateDown {
			t.Errorf("%v, %+v", ok, k.View())
		}
	})
}

// TestControllerThatIsDownHasNoListing (L2): the fallback policy decides from the next poll on.
func TestControllerThatIsDownHasNoListing(t *testing.T) {
	for name, fault := range faults() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := engines.NewLMCache(engines.LMCacheConfig{})
				l.Attach("a", nil)
				f := &faulty{healthy: l}
				k, log := connect(t, f, Config{})
				if k.Listing() == nil {
					t.Fatal("no listing")
				}
				f.fault.Store(&fault)
				time.Sleep(time.Minute)
				if v := k.View(); k.Listing() != nil || v.State != StateDown || v.Fault == "" ||
					log.count("cannot be polled") != 1 {
					t.Errorf("%+v\n%s", v, log.text.String())
				}
				f.fault.Store(nil)
				time.Sleep(DefaultPollInterval + time.Second)
				if v := k.View(); k.Listing() == nil || v.State != StateUp || log.count("answers again") != 1 {
					t.Errorf("%+v", v)
				}
			})
		})
	}
}

// TestControllerWithoutWorkersIsReportedOnce, and one without workers of the pool.
func TestControllerWithoutWorkersIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		k, log := connect(t, l, Config{Lookups: true, Known: func(id string) bool { return id == "a" }})
		if v := k.View(); v.State != StateNoWorkers || log.count("WARN") != 0 {
			t.Errorf("at the start: %+v", v)
		}
		time.Sleep(5 * time.Minute)
		if log.count("lists no worker") != 1 {
			t.Errorf("without workers:\n%s", log.text.String())
		}
		l.Attach("b", nil)
		time.Sleep(5 * time.Minute)
		if v := k.View(); v.State != StateForeign || v.Instances != 1 || log.count("WARN") != 1 {
			t.Errorf("with a foreign one: %+v\n%s", v, log.text.String())
		}
		l.Attach("a", nil)
		time.Sleep(time.Minute)
		if v := k.View(); v.State != StateUp || log.count("WARN") != 1 {
			t.Errorf("with a worker: %+v", v)
		}
	})
}

// TestLookupsThatNeverMatchAreReportedOnce: those of prompts that were seen before.
func TestLookupsThatNeverMatchAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		e := engines.New(engines.Config{Model: "m"})
		defer e.Close()
		l.Attach("a", e)
		k, log := connect(t, l, Config{Lookups: true})
		prompt := tokensFrom(1, 600)
		for range 3 * warnMisses {
			k.Lookup(t.Context(), prompt, false, nil)
		}
		if log.count("WARN") != 0 || k.View().State != StateUp {
			t.Errorf("after new prompts: %+v\n%s", k.View(), log.text.String())
		}
		for range 3 * warnMisses {
			k.Lookup(t.Context(), prompt, true, nil)
		}
		if log.count("have found nothing") != 1 || k.View().State != StateNoMatch {
			t.Errorf("after repeated prompts: %+v\n%s", k.View(), log.text.String())
		}
		send(t, e, prompt)
		if k.Lookup(t.Context(), prompt, true, nil); k.View().State != StateUp {
			t.Errorf("after a match: %+v", k.View())
		}
	})
}

// TestKeyIsInNoLog of a controller that refuses it.
func TestKeyIsInNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{Key: "right"})
		k, log := connect(t, l, Config{Key: "hush-hush"})
		if v := k.View(); v.State != StateDown || !strings.Contains(v.Fault, "401") || log.count("hush") > 0 {
			t.Errorf("%+v\n%s", v, log.text.String())
		}
	})
}

func FuzzLookupAnswer(f *testing.F) {
	for _, text := range []string{`{"event_id":"x","layout_info":{"a":["LocalCPUBackend",768]}}`, `{"res":"a"}`, `{"res":null}`,
		`{"layout_info":null}`, `{"layout_info":{"a":null,"b":[null,1e400]}}`, `{"layout_info":{"a":[["x"],{}]}}`} {
		f.Add([]byte(text))
	}
	k := New(Config{})
	f.Fuzz(func(t *testing.T, text []byte) {
		matches, err := k.readLayout(text, nil)
		for _, m := range matches {
			if err == nil && (m.Tokens < 1 || m.Tokens > mostTokens) {
				t.Errorf("%+v", m)
			}
		}
		if l, err := readWorkers(text); err == nil {
			_ = l.readKeys(text)
			for _, i := range l.Instances {
				if i.Keys < 0 || i.Keys > mostKeys {
					t.Errorf("%+v", i)
				}
			}
		}
	})
}
