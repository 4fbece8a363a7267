package workers

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/workers/kvcache"
)

const oneSource = `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","topic":"kv"}}`

// askedFor returns how often a path was requested.
func askedFor(f *fakeSender, path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.sent {
		if r.Path == path {
			n++
		}
	}
	return n
}

func TestEngineIsAskedOnceForItsEventSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set(pathEventSources, 500, "")
		w, fake, _, log := checkWorker(t, Health{Interval: time.Second, Timeout: time.Second}, engine)
		engine.set(pathEventSources, 200, oneSource) // its first answer says nothing
		advanceTime(10 * time.Second)
		want := []kvcache.Announced{{Endpoint: "tcp://*:5557", Topic: "kv"}}
		if got := w.Status().EventSources; !slices.Equal(got, want) || askedFor(fake, pathEventSources) != 2 {
			t.Errorf("sources %+v after %d requests", got, askedFor(fake, pathEventSources))
		}
		engine.set(pathHealth, 0, "")
		advanceTime(time.Second)
		if got := w.Status().EventSources; !slices.Equal(got, want) {
			t.Errorf("a failed check removes the sources: %+v", got)
		}
		engine.set(pathHealth, 200, "")
		engine.set(pathEventSources, 404, `{"detail":"Not Found"}`) // another engine
		advanceTime(5 * time.Second)
		if got := w.Status().EventSources; len(got) != 0 || askedFor(fake, pathEventSources) != 3 {
			t.Errorf("sources %+v after %d requests", got, askedFor(fake, pathEventSources))
		}
		engine.set(pathHealth, 0, "")
		advanceTime(time.Second)
		engine.set(pathHealth, 200, "")
		engine.set(pathEventSources, 200, `["x"]`)
		advanceTime(5 * time.Second)
		if strings.Count(log.String(), "KV events are not discovered") != 1 {
			t.Errorf("the log is %s", log)
		}
	})
}

func TestOnlyEnginesThatMayPublishAreAskedForEventSources(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want int
	}{
		"any engine":  {Spec{Engine: "auto"}, 1},
		"vLLM":        {Spec{Engine: "vllm"}, 1},
		"SGLang":      {Spec{Engine: "sglang"}, 0},
		"an endpoint": {Spec{Engine: "openai"}, 0},
		"off":         {Spec{Config: Config{KVEvents: &kvcache.Config{Enabled: new(false)}}}, 0},
		"a port":      {Spec{Config: Config{KVEvents: &kvcache.Config{Port: 5557}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := new(scriptedHealth)
				engine.set(pathHealth, 200, "")
				fake := &fakeSender{answer: engine.answer}
				fleet := NewFleet(Options{Rand: noJitter, send: func(Spec) Sender { return fake }})
				c.spec.Name, c.spec.URL, c.spec.Pool = "w", "http://h:1", "p"
				fleet.Sync([]Spec{c.spec})
				runFleet(t, fleet)
				advanceTime(time.Minute)
				if got := askedFor(fake, pathEventSources); got != c.want {
					t.Errorf("asked %d times", got)
				}
			})
		})
	}
}

func TestConfiguredCacheSizePrecedesTheReportedOne(t *testing.T) {
	w := newWorker(Spec{Config: Config{Name: "w", URL: "http://h:1"}}, func(Spec) Sender { return new(fakeSender) }, nil)
	if got := w.CacheTokens(&Status{CacheTokens: 7}); got != 7 {
		t.Errorf("%d tokens, and the engine reports 7", got)
	}
	w = newWorker(Spec{Config: Config{Name: "w", URL: "http://h:1", CacheTokens: 9}},
		func(Spec) Sender { return new(fakeSender) }, nil)
	if got := w.CacheTokens(&Status{CacheTokens: 7}); got != 9 {
		t.Errorf("%d tokens, and 9 are configured", got)
	}
}
