package decisions

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// accessKeys are the keys that a line may have, in their order. A line leaves out a key
// that has no value, and has no other key.
var accessKeys = [...]string{
	"time", "level", "msg", "request_id", "trace_id", "method", "route", "status", "outcome", "duration_ms",
	"code", "cause", "config_generation", "limit", "shed", "tenant", "key", "key_hint", "client_ip", "class",
	"asked_class", "dialect",
	"requested_model", "model", "tier", "rule", "rule_note", "policy", "worker", "reason", "hooks", "hooks_ms",
	"cache", "cache_reason", "cache_age_ms", "cache_similarity",
	"attempts", "error_type",
	"handover", "prefill_worker", "prefill_ms",
	"overhead_ms", "queue_ms", "promoted", "stream", "ttft_ms", "predicted_cached_tokens", "prompt_tokens",
	"cached_tokens", "output_tokens", "estimated", "usage_note",
}

// wholeDecision sets every field that an access line contains.
func wholeDecision() *Decision {
	return &Decision{SchemaVersion: SchemaVersion, Time: time.Unix(1_700_000_000, 5_000_000).UTC(), RequestID: "r-1",
		Generation: 7,
		Cache:      &Cache{Result: "bypass", Reason: "tools", AgeMs: 1.5, Similarity: 0.95},
		Tenant:     "acme", Key: "k1", KeyHint: "tw-abcd", ClientIP: "192.0.2.7", Class: "batch", AskedClass: "interactive", Method: "POST", Route: "/chat/completions",
		TraceID: "0af7651916cd43dd8448eb211c80319c", Dialect: "chat", Stream: true, RequestedModel: "gpt-4o-mini",
		Model: "fake-7b",
		Hooks: []Hook{{Name: "pii", Result: "transformed", DurationMs: 1.5},
			{Name: "guard", Result: "rejected", Shadow: true, DurationMs: 2}},
		Tier: "small", Rule: "alias", RuleNote: "X-Model-Tier: unknown", Policy: "chwbl", Worker: "w1",
		Reason: "prefix_home",
		Attempts: []Attempt{{Worker: "w0", ErrorType: "connect"},
			{Worker: "w1", Status: 500, ErrorType: "500", Predicted: 32, Handover: &Handover{Result: "failed",
				Prefills: []Prefill{{Worker: "p0"}, {Worker: "p1", AtMs: 0.1, EndAtMs: 2.6}}}}},
		Promoted: true, Usage: Usage{Prompt: 40, Cached: 30, Output: 9}, Estimated: true,
		UsageNote: "n", QueueMs: 2.5, TTFTMs: 12,
		DurationMs: 90.25, OverheadMs: 0.5,
		Result: Failed, Status: 502, Code: "worker_error", Limit: "rpm", Shed: "depth", Cause: "the worker answered 500"}
}

// keysOf returns a line's keys in their order, and fails unless it is one JSON
// object of plain members.
func keysOf(t interface {
	Helper()
	Fatalf(string, ...any)
}, line []byte) (keys []string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(line))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		t.Fatalf("%s: %v %v", line, open, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		keys = append(keys, key.(string))
		switch value, err := d.Token(); value.(type) {
		case string, float64, bool:
		default:
			t.Fatalf("%s: %v is %v (%v)", line, key, value, err)
		}
	}
	if _, err := d.Token(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return keys
}

func TestAccessLineHasTheDocumentedKeysInOrder(t *testing.T) {
	line := appendDecision(nil, wholeDecision())
	if diff := cmp.Diff(accessKeys[:], keysOf(t, line)); diff != "" {
		t.Errorf("a full line's keys (-table +line):\n%s", diff)
	}
	const want = `{"time":"2023-11-14T22:13:20.005Z","level":"WARN","msg":"request","request_id":"r-1","trace_id":"0af7651916cd43dd8448eb211c80319c",` +
		`"method":"POST","route":"/chat/completions","status":502,"outcome":"failed","duration_ms":90.25,"code":"worker_error","cause":"the worker answered 500",` +
		`"config_generation":7,"limit":"rpm","shed":"depth","tenant":"acme","key":"k1","key_hint":"tw-abcd","client_ip":"192.0.2.7","class":"batch","asked_class":"interactive","dialect":"chat",` +
		`"requested_model":"gpt-4o-mini","model":"fake-7b","tier":"small","rule":"alias","rule_note":"X-Model-Tier: unknown","policy":"chwbl","worker":"w1",` +
		`"reason":"prefix_home","hooks":"pii:transformed, guard:shadow:rejected","hooks_ms":3.5,"cache":"bypass","cache_reason":"tools","cache_age_ms":1.5,"cache_similarity":0.95,"attempts":2,"error_type":"500","handover":"failed","prefill_worker":"p1","prefill_ms":2.5,"overhead_ms":0.5,"queue_ms":2.5,"promoted":true,"stream":true,"ttft_ms":12,` +
		`"predicted_cached_tokens":32,"prompt_tokens":40,"cached_tokens":30,"output_tokens":9,"estimated":true,"usage_note":"n"}` + "\n"
	if diff := cmp.Diff(want, string(line)); diff != "" {
		t.Errorf("a full line (-want +got):\n%s", diff)
	}
}

