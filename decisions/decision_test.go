package decisions

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/routing"
	"tierway/tiers"
)

// sameTerms compares terms by their JSON form.
var sameTerms = cmp.Comparer(func(a, b routing.Terms) bool {
	left, _ := json.Marshal(a)
	right, _ := json.Marshal(b)
	return string(left) == string(right)
})

// terms reads the terms of a score.
func terms(text string) (out routing.Terms) {
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	return out
}

// fullDecision has something in each field of each part.
func fullDecision() *Decision {
	d := &Decision{SchemaVersion: 1, Time: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), RequestID: "r", Generation: 2,
		Tenant: "acme", Key: "k", KeyHint: "h", ClientIP: "192.0.2.7", Class: "batch",
		AskedClass: "interactive", Method: "POST", Route: "/chat/completions", TraceID: "0af7651916cd43dd8448eb211c80319c",
		Dialect: "chat", Stream: true,
		RequestedModel: "auto", Model: "m", Tier: "small", Rule: "keyword", RuleNote: "n",
		Passed: []tiers.Move{{Tier: "t", Rule: "alias", By: "fallback", Why: "failed"}},
		Hooks: []Hook{{Name: "pii", Result: "error", Shadow: true, AtMs: 0.5, DurationMs: 1.5, IgnoredHeaders: 1, Error: "e",
			Span: 12}},
		Features: Features{Header: "large", Classified: true, Estimate: 7, Counted: 9, UserTextBytes: 8,
			Groups: []string{"code"},
			Score: &tiers.Scored{Value: 9.5, Model: "0a0b0c0d",
				Thresholds: []tiers.TierScore{{Tier: "large", Score: 8}}},
			ModelScore:    &tiers.ModelScore{Model: "0a0b0c0d", Value: 1.25, Known: true},
			LimitRequired: true, Tools: true, Media: true,
			Session: 1, Model: 2, Prefix: 3, Chain: []routing.Link{{Hash: 0xff, End: 64}, {Hash: math.MaxUint64, End: 128}},
			Blocks: 2},
		Policy: "chwbl", Worker: "w1", Reason: "prefix_home",
		Attempts: []Attempt{{Worker: "w1", Tier: "t", Reason: "prefix_home", AtMs: 1, QueueMs: 0.5, SelectionUs: 2.25,
			Status: 200,
			Error:  "e", ErrorType: "cut", DurationMs: 3, FirstAtMs: 4, EndAtMs: 5,
			Predicted: 6, Usage: Usage{Prompt: 7, Cached: 8, Output: 9}, Span: 10,
			Choice: &routing.Choice{Policy: "chwbl", Key: 11, KeyOf: "prefix", Memory: 1.5, Halved: 1, Rule: 2, Pinned: "w1",
				Rand:         math.MaxUint64,
				PromptTokens: 12, OutputTokens: 13, WaitedMs: 14, Waits: true, Stream: true, WorkerFull: true,
				RunnerUp: "w0", Traffic: routing.Traffic{Arrivals: 1, Utilization: 0.5, Cached: 2, Queueing: 1}, Seen: 1,
				Handover: &routing.HandoverChoice{Decision: "remote", Why: "cost", Uncached: 3, Local: 0.5, Remote: 0.25,
					Transfer: 0.125, Worker: "p", Reason: "random", Prefill: &routing.Choice{Policy: "random", Rand: 1,
						PromptTokens: 12, OutputTokens: 1, Stream: true, Seen: 1, Candidates: []routing.Candidate{}}},
				Candidates: []routing.Candidate{{Worker: "w1", Index: 1, Score: 2, Excluded: "tokens", Weight: 1, Effective: 0.5,
					Inflight: 3, OthersInflight: 1,
					MaxInflight: 4, Full: true,
					PendingTokens: 5, OutputTokens: 6, Overlap: 7, Waiting: 8, KVUsage: 0.5, Rate: 8000, Events: true,
					Stages: routing.StageDecode, LMCacheTokens: 13, LMCacheKeys: 14,
					CachedBlocks: 9, Success: 0.5, Latency: routing.LatencyFacts{Mean: 0.25, Samples: 12, Idle: 3},
					Cost: routing.CostFacts{Backlog: 1, Overhead: 2, Behind: 2.5, PerToken: 3, Slowdown: 4, Step: 5, StepEach: 6,
						Stall:      7,
						WorkingSet: 8, Load: 9, Recent: 11, SlotWait: 10, Late: 12},
					Terms: terms(`{"load":1.25,"ring":-2}`)}}},
			Handover: &Handover{Result: "remote", DecodeAtMs: 2.5, Prefills: []Prefill{{Worker: "p", Reason: "random",
				Status: 200, Error: "e", ErrorType: "cut", AtMs: 1, EndAtMs: 2, Predicted: 3,
				Usage: Usage{Prompt: 4, Cached: 5, Output: 6},
				Span:  11, Choice: &routing.Choice{Policy: "random", Seen: 1, Candidates: []routing.Candidate{}}}}}}},
		Cache: &Cache{Result: "miss", Reason: "tools", Shared: "support", AtMs: 27, AgeMs: 24, LookUpUs: 25, Similarity: 0.5,
			EmbeddingMs: 26,
			Shadow:      "equal", Answer: "kept"},
		Promoted: true, PromptTokens: 15, MaxTokens: 16, Usage: Usage{Prompt: 17, Cached: 18, Output: 19}, Estimated: true,
		UsageNote: "o",
		QueueMs:   20, TTFTMs: 21, DurationMs: 22, OverheadMs: 23,
		Result: OK, Status: 200, Code: "c", Limit: "rpm", Shed: "depth", Cause: "x"}
	d.Refused = d.Attempts[0].Choice
	return d
}

