package decisions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCallsOfHooksAreOneLine(t *testing.T) {
	list := []Hook{{Name: "pii", Result: "transformed"}, {Name: "guard", Result: "allowed"},
		{Name: "new", Result: "rejected", Shadow: true}, {Name: "slow", Result: "timeout"}}
	if got := HooksText(list); got != "pii:transformed, guard, new:shadow, slow:timeout" {
		t.Error(got)
	}
	if got := HooksText(nil); got != "" {
		t.Error(got)
	}
}

// TestEachCallOfAHookIsASpan before the spans of the attempts. A call that failed is an error.
func TestEachCallOfAHookIsASpan(t *testing.T) {
	d := retriedDecision()
	d.Hooks = []Hook{{Name: "pii", Result: "transformed", AtMs: 1, DurationMs: 2},
		{Name: "guard", Result: "timeout", Shadow: true, AtMs: 3, DurationMs: 4, Error: "no answer"}}
	if n := (Trace{Decision: d}).Len(); n != len(spansOf(d)) {
		t.Errorf("%d spans are announced, and there are %d", n, len(spansOf(d)))
	}
	var got []string
	for _, s := range spansOf(d)[1:3] {
		text := inShort(s, d.Time)
		for _, a := range s.Attributes {
			text += " " + string(a.Key) + "=" + a.Value.String()
		}
		got = append(got, text)
	}
	want := []string{"hook pii 1-3ms tierway.hook=pii tierway.hook.result=transformed",
		"hook guard 3-7ms error tierway.hook=guard tierway.hook.result=timeout tierway.hook.shadow=true error.type=timeout"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestARequestThatAHookEndedIsRecognised: an engine may use the same codes.
func TestARequestThatAHookEndedIsRecognised(t *testing.T) {
	for _, c := range []struct {
		d    Decision
		want bool
	}{
		{Decision{Code: "rejected_by_hook", Hooks: []Hook{{Name: "a"}}}, true},
		{Decision{Code: "hook_unavailable", Hooks: []Hook{{Name: "a"}}}, true},
		{Decision{Code: "rejected_by_hook"}, false},
		{Decision{Code: "model_not_found", Hooks: []Hook{{Name: "a"}}}, false},
	} {
		if got := c.d.EndedAtHooks(); got != c.want {
			t.Errorf("%+v: %v", c.d, got)
		}
	}
}
