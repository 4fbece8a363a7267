package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tierway/decisions"
	"tierway/replay"
	"tierway/routing"
)

const replayConfig = `
store: { sql: "" }
auth: { required: false }
tiers:
  - { name: small, model: s-model, price: { input: 1, output: 2 }, policy: { name: least_load }, workers: [ { name: s0, url: "http://127.0.0.1:1" }, { name: s1, url: "http://127.0.0.1:2" } ] }
  - { name: large, model: l-model, price: { input: 10, output: 20 }, policy: { name: least_load }, workers: [ { name: l0, url: "http://127.0.0.1:3" } ] }
classifier: { preset: none, prompt_tokens: { large: 4000 }, max_tokens: {} }
`

// replayDraft is replayConfig with a lower threshold and s0 out of rotation.
var replayDraft = strings.NewReplacer("large: 4000", "large: 2000", "name: s0,",
	"name: s0, weight: 0,").Replace(replayConfig)

// logged is the record of a request with the given prompt tokens under replayConfig. Of two idle
// workers, an odd random number selects the first.
func logged(n int, tokens int64) *decisions.Decision {
	d := &decisions.Decision{SchemaVersion: 1, Time: time.Date(2026, 1, 2, 3, 4, n, 0, time.UTC),
		RequestID: fmt.Sprint("r", n), Generation: 1, Tenant: "anonymous",
		Tier: "small", Rule: "default", RequestedModel: "auto", PromptTokens: tokens,
		Usage: decisions.Usage{Prompt: tokens, Output: 10}, Result: decisions.OK, Status: 200,
		Features: decisions.Features{Classified: true, Counted: tokens}}
	c := &routing.Choice{Policy: "least_load", Rand: routing.Hash(n), PromptTokens: tokens, OutputTokens: 10, Seen: 2,
		Candidates: []routing.Candidate{
			{Worker: "s0", Weight: 1, Rate: 8000}, {Worker: "s1", Index: 1, Weight: 1, Rate: 8000}}}
	d.Worker = []string{"s1", "s0"}[n%2]
	if tokens > 4000 {
		d.Tier, d.Rule, d.Worker = "large", "prompt_tokens", "l0"
		c.Seen, c.Candidates = 1, []routing.Candidate{{Worker: "l0", Weight: 1, Rate: 4000}}
	}
	d.Attempts = []decisions.Attempt{{Worker: d.Worker, Reason: "least_load", AtMs: 1, FirstAtMs: 100, EndAtMs: 200,
		Status: 200, Usage: d.Usage, Choice: c}}
	return d
}

