package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tierway/routing"
	"tierway/server/admin"
	"tierway/tenants"
)

// explaining starts a fake gateway with one answer for every explanation. It returns the requests that
// the gateway received.
func explaining(t *testing.T, status int, body string) (address string, asked func() admin.ExplainOrder) {
	t.Helper()
	orders := make(chan admin.ExplainOrder, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // what is missing fails below
		var o admin.ExplainOrder
		if err := json.Unmarshal(text, &o); err != nil || r.URL.Path != "/admin/route/explain" ||
			r.Method != http.MethodPost {
			t.Errorf("asked %s %s with %s", r.Method, r.URL.Path, text)
		}
		orders <- o
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // a client that left asks for nothing more
	})
	t.Setenv(adminKeyVariable, newKey(t, tenants.AdminPrefix))
	return s.URL, func() admin.ExplainOrder { return <-orders }
}

const explained = `{"outcome":"route","summary":"small by default; w0","tier":"small","worker":"w0",
"reason":"prefix_home","steps":[
{"stage":"tier","ok":true,"detail":"small by default","tier":{"asked":"auto","signals":[{"rule":"max_tokens","value":32000,"threshold":500,"not_counted":"the request offers tools"}],"moves":[{"tier":"large","rule":"keyword:code","by":"clamped"}],"targets":[{"name":"large","allowed":false,"served":true,"fits":true,"up":true}]}},
{"stage":"limits","ok":true,"detail":"rpm 3/10","limits":[{"scope":"tenant","limit":"rpm","used":3,"room":10,"rate":60,"would_use":1},{"scope":"key","limit":"month_money","used":0.5,"room":250}]},
{"stage":"worker","ok":true,"detail":"w0","worker":{"choice":{"policy":"chwbl","key":"00000000000000ff","key_of":"prefix","rand":"0000000000000001","prompt_tokens":9,"expected_output_tokens":9,"seen":1,
"candidates":[{"worker":"w0","index":0,"score":0,"weight":1,"inflight":2,"pending_tokens":5,"output_tokens":6,"overlap_tokens":7,"prefill_rate":1,"terms":{"step":0,"requests":0.5}}]},
"others":[{"worker":"w1","why":"down"}],"learned":{"rate":8000,"output_tokens":{"value":256,"count":0},
"prompt_scale":{"value":1.1,"count":7},"workers":[{"rate":{"count":0}}]}}}],"notes":["\u001b[31mred"],`

