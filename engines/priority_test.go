package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// prioritizedBodies are one request of every dialect whose requests have a
// priority at vLLM, without their closing brace.
var prioritizedBodies = map[string]string{
	"/v1/chat/completions": `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]`,
	"/v1/completions":      `{"model":"m","max_tokens":1,"prompt":"x"`,
	"/v1/responses":        `{"model":"m","max_output_tokens":1,"input":"x"`,
	"/v1/embeddings":       `{"model":"m","input":"x"`,
	"/v1/rerank":           `{"model":"m","query":"x","documents":["x"]`,
	"/v1/score":            `{"model":"m","text_1":"x","text_2":"x"`,
}

// askNamed sends a request under an id and returns the answer.
func askNamed(ctx context.Context, e *Engine, id, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body))
	r.Header.Set("X-Request-Id", id)
	e.ServeHTTP(w, r)
	return w
}

func TestEnginesTakePrioritiesAsTheyAreSetUp(t *testing.T) {
	const fine, wrong = 200, 400
	for _, tt := range []struct {
		value                  string // empty: none
		ignored, refused, used int
		account                Account
	}{
		{"", fine, fine, fine, Account{}},
		{"0", fine, fine, fine, Account{Prioritized: true}},
		{"20", fine, wrong, fine, Account{Priority: 20, Prioritized: true}},
		{"-7", fine, wrong, fine, Account{Priority: -7, Prioritized: true}},
		{`"-7"`, fine, wrong, fine, Account{Priority: -7, Prioritized: true}},
		{"3.0", fine, wrong, fine, Account{Priority: 3, Prioritized: true}},
		{"true", fine, wrong, fine, Account{Priority: 1, Prioritized: true}},
		{"false", fine, fine, fine, Account{Prioritized: true}},
		{"9223372036854775808", fine, wrong, wrong, Account{}},
		{"3.5", fine, wrong, wrong, Account{}},
		{`"high"`, fine, wrong, wrong, Account{}},
		{"null", fine, wrong, wrong, Account{}},
		{"[1]", fine, wrong, wrong, Account{}},
	} {
		for set, want := range map[Priority]int{PriorityIgnored: tt.ignored, PriorityRefused: tt.refused,
			PriorityFirst: tt.used} {
			var told accounts
			e := New(Config{Model: "m", Ended: told.add, Priority: set})
			for path, body := range prioritizedBodies {
				if tt.value != "" {
					body += `,"priority":` + tt.value
				}
				w := askNamed(t.Context(), e, path, path, body+"}")
				if w.Code != want || want != fine && !strings.Contains(w.Body.String(), "priority") {
					t.Errorf("%d: %s with %s: %d %s, want %d", set, path, tt.value, w.Code, w.Body, want)
				}
			}
			for i, a := range told.list {
				if a.Priority != tt.account.Priority || a.Prioritized != tt.account.Prioritized {
					t.Errorf("%d: %s with %s: the account says %d, %v", set, told.ids[i], tt.value, a.Priority, a.Prioritized)
				}
			}
			if got := len(told.list); got != len(prioritizedBodies) {
				t.Errorf("%d accounts", got)
			}
		}
	}
}