// logFile writes decisions of 500, 1,000 … tokens and the given lines, with a configuration and a draft
// in the same folder.
func logFile(t *testing.T, n int, more ...string) (config, log, draft string) {
	t.Helper()
	var b bytes.Buffer
	for i := range n {
		line, err := json.Marshal(logged(i, int64(i+1)*500))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	for _, text := range more {
		b.WriteString(text)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yaml": replayConfig, "log": b.String(), "draft.yaml": replayDraft} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config.yaml"), filepath.Join(dir, "log"), filepath.Join(dir, "draft.yaml")
}

func TestReplayReportsMovedRequests(t *testing.T) {
	config, log, draft := logFile(t, 10)
	s := must(t, "replay", "-c", config, "--decisions", log, "--draft", draft, "--changes")
	want := `records        10, 2026-01-02 03:04:00 to 2026-01-02 03:04:09, from 1 configuration
reproduced     10 of 10 (100.0 %) of the tiers, 10 of 10 (100.0 %) of the workers
tier           4 of 10 (40.0 %) would change
               4 small → large (r4, r5, r6, r7)
worker         2 of 6 (33.3 %) would change: 2 least_load
               2 small: s0 → s1 (r1, r3)
hit rate       unknown: no record contains the blocks of a prompt
regret         mean 0 → 0 ms, p95 0 → 0 ms, estimated
wrong by 20 %  0.0 % → 0.0 % of the decisions, estimated
cost           0.114 → 0.231

   TIER  REQUESTS  DRAFT  PROMPT TOKENS  DRAFT    CHANGE
  large         2      6           9500  22500  +136.8 %
  small         8      4          18000   5000   -72.2 %
`
	if s.out != want || s.messages != "" {
		t.Errorf("it says\n%s%s", s.out, s.messages)
	}
	var r replay.Report
	if err := json.Unmarshal([]byte(must(t, "replay", "-c", config, "--decisions", log, "--draft", draft, "--json").out),
		&r); err != nil || r.ChangedWorker != 2 || r.Decided != 10 {
		t.Errorf("as JSON: %+v, %v", r, err)
	}
	if err := json.Unmarshal([]byte(must(t, "replay", "-c", config, "--decisions", log, "--last", "3", "--json").out),
		&r); err != nil || r.Records != 3 || r.From.Second() != 7 {
		t.Errorf("of the last three: %+v, %v", r, err)
	}
}

// TestOmittedListLinesAreCounted: the lines of a list, with the omitted ones, sum up to its total.
func TestOmittedListLinesAreCounted(t *testing.T) {
	r := &replay.Report{Decided: 40, Redecided: 40, ChangedWorker: 33,
		ChangedTier: []replay.TierMove{{From: "small", To: "large", N: 7, Examples: []string{"r1", "r2"}}}}
	for n := range 6 {
		// 21 of the 33
		r.WorkerMoves = append(r.WorkerMoves, replay.WorkerMove{Tier: "small", From: "s0", To: fmt.Sprint("s", n+1), N: 6 - n,
			Examples: []string{"r3"}})
	}
	for changes, want := range map[bool][]string{
		false: {"7 small → large\n", "2 small: s0 → s5\n", "  13 in moves of fewer requests: --changes lists them\n"},
		true: {"7 small → large (r1, r2 and 5 more)\n", "2 small: s0 → s5 (r3 and 1 more)\n", "1 small: s0 → s6 (r3)\n",
			"  12 in moves of fewer requests\n"},
	} {
		var b strings.Builder
		if err := printReplay(&b, r, true, changes); err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(b.String(), part) || strings.Contains(b.String(), "s6") != changes {
				t.Errorf("%v: %q is not in\n%s", changes, part, b.String())
			}
		}
	}
}

func TestReplayNamesUnroutedAndLimitedRequestsAsSuch(t *testing.T) {
	config, log, _ := logFile(t, 1,
		`{"schema_version":1,"time":"2026-01-02T03:05:00Z","request_id":"m","method":"GET","route":"/v1/models","outcome":"ok","status":200}`+"\n",
		`{"schema_version":1,"time":"2026-01-02T03:05:01Z","request_id":"l","requested_model":"auto","tier":"small","rule":"default",`+
			`"outcome":"refused","status":429,"limit":"rpm"}`+"\n")
	s := must(t, "replay", "-c", config, "--decisions", log)
	for _, want := range []string{
		"1: not routed: no model requested, or ended before a tier was selected\n", "1: rejected by a limit\n",
	} {
		if !strings.Contains(s.out, want) {
			t.Errorf("%q is missing in\n%s", want, s.out)
		}
	}
	for _, wrong := range []string{"refused before they had a tier", "came to no worker"} {
		if strings.Contains(s.out, wrong) {
			t.Errorf("%q is printed in\n%s", wrong, s.out)
		}
	}
}

func TestTruncatedAndForeignLinesAreSkippedAndCounted(t *testing.T) {
	config, log, _ := logFile(t, 4, "{\"schema_version\":1,\"ti\n", "\n", "[]\n", "{}\n",
		`{"schema_version":1,"time":"2026-01-02`)
	s := must(t, "replay", "-c", config, "--decisions", log)
	if s.messages != "tierway: skipped 4 lines that are not decision records\ntierway: skipped the last line because it "+
		"is incomplete\n" || !strings.HasPrefix(s.out, "records        4,") {
		t.Errorf("it says\n%s%s", s.out, s.messages)
	}
}

// TestTruncatedLastLineOfARotatedFileIsCounted: no gateway writes to it
// any more, so a truncated last line is lost.
func TestTruncatedLastLineOfARotatedFileIsCounted(t *testing.T) {
	config, torn, _ := logFile(t, 1, `{"schema_version":1,"time":"2026-01-02`)
	_, whole, _ := logFile(t, 2)
	s := must(t, "replay", "-c", config, "--decisions", torn, "--decisions", whole)
	if s.messages != "tierway: skipped 1 line that is not a decision record\n" ||
		!strings.HasPrefix(s.out, "records        3,") {
		t.Errorf("it says\n%s%s", s.out, s.messages)
	}
}

