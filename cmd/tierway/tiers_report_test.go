package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tierway/server/admin"
	"tierway/tenants"
	"tierway/tierscore"
)

// pricedConfig has prices of two tiers.
const pricedConfig = `auth: { required: false }
tiers:
  - { name: small, model: s, price: { input: 1, output: 2 }, workers: [ { name: s0, url: "http://127.0.0.1:1" } ] }
  - { name: large, model: l, price: { input: 10, output: 20 }, workers: [ { name: l0, url: "http://127.0.0.1:2" } ] }
`

// TestTierReportShowsCurvesAndCost: the small tier fails for one word, which the model knows. Its curve is in-sample,
// because no request is newer.
func TestTierReportShowsCurvesAndCost(t *testing.T) {
	f := newTrainFiles(t, true)
	if s := f.run(t); s.status != 0 {
		t.Fatal(s.messages)
	}
	dir := t.TempDir()
	config, picture := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "curves.svg")
	f.write(t, config, pricedConfig)
	args := []string{"tiers", "report", "--features", f.features, "--labels", f.labels, "-c", config, "--model", f.model,
		"--prompt-tokens", "2000", "--output-tokens", "500", "--svg", picture}
	s := must(t, args...)
	for _, want := range []string{"400 of 400 lines of features have labels", "400 of both (100.0 %)",
		"curves  400 requests", "model   in-sample: ", "2000 prompt tokens and 500 output tokens",
		"at large  score above  default", "\n100 %     any", "100.0 % [100.0, 100.0]  30\n", "\nAPGR ", "random"} {
		if !strings.Contains(s.out, want) {
			t.Errorf("no %q in\n%s", want, s.out)
		}
	}
	if strings.Contains(s.out, "estimated") {
		t.Errorf("all labels are paired, but\n%s", s.out)
	}
	if svg, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) ||
		!bytes.Contains(svg, []byte("model, in-sample, APGR 0.")) {
		t.Errorf("%v: %s", err, svg)
	}
	var r admin.TierReport
	if err := json.Unmarshal([]byte(must(t, append(args, "--json")...).out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Usage != nil || !r.Labels.InSample || len(r.Labels.Curves) != 4 ||
		r.Labels.Money.Points[0].Money != 3*tenants.Unit ||
		r.Labels.Curves[3].APGR.Value < 0.7 || *r.Labels.Curves[0].Points[0].Threshold != 4 {
		t.Errorf("%+v", r.Labels)
	}
}

const tierUsageAnswer = `{"usage":{"from":"2026-01-01","to":"2026-01-31","tiers":[
{"tier":"small","price":{"input":1,"output":1},"requests":75,"share":0.75,"prompt_tokens":75000,"cached_tokens":0,"output_tokens":7500,"money":1.5,"money_at_last_tier":9},
{"tier":"large\u001b","price":{"input":10,"output":10},"requests":25,"share":0.25,"prompt_tokens":25000,"cached_tokens":0,"output_tokens":2500,"money":3,"money_at_last_tier":3}],
"last_tier":"large\u001b","requests":100,"money":4.5,"money_at_last_tier":12,"saved":7.5,"assumption":"the same tokens"},"labels_problem":"collect more"}`

// TestTierReportShowsTheSavingsOfAGateway, and labels of files beside them.
func TestTierReportShowsTheSavingsOfAGateway(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/admin/tiers/report" {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		_, _ = w.Write([]byte(tierUsageAnswer)) // a client that left asks for nothing more
	})
	t.Setenv(adminKeyVariable, newKey(t, tenants.AdminPrefix))
	out := must(t, "tiers", "report", "--live", "--api", s.URL).out
	for _, want := range []string{"period   2026-01-01 to 2026-01-30",
		"small: 75.0 % of 100 requests, cost 1.5, at the",
		"large?: 25.0 % of 100", "saved    7.5 of 12 (62.5 %) against sending all requests to large?", "assumed  the same tokens",
		"labels   no report: collect more"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	f := newTrainFiles(t, true)
	out = must(t, "tiers", "report", "--live", "--api", s.URL, "--features", f.features, "--labels", f.labels).out
	if strings.Contains(out, "collect more") || !strings.Contains(out, "400 of 400 lines") ||
		strings.Contains(out, "cost  ") {
		t.Error(out)
	}
	picture := filepath.Join(t.TempDir(), "x")
	if s := tierway(t, "tiers", "report", "--live", "--api", s.URL, "--svg", picture); s.status != 2 ||
		!strings.Contains(s.messages, "no curves without labels") {
		t.Errorf("status %d\n%s", s.status, s.messages)
	}
}