// vLLM's Messages endpoint knows no priority and passes over the field.
func TestMessagesHaveNoPriority(t *testing.T) {
	e := New(Config{Model: "m", Priority: PriorityRefused})
	if w := askNamed(t.Context(), e, "", "/v1/messages",
		`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"priority":5}`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// arrivals are requests in the order in which they come, while the engine is busy.
var arrivals = []struct {
	id       string
	priority int
}{{"batch", 20}, {"background", 10}, {"interactive", 0}, {"background 2", 10}, {"interactive 2", 0}, {"first", -5},
	{"batch 2", 20}}

// served returns the ids of the arrivals in the order in which a busy engine gave
// their answers.
func served(t *testing.T, set Priority, slots int) []string {
	t.Helper()
	var order []string
	synctest.Test(t, func(t *testing.T) {
		c := timed(slots)
		var told accounts
		c.Ended, c.Priority = told.add, set
		e := New(c)
		var all sync.WaitGroup
		ask := func(id string, tokens, priority int) {
			all.Go(func() {
				body := fmt.Sprintf(`{"model":"m","ignore_eos":true,"max_tokens":%d,"prompt":%q,"priority":%d}`, tokens,
					strings.Repeat(id+" ", 40), priority)
				if w := askNamed(t.Context(), e, id, "/v1/completions", body); w.Code != 200 {
					t.Errorf("%s: %d %s", id, w.Code, w.Body)
				}
			})
			synctest.Wait()
		}
		ask("the busy one", 50, 0)
		time.Sleep(time.Millisecond) // of virtual time: its prompt is being read
		for _, a := range arrivals {
			ask(a.id, 1, a.priority)
		}
		all.Wait()
		order = slices.DeleteFunc(told.ids, func(id string) bool { return id == "the busy one" })
	})
	return order
}

func TestLowestPriorityIsServedFirst(t *testing.T) {
	byPriority := []string{"first", "interactive", "interactive 2", "background", "background 2", "batch", "batch 2"}
	var asTheyCame []string
	for _, a := range arrivals {
		asTheyCame = append(asTheyCame, a.id)
	}
	// With one slot they wait for it, with many for the turn to have their prompts read.
	for _, slots := range []int{1, 64} {
		if got := served(t, PriorityFirst, slots); !slices.Equal(got, byPriority) {
			t.Errorf("%d slots: %v", slots, got)
		}
		if got := served(t, PriorityIgnored, slots); !slices.Equal(got, asTheyCame) {
			t.Errorf("%d slots, priorities ignored: %v", slots, got)
		}
	}
}

// TestASaturatedEngineServesAtItsCapacity: throughput follows from the engine's configuration,
// however many requests wait. Its metrics report running and waiting requests and the cache usage.
func TestASaturatedEngineServesAtItsCapacity(t *testing.T) {
	const slots, requests, tokens = 4, 40, 20
	for _, tt := range []struct {
		name   string
		config Config
		takes  time.Duration
	}{
		// All slots decode: 10 ms × (1 + 3/4) a token, the first of which is free.
		{"tokens", Config{PerToken: 10 * time.Millisecond}, requests / slots * (tokens - 1) * 17500 * time.Microsecond},
		// One prompt at a time: 100 tokens of 1,000 a second.
		{"prompts", Config{Prefill: 1000}, requests * 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.config.Model, tt.config.Slots, tt.config.CacheTokens = "m", slots, 4000
				e := New(tt.config)
				start := time.Now()
				var all sync.WaitGroup
				for i := range requests {
					all.Go(func() { tokenTimes(t.Context(), e, start, prompt(i+5, 100, tokens)) })
				}
				time.Sleep(50 * time.Millisecond)
				w := httptest.NewRecorder()
				e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
				for _, row := range []string{`vllm:num_requests_running{engine="0",model_name="m"} 4`,
					`vllm:num_requests_waiting{engine="0",model_name="m"} 36`,
					`vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.1`} {
					if !strings.Contains(w.Body.String(), row) {
						t.Errorf("no %s in\n%s", row, w.Body)
					}
				}
				all.Wait()
				// The few that read or decode beside fewer others than the rest are what a tenth is for.
				if took := time.Since(start); took < tt.takes*9/10 || took > tt.takes*11/10 {
					t.Errorf("%d requests took %v, want about %v", requests, took, tt.takes)
				}
				if s := e.Stats(); s.MaxConcurrent != slots || s.Running != 0 || s.Waiting != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestRequestsWaitingByPriorityCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newTurnstile(1)
		if err := gate.enter(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		impatient, leave := context.WithCancel(t.Context())
		var order []int64
		var all sync.WaitGroup
		wait := func(ctx context.Context, priority int64) {
			all.Go(func() {
				if gate.enter(ctx, priority) == nil {
					order = append(order, priority) // one at a time is inside
					gate.leave()
				}
			})
			synctest.Wait()
		}
		wait(t.Context(), 20)
		wait(impatient, 0)
		wait(t.Context(), 10)
		leave()
		synctest.Wait()
		gate.leave()
		all.Wait()
		if diff := cmp.Diff([]int64{10, 20}, order); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTheDemoPassesOverPriorities: what the demonstration's engines answer does
// not depend on them.
func TestTheDemoPassesOverPriorities(t *testing.T) {
	for _, c := range Demo(1) {
		c.Prefill, c.PerToken, c.Clock = 0, 0, func() time.Time { return time.Unix(1, 0) }
		var answers [2]any
		for i, body := range []string{"", `,"priority":20`} {
			w := askNamed(t.Context(), New(c), "", "/v1/chat/completions",
				fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"}]%s}`, c.Model, body))
			if w.Code != 200 {
				t.Fatalf("%s: %d %s", c.Name, w.Code, w.Body)
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answers[i]); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: %s", c.Name, diff)
		}
	}
}