// TestRecordsOfAnotherPolicyAreReported: the report names the policy as the reason for unreproduced workers.
func TestRecordsOfAnotherPolicyAreReported(t *testing.T) {
	config, log, _ := logFile(t, 2)
	other := filepath.Join(t.TempDir(), "config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, bytes.ReplaceAll(text, []byte("least_load"), []byte("chwbl")), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := must(t, "replay", "-c", other, "--decisions", log); !strings.Contains(s.out, "none of the workers\n") ||
		!strings.Contains(s.out, "other policy   2 were decided by a policy other than the configuration's") {
		t.Errorf("it says\n%s", s.out)
	}
}

func TestNewerRecordVersionIsRejected(t *testing.T) {
	for _, line := range []string{`{"schema_version":2,"time":"2026-01-02T03:04:05Z"}`,
		`{"schema_version":2,"time":{"unix":7}}`} {
		config, log, _ := logFile(t, 1, line+"\n")
		s := tierway(t, "replay", "-c", config, "--decisions", log)
		if s.status != 2 || s.out != "" || !strings.Contains(s.messages, "line 2: the decision records have a newer "+
			"version than this release supports: schema_version is 2, the latest supported is 1") {
			t.Errorf("status %d: %s%s", s.status, s.out, s.messages)
		}
	}
}

func TestReplayUsageErrorsNameTheWayOut(t *testing.T) {
	config, log, _ := logFile(t, 1)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("no\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("tiers: [ { name: small, polisy: x } ]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"2 --decisions or --live is re":               {"-c", config},
		"2 --config and --live: use on":               {"-c", config, "--decisions", log, "--live"},
		"2 --decisions " + empty + ": no decision re": {"-c", config, "--decisions", empty},
		"2 --last -1: write an integer":               {"-c", config, "--decisions", log, "--last", "-1"},
		"2 --decisions /nowhere: no such file":        {"-c", config, "--decisions", "/nowhere"},
		"2 --decisions /: is a directory":             {"-c", config, "--decisions", "/"},
		"1 polisy":                                    {"-c", config, "--decisions", log, "--draft", bad},
		"1 unknown":                                   {"-c", bad, "--decisions", log},
	} {
		s := tierway(t, append([]string{"replay"}, args...)...)
		status, text, _ := strings.Cut(want, " ")
		if fmt.Sprint(s.status) != status || !strings.Contains(s.messages, text) || s.out != "" {
			t.Errorf("%q: status %d, %s%s", args, s.status, s.messages, s.out)
		}
	}
}

func TestLiveReplayCallsTheGateway(t *testing.T) {
	_, _, draft := logFile(t, 0)
	address, asked := reloading(t, 200,
		`{"records":3,"n":3,"changed_worker":1,"redecided":3,"config_generations":2,"tiers":[]}`)
	s := must(t, "replay", "--live", "--api", address, "--draft", draft, "--last", "3")
	if !strings.Contains(s.out, "worker         1 of 3 (33.3 %) would change\n") {
		t.Errorf("it says\n%s", s.out)
	}
	if got := asked(); got != "POST /admin/route/replay" {
		t.Errorf("asked %s", got)
	}
}

func FuzzReadDecisions(f *testing.F) {
	line, err := json.Marshal(logged(1, 500))
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "\n", string(line), string(line) + "\n", "x\n" + string(line) + "\n{",
		`{"schema_version":9}`, `{"schema_version":1,"attempts":[{"choice":{"candidates":[{}],"seen":1}}]}` + "\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		given := 0
		n, err := readDecisions(bytes.NewReader(text), func(d *decisions.Decision) {
			if d == nil || d.SchemaVersion < 1 || d.SchemaVersion > decisions.SchemaVersion {
				t.Fatalf("%+v is given as a decision", d)
			}
			given++
		})
		lines := bytes.Count(text, []byte("\n"))
		if n.decisions != given || err == nil && n.decisions+n.malformed < lines || n.decisions+n.malformed > lines+1 {
			t.Errorf("%+v of %d lines, %d were given; %v", n, lines, given, err)
		}
	})
}