// TestExplainCallsTheGateway: the request contains the values of the flags. The output shows
// the gateway's answer without control characters.
func TestExplainCallsTheGateway(t *testing.T) {
	address, asked := explaining(t, 200,
		explained+
			`"draft":{"outcome":"reject","summary":"rejected at tier","status":404,"error":"{}"},"changed":["outcome"],"changes":[{"path":"tiers[small]","op":"add","old":"","new":"x","effect":"live"}]}`)
	dir := t.TempDir()
	request, draft := filepath.Join(dir, "r.json"), filepath.Join(dir, "d.yaml")
	for path, text := range map[string]string{request: `{"model":"auto","messages":[]}`,
		draft: "policy: { name: random }"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := tierway(t, "explain", "--live", "--api", address, "-f", request, "--tenant", "acme", "--priority", "batch",
		"--draft", draft, "-H", "X-Model-Tier: large")
	o := asked()
	if o.Tenant != "acme" || o.Class != "batch" || o.Path != "/v1/chat/completions" ||
		o.Headers["X-Model-Tier"] != "large" || len(o.Headers) != 1 ||
		o.Draft == nil || !strings.Contains(*o.Draft, "random") || !strings.Contains(string(o.Request), "auto") {
		t.Errorf("asked for %+v", o)
	}
	for _, want := range []string{"route: small by default; w0\n", "keyword:code selected large; overridden by clamped",
		"large: not allowed",
		"max_tokens selects no tier: 32000 does not count, the request offers tools\n",
		"the tenant's rpm 60 (3 of a burst of 10 used), the request takes 1\n", "the key's month_money 250 (0.5 used)\n",
		"00000000000000ff of the prefix",
		"w0, score 0, step 0, requests 0.5; 2 requests in flight, 5 prompt tokens to read, 6 output tokens to generate, " +
			"7 tokens of the prompt cached according to the gateway's history  <- chosen",
		"reason     prefix_home: the beginning of the prompt hashes to it\n", "w1: down: health checks fail",
		"1.1 prompt tokens per estimated token (7 samples), 256 output tokens (a prior, no samples), " +
			"prefill of 8000 tokens/s (a prior, no samples)\n", "?[31mred", "with the draft:", "add tiers[small]: x",
		"the draft changes: outcome"} {
		if !strings.Contains(s.out, want) {
			t.Errorf("it does not say %q:\n%s", want, s.out)
		}
	}
	if s.status != 1 {
		t.Errorf("a draft that refuses ends with %d", s.status)
	}
}

// TestExplainExitStatusIsTheOutcome: each outcome of an explanation has its exit status.
func TestExplainExitStatusIsTheOutcome(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		code   int
		says   string
	}{
		{200, explained + `"x":0}`, 0, "route"},
		{200, `{"outcome":"queue","summary":"it would wait"}`, 0, "queue"},
		{200, `{"outcome":"reject","summary":"rejected at tier","status":404}`, 1, "reject"},
		{200, `{"outcome":"reject","summary":"was rejected at queue","status":503,"code":"overloaded","shed":"depth"}`, 1,
			"rejected  503 by depth overloaded\n"},
		{404, `{"detail":"No decision"}`, 2, "No decision"},
		{413, `{"detail":"too large"}`, 2, "--decision"},
	} {
		address, asked := explaining(t, c.status, c.body)
		s := tierway(t, "explain", "--live", "--api", address, "--decision", "why-1")
		if o := asked(); o.Decision != "why-1" || o.Request != nil {
			t.Errorf("asked for %+v", o)
		}
		if s.status != c.code || !strings.Contains(s.out+s.messages, c.says) {
			t.Errorf("%d %s: ends with %d and says %s%s", c.status, c.body, s.status, s.out, s.messages)
		}
	}
}

// TestErrorsOfTheGatewayNameTheFlag: an error for a field names the flag and its value.
func TestErrorsOfTheGatewayNameTheFlag(t *testing.T) {
	for body, want := range map[string]string{
		`{"location":"body.tenant","message":"there is no such tenant","value":"acem"}`:                                                                                                                 `tierway: --tenant "acem": there is no such tenant`,
		`{"location":"body.class","message":"expected value to be one of \"interactive, background, batch\"","value":"urgent"},{"location":"body.key_id","message":"there is no such key","value":"k"}`: `tierway: --priority "urgent": expected value to be one of "interactive, background, batch"; --key-id "k": there is no such key`,
		`{"location":"body.decision","message":"a past request has its own"}`:                                                                                                                           `tierway: --decision: a past request has its own`,
		`{"location":"body.news","message":"expected number <= 5","value":7}`:                                                                                                                           `422 Unprocessable Entity: validation failed; body.news 7: expected number <= 5`,
	} {
		draft := filepath.Join(t.TempDir(), "d.yaml")
		write(t, draft, "policy: random")
		address, asked := explaining(t, 422, `{"status":422,"detail":"validation failed","errors":[`+body+`]}`)
		s := tierway(t, "explain", "--live", "--api", address, "--decision", "x", "--draft", draft)
		asked()
		if s.status != 2 || s.out != "" || !strings.HasSuffix(s.messages, want+"\n") {
			t.Errorf("it ends with %d and says %q, want %q", s.status, s.messages, want)
		}
	}
}

