package engines

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// chatWith returns the body of a streamed chat.
func chatWith(t *testing.T, text string, more map[string]any) string {
	t.Helper()
	body := map[string]any{"model": "m", "stream": true,
		"messages": []any{map[string]any{"role": "user", "content": text}}}
	for key, value := range more {
		body[key] = value
	}
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func tokensOf(t *testing.T, body string) []uint32 {
	t.Helper()
	ids, err := ChatTokens([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestTimeToFirstIsWhatRequestsTake: prompts behind others, with common prefixes, on a cache that has
// some of them.
func TestTimeToFirstIsWhatRequestsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Model: "m", Prefill: 1000, CacheTokens: 1 << 20})
		common := strings.Repeat("once upon a time ", 100)
		for _, text := range []string{common, common, common + strings.Repeat("a second end ", 50),
			strings.Repeat("another story ", 70), common + strings.Repeat("a second end ", 60)} {
			body := chatWith(t, text, nil)
			want, began := e.TimeToFirst(tokensOf(t, body)), time.Now()
			go func() {
				w := &firstWrite{ResponseRecorder: httptest.NewRecorder()}
				e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions",
					strings.NewReader(body)))
				if took := w.at.Sub(began); (took - want).Abs() > time.Microsecond {
					t.Errorf("the first token came after %v, want %v", took, want)
				}
			}()
			synctest.Wait()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(e.backlog.blocks); n != 0 || e.backlog.waiting != 0 {
			t.Errorf("%d blocks and %d tokens stay in the backlog", n, e.backlog.waiting)
		}
		if s := e.Stats(); s.Prefills != 5 || s.Prefill <= 0 || s.Late != 0 {
			t.Errorf("%d prefills of %v, %v late", s.Prefills, s.Prefill, s.Late)
		}
	})
}

// firstWrite records the time of the first event.
type firstWrite struct {
	*httptest.ResponseRecorder
	at time.Time
}

func (w *firstWrite) Write(b []byte) (int, error) {
	if w.at.IsZero() {
		w.at = time.Now()
	}
	return w.ResponseRecorder.Write(b)
}

func (w *firstWrite) Unwrap() http.ResponseWriter { return w.ResponseRecorder }

func TestExpectedPromptIsAheadUntilItArrives(t *testing.T) {
	e := New(Config{Model: "m", Prefill: 1000, CacheTokens: 1 << 20})
	first, second := make([]uint32, 1000), make([]uint32, 500)
	for i := range second {
		second[i] = uint32(i + 1)
	}
	arrived := e.Expect(first)
	if got := e.TimeToFirst(second); got != 1500*time.Millisecond {
		t.Errorf("behind another prompt: %v", got)
	}
	if got := e.TimeToFirst(first); got != 1008*time.Millisecond {
		t.Errorf("behind the same prompt: %v", got)
	}
	arrived()
	if got := e.TimeToFirst(second); got != 500*time.Millisecond {
		t.Errorf("behind no prompt: %v", got)
	}
}

// TestIntervalJoinsTokensInEvents: the tokens take the same time and are counted one by one.
func TestIntervalJoinsTokensInEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := func(interval int) (events int, text string, took time.Duration) {
			e := New(Config{Model: "m", PerToken: 10 * time.Millisecond, Interval: interval,
				Script: func(string, []byte) Script { return Script{Tokens: 40} }})
			w, began := httptest.NewRecorder(), time.Now()
			e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions",
				strings.NewReader(chatWith(t, "hello", map[string]any{"max_tokens": 20,
					"stream_options": map[string]any{"include_usage": true}}))))
			for line := range strings.Lines(w.Body.String()) {
				var c struct {
					Choices []struct{ Delta struct{ Content string } }
					Usage   *chatUsage
				}
				if data, ok := strings.CutPrefix(line, "data: {"); !ok {
					continue
				} else if err := json.Unmarshal([]byte("{"+data), &c); err != nil {
					t.Fatal(err)
				}
				if len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
					events++
					text += c.Choices[0].Delta.Content
				}
				if c.Usage != nil && c.Usage.CompletionTokens != 20 {
					t.Errorf("%d tokens are reported", c.Usage.CompletionTokens)
				}
			}
			return events, text, time.Since(began)
		}
		events, text, took := answer(0)
		if joined, same, asLong := answer(8); events != 20 || joined != 4 || same != text || asLong != took {
			t.Errorf("%d events in %v and %d in %v", events, took, joined, asLong)
		}
	})
}
