package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tierway/sim/comparison"
)

// shortTrace is a recorded second of three requests, two of them with a common prefix.
const shortTrace = `{"timestamp": 0, "input_length": 1500, "output_length": 20, "hash_ids": [0, 1, 2]}
{"timestamp": 400, "input_length": 1100, "output_length": 10, "hash_ids": [0, 1, 3]}
{"timestamp": 900, "input_length": 600, "output_length": 5, "hash_ids": [4, 5]}
`

func traceFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte(shortTrace), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSimulatePrintsATableOfATrace(t *testing.T) {
	s := must(t, "simulate", "--trace", traceFile(t), "--rate", "0.5,2", "--policies", "least_load,perfect",
		"--engines", "1", "--seeds", "1")
	lines := strings.Split(strings.TrimRight(s.out, "\n"), "\n")
	if len(lines) != 6 || lines[3] != "" || s.messages != "" {
		t.Fatalf("%s%s", s.out, s.messages)
	}
	want := "trace 0.5 perfect 3 0.081* 0.068* 0.158* 0.566* 32.0 % 1.00 +0.0 %"
	if got := strings.Join(strings.Fields(lines[2]), " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSimulateWritesJSONAndAChart(t *testing.T) {
	chart := filepath.Join(t.TempDir(), "chart.svg")
	s := must(t, "simulate", "--trace", traceFile(t), "--requests", "2", "--policies", "chwbl+events+queue,llm_d",
		"--chunk-tokens", "512", "--cache-tokens", "0", "--prefill-rate", "1000,2000", "--engines", "2", "--seeds", "2",
		"--json", "--svg", chart)
	var r comparison.Report
	if err := json.Unmarshal([]byte(s.out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || len(r.Seeds) != 2 || r.Rows[0].Requests != 2 || r.Rows[0].Hits != 0 ||
		r.Rows[1].TTFT.Mean < 0.5 {
		t.Errorf("%+v", r)
	}
	text, err := os.ReadFile(chart)
	if err != nil || xml.Unmarshal(text, new(struct{})) != nil || !strings.Contains(string(text), "llm_d") {
		t.Errorf("%s %v", text, err)
	}
}

// TestSimulateRunsSeveralGateways: the table and JSON show their number and how often they share.
func TestSimulateRunsSeveralGateways(t *testing.T) {
	for every, want := range map[string]string{
		"25ms": "3 gateways that share loads and caches every 25ms\n\n   load  rate",
		"0s":   "3 gateways that share nothing\n\n   load  rate",
	} {
		args := []string{"simulate", "--trace", traceFile(t), "--spread", "100ms", "--policies", "kv_aware",
			"--gateways", "3", "--share-every", every, "--seeds", "1"}
		if s := must(t, args...); !strings.HasPrefix(s.out, want) {
			t.Errorf("got %s, want %s", s.out, want)
		}
		var r comparison.Report
		if err := json.Unmarshal([]byte(must(t, append(args, "--json")...).out), &r); err != nil {
			t.Fatal(err)
		}
		if shares := every != "0s"; r.Gateways != 3 || (r.ShareEvery == 0.025) != shares {
			t.Errorf("every %s: %+v", every, r)
		}
	}
}

// TestSimulateRunsRoles: the table and JSON show where prompts are computed, and what each role does.
func TestSimulateRunsRoles(t *testing.T) {
	for handover, want := range map[string][]string{
		"nixl": {"hand-over nixl, engines: 2 prefill, 2 decode, 1 both", "chwbl+threshold=1 3 0.092",
			"100 % 20.8 prefill 0 %, decode 0 %, both 19 % decode 0.3, both 0.0"},
		"sglang": {"hand-over sglang, engines: 2 prefill, 2 decode, 1 both", " 100 % 20.8 prefill 10 %, decode 0 %, both 0 % decode 0.3, both 0.0",
			" 0 % 20.8 whole 4 % whole 0.1"},
	} {
		args := []string{"simulate", "--trace", traceFile(t), "--handover", handover, "--policies",
			"chwbl+prefill=least_load,chwbl+whole", "--engines", "5", "--roles", "prefill,decode, prefill,decode,both", "--seeds", "1"}
		if handover == "nixl" {
			args[6] += ",chwbl+threshold=1"
		}
		s := must(t, args...)
		for _, text := range want {
			if got := strings.Join(strings.Fields(s.out), " "); !strings.Contains(got, text) {
				t.Errorf("got\n%s\nwant %s", s.out, text)
			}
		}
		var r comparison.Report
		if err := json.Unmarshal([]byte(must(t, append(args, "--json")...).out), &r); err != nil {
			t.Fatal(err)
		}
		if last := r.Rows[len(r.Rows)-1].Stages; last == nil || last.Token.P99 < 0.02 || len(last.Roles) == 0 {
			t.Errorf("%+v", r.Rows)
		}
	}
}

// TestSimulateDoubtsTheSizeOfBlocks: with 128 tokens a block, the hashes of a prompt of 1,500 tokens
// cover a fourth of it.
func TestSimulateDoubtsTheSizeOfBlocks(t *testing.T) {
	var out, messages strings.Builder
	c := root(&out, &messages)
	c.SetIn(strings.NewReader(shortTrace))
	c.SetArgs([]string{"simulate", "--trace", "-", "--policies", " least_load, chwbl+queue", "--seeds", "1",
		"--block-tokens", "128", "--max-inflight", "1"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "tierway: --trace standard input: request 1: hash_ids covers 3 of 12 blocks of input_length 1500 " +
		"(3 of 3 requests are like it): is --block-tokens 128 right?\n"
	if messages.String() != want || !strings.Contains(out.String(), " chwbl+queue ") {
		t.Errorf("got %s%s, want %s", out.String(), messages.String(), want)
	}
}

func TestSimulateReplaysDecisions(t *testing.T) {
	_, log, _ := logFile(t, 6)
	s := must(t, "simulate", "--decisions", log, "--policies", "least_load", "--seeds", "1")
	if !strings.Contains(s.out, "decisions") || !strings.Contains(s.messages, "no record has features.chain") {
		t.Errorf("%s%s", s.out, s.messages)
	}
}

func TestSimulateRefusesInvalidFlags(t *testing.T) {
	trace := traceFile(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--mode", "fast"}, `--mode: mode "fast" is unknown: write one of base, `},
		{[]string{"--policies", "fastest"}, `--policies: policy "fastest" is unknown: write one of cache_aware, `},
		{[]string{"--seeds", "0"}, "--seeds 0: write an integer from 1 to 1000"},
		{[]string{"--engines", "65"}, "--engines 65: write an integer from 1 to 64"},
		{[]string{"--rate", "0"}, "--rate 0: write a number from 0.001"},
		{[]string{"--prefill-rate", "-1"}, "--prefill-rate -1: write tokens per second"},
		{[]string{"--prefill-rate", "1000,2000,3000", "--engines", "2"}, "--prefill-rate has 3 values for --engines 2"},
		{[]string{"--cache-tokens", "-1"}, "--cache-tokens -1: write 0 for no cache"},
		{[]string{"--chunk-tokens", "-1"}, "--chunk-tokens -1: write 0, or"},
		{[]string{"--reported-cache-tokens", "-2"}, "--reported-cache-tokens -2: write -1 for no metric"},
		{[]string{"--noise", "2"}, "--noise 2: write a number from 0 to 1"},
		{[]string{"--max-inflight", "-1", "--policies", "chwbl+queue"}, "--max-inflight -1: write 0, or"},
		{[]string{"--rate", "x"}, `--rate "x": write numbers, such as 0.5,1,2`},
		{[]string{"--rate", "1,2,1"}, "--rate 1 is given twice"},
		{[]string{"--cache-tokens", "1M"}, `--cache-tokens "1M": write an integer, such as 300000`},
		{[]string{"--direct", "1"}, "--direct 1: write a number from 0 to below 1"},
		{[]string{"--noise", "x"}, `--noise "x": write a number`},
		{[]string{"--gateways", "0"}, "--gateways 0: write an integer from 1 to 64"},
		{[]string{"--gateways", "3"}, `--gateways 3: policy "kubeai_chwbl" of another router runs with one gateway`},
		{[]string{"--share-every", "1s"}, "--share-every has no effect on one gateway"},
		{[]string{"--gateways", "2", "--policies", "chwbl", "--share-every", "1us"}, "--share-every 1µs: write 0 to share"},
		{[]string{"--spread", "3s"}, "--spread has no effect without --trace"},
		{[]string{"--trace", trace, "--spread", "-1s"}, "--spread -1s: write an interval from 0 to 1h"},
		{[]string{"--polices", "chwbl"}, "unknown flag: --polices (`tierway simulate --help` lists"},
		{[]string{"--policies", ""}, "--policies: write one or more of cache_aware, "},
		{[]string{"--policies", "chwbl,llm_d,chwbl"}, `--policies: policy "chwbl" is given twice`},
		{[]string{"--mode", ""}, "--mode: write one or more of base, "},
		{[]string{"--mode", "base,hot, base"}, `--mode: "base" is given twice`},
		{[]string{"--requests", "5"}, "--requests has no effect on built-in traffic"},
		{[]string{"--decisions", trace, "--block-tokens", "512"}, "--block-tokens has no effect without --trace"},
		{[]string{"--max-inflight", "5"}, "--max-inflight has no effect without a queue"},
		{[]string{"--trace", "nowhere.jsonl"}, "--trace nowhere.jsonl: no such file"},
		{[]string{"--trace", trace, "--block-tokens", "0"}, "--block-tokens 0: write the tokens of one hash"},
		{[]string{"--trace", trace, "--block-tokens", "2048"}, "line 1 of the trace: hash_ids has 3 blocks"},
		{[]string{"--trace", trace, "--requests", "-1"}, "--requests -1: write 0 for all"},
		{[]string{"--trace", trace, "--decisions", trace}, "--trace"},
		{[]string{"--decisions", trace}, "--decisions " + trace + ": no decision records"},
		{[]string{"--handover", "nixel", "--policies", "chwbl"}, `--handover "nixel": write one of nixl, p2p_nccl, shared, sglang`},
		{[]string{"--handover", "", "--policies", "chwbl"}, `--handover "": write one of nixl`},
		{[]string{"--handover", "nixl", "--policies", "kubeai_chwbl"}, `--handover nixl: policy "kubeai_chwbl" of another router has no roles`},
		{[]string{"--roles", "both"}, "--roles has no effect without --handover: remove it, or add --handover nixl"},
		{[]string{"--transfer-rate", "1e5"}, "--transfer-rate has no effect without --handover"},
		{[]string{"--policies", "chwbl+whole"}, `policy "chwbl+whole": whole has no effect without --handover`},
		{[]string{"--policies", "chwbl+prefill=random"}, `prefill=random has no effect without --handover`},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--roles", "prefill"},
			"--roles prefill: no engine generates answers: add decode"},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--roles", "decode"},
			"--roles decode: with --handover nixl and --engines 8 no engine can compute prompts for another one"},
		{[]string{"--handover", "sglang", "--policies", "chwbl", "--roles", "both"},
			"--roles both: with --handover sglang and --engines 8 no engine can compute prompts"},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--roles", "both", "--engines", "1"},
			"--roles both: with --handover nixl and --engines 1 no engine can compute prompts"},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--roles", "prefill,fast"},
			`--roles "fast": write prefill, decode, both`},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--roles", ""}, "--roles: write one or more of prefill"},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--engines", "1"}, "--roles has 2 values for --engines 1"},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--direct", "0.1"},
			"--direct 0.1: requests past the gateway have no hand-over"},
		{[]string{"--handover", "nixl", "--policies", "chwbl", "--transfer-rate", "0"},
			"--transfer-rate 0: write tokens per second"},
		{[]string{"--handover", "sglang", "--policies", "chwbl+threshold=5"},
			`policy "chwbl+threshold=5": threshold=5 has no effect with --handover sglang, because the role`},
		{[]string{"--trace", trace, "--svg", trace + "/chart.svg"}, "--svg " + trace + "/chart.svg: not a dir"},
	} {
		s := tierway(t, append([]string{"simulate"}, c.args...)...)
		if s.status != 2 || !strings.Contains(s.messages, c.want) || s.out != "" {
			t.Errorf("%v: status %d, %s%s, want %q", c.args, s.status, s.out, s.messages, c.want)
		}
	}
}

// TestProgressIsShownOnTerminalsOnly: a buffer is no terminal.
func TestProgressIsShownOnTerminalsOnly(t *testing.T) {
	var buffer strings.Builder
	b := newProgressBar(&buffer)
	b.show(1, 2)
	b.clear()
	if buffer.Len() > 0 {
		t.Errorf("%q was written to a buffer", buffer.String())
	}
	b.out = &buffer
	for done := range 3 {
		b.show(done, 80)
	}
	b.clear()
	b.show(3, 80) // after a row of the table
	one := "\r[#" + strings.Repeat(".", 39) + "] "
	want := "\r[" + strings.Repeat(".", 40) + "] 0 of 80" + one + "2 of 80\r\x1b[K" + one + "3 of 80"
	if buffer.String() != want {
		t.Errorf("got %q, want %q", buffer.String(), want)
	}
}