// TestInvalidConfigurationHasAnotherStatusThanARefusedRequest: a configuration or
// draft with problems ends with another status than a refused request.
func TestInvalidConfigurationHasAnotherStatusThanARefusedRequest(t *testing.T) {
	dir := t.TempDir()
	bad, request := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "r.json")
	write(t, bad, "tiers: [{ name: small, polisy: x }]")
	write(t, request, `{"model":"auto","messages":[]}`)
	for args, says := range map[string]string{
		"-c " + bad + " -f " + request:                       "polisy",
		"-c " + bad + "x -f " + request:                      "bad.yamlx",
		"-c " + newHouse(t, "").config + " -f " + dir + "/x": "reading the request",
	} {
		if s := tierway(t, append([]string{"explain"}, strings.Fields(args)...)...); s.status != 2 ||
			!strings.Contains(s.messages, says) {
			t.Errorf("%s ends with %d and says %s", args, s.status, s.messages)
		}
	}
	address, asked := explaining(t, 422,
		`{"status":422,"detail":"The draft has errors.","errors":[{"message":"draft:1:9: policy: want a name","location":"body.draft: policy"}]}`)
	s := tierway(t, "explain", "--live", "--api", address, "-f", request, "--draft", bad)
	asked()
	if s.status != 2 || s.messages != "draft:1:9: policy: want a name\ntierway: The draft has errors.\n" {
		t.Errorf("a bad draft ends with %d and says %q", s.status, s.messages)
	}
	if s := tierway(t, "explain", "-c", newHouse(t, "").config, "-f", request, "-H", "X-Model-Tier: nobody"); s.status !=
		1 {
		t.Errorf("a request that would be refused ends with %d: %s%s", s.status, s.out, s.messages)
	}
}

// TestFlagsThatNeedAGatewayAreRejectedWithoutOne: flags that exclude each other are rejected too.
func TestFlagsThatNeedAGatewayAreRejectedWithoutOne(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--decision", "x"}, "--live"},
		{[]string{"-f", "x", "--tenant", "acme"}, "--live"},
		{[]string{"-f", "x", "--draft", "y"}, "--live"},
		{[]string{"--live"}, "--file or --decision"},
		{[]string{"--live", "-f", "x", "--decision", "y"}, "--decision"},
		{[]string{"--live", "-f", "x", "-c", "y"}, "--config"},
	} {
		t.Setenv(adminKeyVariable, newKey(t, tenants.AdminPrefix))
		if s := tierway(t, append([]string{"explain"}, c.args...)...); s.status != 2 ||
			!strings.Contains(s.messages, c.says) {
			t.Errorf("%v ends with %d and says %s", c.args, s.status, s.messages)
		}
	}
}

// TestExplainPrintsSecondsOfKVAware: scores of kv_aware are times.
func TestExplainPrintsSecondsOfKVAware(t *testing.T) {
	address, asked := explaining(t, 200, `{"outcome":"route","summary":"w0","worker":"w0","policy":"kv_aware",
"reason":"kv_events","steps":[{"stage":"worker","ok":true,"detail":"w0",
"worker":{"choice":{"policy":"kv_aware","rand":"0000000000000001","seen":2,"candidates":[
{"worker":"w0","score":0.25,"overlap_tokens":640,"kv_events":true,"terms":{"first_token":0.2,"queue":0.05}},
{"worker":"w1","score":0.5,"excluded":"full","terms":{"first_token":0.5,"queue":0}}]}}}]}`)
	s := tierway(t, "explain", "--live", "--api", address, "--decision", "why-1")
	asked()
	for _, want := range []string{"w0, score 0.25 s, first_token 0.2 s, queue 0.05 s; ",
		", 640 tokens of the prompt cached according to events  <- chosen",
		"excluded: full until another of its requests ends\n",
		"kv_events: lowest cost, with a part of the prompt in its cache by the engine's events\n"} {
		if !strings.Contains(s.out, want) {
			t.Errorf("it does not say %q:\n%s", want, s.out)
		}
	}
}

// TestExplainHasWordsForAllReasons: no code is printed alone.
func TestExplainHasWordsForAllReasons(t *testing.T) {
	for _, policy := range routing.Names() {
		for _, r := range routing.Reasons(routing.Config{Name: policy}) {
			if words := reasonWords(string(r)); words == string(r) {
				t.Errorf("%s of %s has no words", r, policy)
			}
		}
	}
}