// OB-04: whatever a client names itself, a line is one line of one JSON object with
// known keys, and nothing in it steers a terminal.
func TestAccessLineEscapesEveryText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := wholeDecision()
		text := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{"", "a\nlevel=error", "\x1b[31mred", "\u009b31m", `","level":"ERROR`, "\xff\xfe",
				"\u2028"}))
		for _, field := range []*string{&d.RequestID, &d.TraceID, &d.Cause, &d.RequestedModel, &d.RuleNote, &d.Key, &d.Worker,
			&d.Code} {
			*field = text.Draw(t, "text")
		}
		if rapid.Bool().Draw(t, "bare") {
			d.Attempts, d.QueueMs, d.Promoted, d.Stream, d.TTFTMs, d.Usage, d.Estimated = nil, 0, false, false, 0, Usage{}, false
		}
		line := appendDecision(nil, d)
		at := 0
		for _, key := range keysOf(t, line) {
			next := slices.Index(accessKeys[at:], key)
			if next < 0 {
				t.Fatalf("%s is no key, or out of order: %s", key, line)
			}
			at += next + 1
		}
		if bytes.Count(line, []byte{'\n'}) != 1 ||
			strings.ContainsFunc(strings.TrimSuffix(string(line), "\n"), func(r rune) bool {
				return r < ' ' || 0x7f <= r && r <= 0x9f
			}) {
			t.Fatalf("it steers: %q", line)
		}
		var back struct {
			RequestedModel string `json:"requested_model"`
		}
		if err := json.Unmarshal(line, &back); err != nil ||
			back.RequestedModel != strings.ToValidUTF8(d.RequestedModel, "\ufffd") &&
				!strings.Contains(back.RequestedModel, "\ufffd") {
			t.Fatalf("%q is written as %q (%v)", d.RequestedModel, back.RequestedModel, err)
		}
	})
}

func TestAccessLevelFollowsTheFault(t *testing.T) {
	for _, tt := range []struct {
		outcome Result
		status  int
		code    string
		want    string
	}{
		{OK, 200, "", "INFO"},
		{Refused, 401, "invalid_api_key", "INFO"},
		{Refused, 429, "rate_limit_exceeded", "INFO"},
		{Refused, 400, "invalid_json", "INFO"},
		{Refused, 404, "model_not_found", "INFO"},
		{ClientGone, 499, "", "INFO"},
		{Failed, 502, "worker_error", "WARN"},
		{Failed, 503, "overloaded", "WARN"},
		{Failed, 503, "no_healthy_worker", "WARN"},
		{Failed, 504, "worker_timeout", "WARN"},
		{Failed, 503, "ratelimit_unavailable", "WARN"},
		{Truncated, 200, "worker_error", "WARN"},
		{Failed, 500, "internal_error", "ERROR"},
		{Truncated, 200, "internal_error", "ERROR"}, // a panic within the answer
	} {
		d := &Decision{Result: tt.outcome, Status: tt.status, Code: tt.code}
		if line := string(appendDecision(nil, d)); !strings.Contains(line, `"level":"`+tt.want+`","msg"`) {
			t.Errorf("%s %d %s: %s, want %s", tt.outcome, tt.status, tt.code, line, tt.want)
		}
	}
}

func TestAccessLineOmitsEmptyFields(t *testing.T) {
	want := []string{"time", "level", "msg", "status", "duration_ms", "config_generation"}
	if diff := cmp.Diff(want, keysOf(t, appendDecision(nil, &Decision{}))); diff != "" {
		t.Error(diff)
	}
}

func TestALineAllocatesNothing(t *testing.T) {
	l, d := NewAccessLog(io.Discard), wholeDecision()
	if n := testing.AllocsPerRun(1000, func() { l.Write(d) }); n != 0 {
		t.Errorf("a line allocates %v times", n)
	}
}

func BenchmarkAccessLine(b *testing.B) {
	l, d := NewAccessLog(io.Discard), wholeDecision()
	b.ReportAllocs()
	for b.Loop() {
		l.Write(d)
	}
}