func TestTierReportNamesTheError(t *testing.T) {
	f := newTrainFiles(t, true)
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	f.write(t, config, pricedConfig)
	f.write(t, filepath.Join(dir, "no.model"), "text")
	files := []string{"--features", f.features, "--labels", f.labels}
	text, err := os.ReadFile(f.labels)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "a")
	f.write(t, other, strings.ReplaceAll(string(text), `"small"`, `"a"`))
	for want, args := range map[string][]string{
		"--features or --live is required":               {},
		"--labels is required with --features":           {"--features", f.features},
		"--small and --large are both":                   append(files, "--small", "large"),
		"--prompt-tokens -1: write an integer":           append(files, "--prompt-tokens", "-1"),
		"--svg " + f.labels + " is a file of --features": append(files, "--svg", f.labels),
		"400 labels are of other tiers":                  append(files, "--large", "gpt"),
		"does not have the tiers \"a\" and \"large\"":    append(files, "--small", "a", "-c", config, "--labels", other),
		"no.model: the file does not begin with":         append(files, "--model", filepath.Join(dir, "no.model")),
		"no such file or directory":                      append(files, "--labels", "absent"),
		"flag needs an argument: --svg":                  append(files, "--svg"),
	} {
		s := tierway(t, append([]string{"tiers", "report"}, args...)...)
		if s.status != 2 || !strings.Contains(s.messages, want) || s.out != "" {
			t.Errorf("%s: status %d\n%s%s", want, s.status, s.out, s.messages)
		}
	}
}

// TestTierReportEvaluatesFeedbackIfClientsLabelAllAnswers: by default it does not, because clients report bad answers
// more often. The error names the flag.
func TestTierReportEvaluatesFeedbackIfClientsLabelAllAnswers(t *testing.T) {
	f := newTrainFiles(t, true)
	features, err := os.ReadFile(f.features)
	if err != nil {
		t.Fatal(err)
	}
	var explored, labels strings.Builder
	for i, line := range strings.Split(strings.TrimSpace(string(features)), "\n") {
		tier := []string{"small", "large"}[i%2]
		answered := fmt.Sprintf(`"explored":0.5,"tier":%q,"baseline"`, tier)
		explored.WriteString(strings.Replace(line, `"baseline"`, answered, 1) + "\n")
		fmt.Fprintf(&labels, `{"id":"r%d","ts":"2026-01-02T00:00:00Z","ok":%v,"source":"feedback"}`+"\n", i, i%4 > 0)
	}
	f.write(t, f.features, explored.String())
	f.write(t, f.labels, labels.String())
	args := []string{"tiers", "report", "--features", f.features, "--labels", f.labels}
	const hint = "feedback about 400 explored requests does not evaluate, unless clients give it about all answers: " +
		"tierway tiers report --evaluate-feedback"
	if s := tierway(t, args...); s.status != 2 || !strings.Contains(s.messages, hint) {
		t.Errorf("status %d\n%s%s", s.status, s.out, s.messages)
	}
	out := must(t, append(args, "--evaluate-feedback")...).out
	if !strings.Contains(out, "curves    400 requests") || !strings.Contains(out, "\n0 %       4.000        50.0 % [") {
		t.Error(out)
	}
}

// TestTierReportPrintsLinesThatAreNotUsed, as tierway train does.
func TestTierReportPrintsLinesThatAreNotUsed(t *testing.T) {
	f := newTrainFiles(t, true)
	features, err := os.ReadFile(f.features)
	if err != nil {
		t.Fatal(err)
	}
	labels, err := os.ReadFile(f.labels)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(features), `"baseline"`, `"tenant":"acme","baseline"`, 1)
	text = strings.Replace(text, `"id":"r2"`, `"id":"r1"`, 1) // two lines of r1
	text = strings.Replace(text, `"id":"r3"`, `"id":"r0","tenant":"other"`, 1)
	var old tierscore.Features
	tierscore.NewExtractor("0123456789abcdef").Extract(&old, &tierscore.Input{User: []byte("easy")})
	oldLine := fmt.Sprintf(`{"id":"old","ts":"2025-12-31T00:00:00Z","baseline":1,"features":%s}`, old.AppendJSON(nil))
	f.write(t, f.features, oldLine+"\n"+text)
	foreign := `{"id":"r0","ts":"2026-01-02T00:00:00Z","tenant":"third","tier":"small","ok":true,"source":"replay"}` + "\n"
	medium := strings.NewReplacer("third", "acme", "small", "medium").Replace(foreign)
	f.write(t, f.labels, string(labels)+foreign+medium+foreign[:20])
	report := must(t, "tiers", "report", "--features", f.features, "--labels", f.labels).out
	training := f.run(t).out
	for _, want := range []string{
		" unused lines of other tiers: 1\n",
		" unused lines of another tenant than the request's: 1\n",
		" unused lines without a tenant, with an id of several tenants: 2\n",
		" unused lines of features with the tenant and id of another one: 2\n",
		" unused lines of features with another hash_key than the newest one: 1\n",
		" unused lines that end early: 1\n",
	} {
		if !strings.Contains(report, want) || !strings.Contains(training, want) {
			t.Errorf("no %q in\n%s\nor\n%s", want, report, training)
		}
	}
}
