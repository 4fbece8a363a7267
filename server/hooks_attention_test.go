package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAttentionNamesWhyRepliesHaveNoEffect: the breaker of such a hook stays closed, and clients only see 503 or 404.
// The item has the cause and the way out, and ends with the failures.
func TestAttentionNamesWhyRepliesHaveNoEffect(t *testing.T) {
	changed := says(transformTo(chatBody("small", "hidden-words", "")))
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		line   string
		want   []string // with the severity
	}{
		"no transform": {changed, "", []string{"error: The gateway refuses replies, last at 20",
			"Z: the hook changes the request without transform: true. Such requests are rejected with 503 hook_unavailable. " +
				"Set transform: true for the hook, or let its service only allow and reject."}},
		"no transform, passed": {changed, ", on_error: pass", []string{"warning: ",
			"Such requests continue without it. Set transform: true"}},
		"stream": {says(transformTo(chatBody("small", "hidden-words", `,"stream":true`))), ", transform: true",
			[]string{"error: ", "another value of stream", "Correct the service"}},
		"tenant": {says(`{"action":"allow","tenant":"other"}`), ", shadow: true", []string{"warning: ",
			"member tenant", "requests are not affected, because the hook is a shadow. Correct the service"}},
		"model": {says(transformTo(chatBody("gone", "hidden-words", ""))), ", transform: true, on_error: pass",
			[]string{"error: A changed model is rejected, last at ", "the hook changes the model to `gone`, which does not exist",
				"rejected with 404 model_not_found. Correct the service"}},
		"404":     {http.NotFound, "", []string{"error: Calls fail, last at ", ": the status is 404. ", "Check the url"}},
		"allowed": {says(sayAllow), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook := newHookService(t, c.answer)
				hooked, _ := newHookRig(t, withAdmins(plain), hook.line("guard", c.line))
				r := adminRigOf(hooked)
				for range 12 { // an open breaker would be another item
					r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
				}
				got := r.hookItem("guard")
				for _, want := range c.want {
					if !strings.Contains(got, want) {
						t.Errorf("%q lacks %q", got, want)
					}
				}
				if strings.Contains(got, "hidden-words") || c.want == nil && got != "" {
					t.Errorf("the item is %q", got)
				}
				time.Sleep(5*time.Minute + time.Second)
				if got := r.hookItem("guard"); got != "" {
					t.Errorf("after five minutes: %q", got)
				}
			})
		})
	}
}

// hookItem returns the item about a hook in the overview, with its severity; "" without one.
func (r *adminRig) hookItem(name string) string {
	r.t.Helper()
	for _, item := range r.overview().Attention {
		if item.Subject == "hook "+name {
			return item.Severity + ": " + item.Message
		}
	}
	return ""
}

// TestAttentionNamesSlowHooks: calls that are not made, because 64 are in flight or the hooks before have used the
// time.
func TestAttentionNamesSlowHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newHookService(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(900 * time.Millisecond)
			says(sayAllow)(w, nil)
		})
		second := newHookService(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		hooked, _ := newHookRig(t, withAdmins(plain), first.line("first", ", timeout: 1s"),
			second.line("second", ", timeout: 1s"))
		r := adminRigOf(hooked)
		done := make(chan int)
		for range 70 {
			go func() { done <- r.post("/v1/chat/completions", chatBody("small", "Hi", "")).status }()
		}
		for range 70 {
			<-done
		}
		for name, want := range map[string]string{
			"first": "64 calls are in flight. Such requests are rejected with 503 hook_unavailable. Make the service faster.",
			"second": "no answer within 100ms. Such requests are rejected with 503 hook_unavailable. Raise hooks_timeout, or make " +
				"the hooks before it faster.",
		} {
			if got := r.hookItem(name); !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", name, got, want)
			}
		}
	})
}

// TestAReloadWithTheWayOutEndsTheItem at once: a hook that the reload changes has no failures.
func TestAReloadWithTheWayOutEndsTheItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, says(transformTo(chatBody("small", "new", ""))))
		hooked, _ := newHookRig(t, withAdmins(plain), hook.line("guard", ""))
		r := adminRigOf(hooked)
		r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
		if r.hookItem("guard") == "" {
			t.Fatal("there is no item")
		}
		url := fmt.Sprintf("url: %q", hook.url)
		r.reload(strings.Replace(r.text, url, url+", transform: true", 1))
		got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
		if got.status != 200 || r.hookItem("guard") != "" {
			t.Errorf("%d, %q", got.status, r.hookItem("guard"))
		}
	})
}

// TestAttentionNamesTheLastFailure: also if the breaker counts it and stays closed. After five minutes it is not
// listed.
func TestAttentionNamesTheLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := newHookService(t, nil)
		hooked, _ := newHookRig(t, withAdmins(plain), hook.line("guard", ""))
		r := adminRigOf(hooked)
		for _, status := range []int{http.StatusNotFound, http.StatusInternalServerError} {
			hook.answerWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
			time.Sleep(time.Second)
			hook.answerWith(says(sayAllow))
			r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
			if item := r.hookItem("guard"); !strings.Contains(item, fmt.Sprintf("the status is %d", status)) {
				t.Errorf("after %d, the item is %q", status, item)
			}
		}
		time.Sleep(5 * time.Minute)
		if item := r.hookItem("guard"); item != "" {
			t.Errorf("five minutes later, the item is %q", item)
		}
	})
}