// choiceJSON is the form of a pick in it.
const choiceJSON = `{"policy":"chwbl","key":"000000000000000b","key_of":"prefix","memory":1.5,"halved":1,"rule":2,"pinned":"w1","rand":"ffffffffffffffff","prompt_tokens":12,"expected_output_tokens":13,"waited_ms":14,"waits":true,"stream":true,"worker_full":true,` +
	`"runner_up":"w0","traffic":{"arrivals_per_s":1,"utilization":0.5,"mean_cached_tokens":2,"queueing":1},"handover":{"decision":"remote","why":"cost","uncached_tokens":3,"local_s":0.5,"remote_s":0.25,"transfer_s":0.125,"prefill_worker":"p","prefill_reason":"random","prefill":{"policy":"random","rand":"0000000000000001","prompt_tokens":12,"expected_output_tokens":1,"stream":true,"seen":1,"candidates":[]}},` +
	`"seen":1,"candidates":[{"worker":"w1","index":1,"score":2,"excluded":"tokens","weight":1,"effective_weight":0.5,"inflight":3,"other_gateways_inflight":1,"max_inflight":4,"full":true,` +
	`"pending_tokens":5,"output_tokens":6,"overlap_tokens":7,"waiting":8,"kv_usage":0.5,"prefill_rate":8000,"cached_blocks":9,"success":0.5,"latency":{"mean_s":0.25,"samples":12,"idle_s":3},"kv_events":true,"lmcache_tokens":13,"lmcache_keys":14,"stages":"decode","cost":{"backlog_s":1,"overhead_s":2,"overhead_behind_s":2.5,"per_token_s":3,"slowdown":4,"step_s":5,"step_each_s":6,"stall":7,"working_set":8,"load_s":9,"recent_tokens":11,"slot_wait_s":10,"late_s":12},"terms":{"load":1.25,"ring":-2}}]}`

// fullJSON is the form of version 1. Files of records, and programs that read them, hold
// it: a renamed or removed field needs another SchemaVersion.
const fullJSON = `{"schema_version":1,"time":"2026-01-02T03:04:05.000006Z","request_id":"r","config_generation":2,"tenant":"acme","key":"k","key_hint":"h","client_ip":"192.0.2.7","class":"batch",` +
	`"asked_class":"interactive","method":"POST","route":"/chat/completions","trace_id":"0af7651916cd43dd8448eb211c80319c","dialect":"chat","stream":true,` +
	`"requested_model":"auto","model":"m","tier":"small","rule":"keyword","rule_note":"n",` +
	`"passed_over":[{"tier":"t","rule":"alias","by":"fallback","why":"failed"}],` +
	`"hooks":[{"name":"pii","result":"error","shadow":true,"at_ms":0.5,"duration_ms":1.5,"ignored_headers":1,"error":"e","span":"000000000000000c"}],"features":{"header":"large","classified":true,"estimated_tokens":7,"counted_tokens":9,"user_text_bytes":8,"groups":["code"],"score":{"value":9.5,"model":"0a0b0c0d","thresholds":[{"tier":"large","score":8}]},"model_score":{"model":"0a0b0c0d","value":1.25,"known":true},"limit_required":true,"tools":true,"media":true,` +
	`"session":"0000000000000001","model":"0000000000000002","prefix":"0000000000000003","chain":["00000000000000ff:64","ffffffffffffffff:128"],"blocks":2},` +
	`"policy":"chwbl","worker":"w1","reason":"prefix_home",` +
	`"attempts":[{"worker":"w1","tier":"t","reason":"prefix_home","at_ms":1,"queue_ms":0.5,"selection_us":2.25,"status":200,"error":"e","error_type":"cut","duration_ms":3,"first_at_ms":4,"end_at_ms":5,` +
	`"predicted_cached_tokens":6,"usage":{"prompt":7,"cached":8,"output":9},"span":"000000000000000a",` +
	`"choice":` + choiceJSON + `,` +
	`"handover":{"result":"remote","prefills":[{"worker":"p","reason":"random","status":200,"error":"e","error_type":"cut","at_ms":1,"end_at_ms":2,` +
	`"predicted_cached_tokens":3,"usage":{"prompt":4,"cached":5,"output":6},"span":"000000000000000b","choice":{"policy":"random","rand":"0000000000000000","prompt_tokens":0,"expected_output_tokens":0,"seen":1,"candidates":[]}}],"decode_at_ms":2.5}}],` +
	`"refused_choice":` + choiceJSON + `,` +
	`"promoted":true,"cache":{"result":"miss","reason":"tools","shared":"support","at_ms":27,"age_ms":24,"lookup_us":25,"similarity":0.5,"embedding_ms":26,"shadow":"equal","answer":"kept"},"prompt_tokens_estimate":15,"max_tokens":16,"usage":{"prompt":17,"cached":18,"output":19},"estimated":true,"usage_note":"o","queue_ms":20,"ttft_ms":21,"duration_ms":22,"overhead_ms":23,` +
	`"outcome":"ok","status":200,"code":"c","limit":"rpm","shed":"depth","cause":"x"}`

// shortJSON has the fields that are never omitted.
const shortJSON = `{"schema_version":0,"time":"0001-01-01T00:00:00Z","request_id":"","config_generation":0,"method":"","route":"","queue_ms":0,"duration_ms":0,"overhead_ms":0,"outcome":"","status":0}`

// TestDecisionJSONMatchesTheGoldenFile: any change of it is seen here.
func TestDecisionJSONMatchesTheGoldenFile(t *testing.T) {
	if SchemaVersion != 1 {
		t.Errorf("the forms below are of version 1, not %d", SchemaVersion)
	}
	for _, tt := range []struct {
		d    *Decision
		want string
	}{{fullDecision(), fullJSON}, {&Decision{}, shortJSON}} {
		got, err := json.Marshal(tt.d)
		if diff := cmp.Diff(tt.want, string(got)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		back := new(Decision)
		if err := json.Unmarshal(got, back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.d, back, sameTerms); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
	}
}

// TestGoldenDecisionSetsEveryField: the form above has every field there is.
func TestGoldenDecisionSetsEveryField(t *testing.T) {
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch {
		case v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[routing.Terms]() ||
			v.Type() == reflect.TypeFor[routing.Link]():
		case strings.HasSuffix(path, ".Handover.Prefill") && !v.IsNil(),
			strings.HasSuffix(path, ".Prefills[0].Choice") && !v.IsNil(): // a pick, which has its form already
			return
		case v.Kind() == reflect.Pointer && !v.IsNil():
			walk(path, v.Elem())
			return
		case v.Kind() == reflect.Slice && v.Len() > 0:
			walk(path+"[0]", v.Index(0))
			return
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
			return
		}
		if v.IsZero() {
			t.Errorf("%s is not in the record whose form is kept", path)
		}
	}
	walk("Decision", reflect.ValueOf(fullDecision()))
}

// TestDecisionJSONRoundTrips: with any numbers and texts.
func TestDecisionJSONRoundTrips(t *testing.T) {
	number := rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64)
	rapid.Check(t, func(t *rapid.T) {
		d := fullDecision()
		a := &d.Attempts[0]
		d.RequestedModel, d.Cause = rapid.String().Draw(t, "model"), rapid.String().Draw(t, "cause")
		d.DurationMs, a.SelectionUs, a.Choice.Memory = number.Draw(t, "ms"), number.Draw(t, "us"), number.Draw(t, "memory")
		a.Span, a.Choice.Rand = routing.Hash(rapid.Uint64().Draw(t, "span")), routing.Hash(rapid.Uint64().Draw(t, "rand"))
		d.Features.Chain = nil
		for _, h := range rapid.SliceOf(rapid.Uint64()).Draw(t, "chain") {
			d.Features.Chain = append(d.Features.Chain, routing.Link{Hash: h, End: rapid.Int64Min(0).Draw(t, "end")})
		}
		c := &a.Choice.Candidates[0]
		c.Score = number.Draw(t, "score")
		of := rapid.MapOfN(rapid.StringMatching(`[a-z_]{1,8}`), number, 0, 4).Draw(t, "terms")
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		c.Terms = terms(string(text))
		if text, err = json.Marshal(d); err != nil {
			t.Fatal(err)
		}
		back := new(Decision)
		if err := json.Unmarshal(text, back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, back, sameTerms); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}
