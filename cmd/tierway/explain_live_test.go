package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tierway/server"
	"tierway/tenants"
)

// explaining plays a gateway that answers every explanation alike, and returns what
// it was asked.
func explaining(t *testing.T, status int, body string) (address string, asked func() server.ExplainOrder) {
	t.Helper()
	orders := make(chan server.ExplainOrder, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // what is missing fails below
		var o server.ExplainOrder
		if err := json.Unmarshal(text, &o); err != nil || r.URL.Path != "/admin/route/explain" || r.Method != http.MethodPost {
			t.Errorf("asked %s %s with %s", r.Method, r.URL.Path, text)
		}
		orders <- o
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // a client that left asks for nothing more
	}))
	t.Cleanup(s.Close)
	t.Setenv(adminKeyVariable, newKey(t, tenants.AdminPrefix))
	return s.URL, func() server.ExplainOrder { return <-orders }
}

const explained = `{"outcome":"route","summary":"small by default; w0","tier":"small","worker":"w0","steps":[
{"stage":"tier","ok":true,"detail":"small by default","tier":{"asked":"auto","moves":[{"tier":"large","rule":"keyword:code","by":"clamped"}],"targets":[{"name":"large","allowed":false,"served":true,"fits":true,"up":true}]}},
{"stage":"limits","ok":true,"detail":"rpm 3/10","limits":[{"whose":"tenant","limit":"rpm","used":3,"room":10,"asks":1}]},
{"stage":"worker","ok":true,"detail":"w0","worker":{"choice":{"policy":"chwbl","key":"00000000000000ff","key_of":"prefix","rand":"0000000000000001","prompt_tokens":9,"expected_output_tokens":9,"seen":1,
"candidates":[{"worker":"w0","index":0,"score":0,"weight":1,"inflight":2,"pending_tokens":5,"output_tokens":6,"overlap_tokens":7,"prefill_rate":1,"terms":{"step":0,"requests":0.5}}]},
"others":[{"worker":"w1","why":"down"}]}}],"notes":["\u001b[31mred"],`

// TestARunningGatewayExplains: the order says what the flags say, and the ladder what
// the gateway answered, without what a terminal would obey.
func TestARunningGatewayExplains(t *testing.T) {
	address, asked := explaining(t, 200, explained+`"draft":{"outcome":"reject","summary":"refused at tier","status":404,"error":"{}"},"changed":["outcome"],"changes":[{"path":"tiers[small]","op":"add","old":"","new":"x","effect":"live"}]}`)
	dir := t.TempDir()
	request, draft := filepath.Join(dir, "r.json"), filepath.Join(dir, "d.yaml")
	for path, text := range map[string]string{request: `{"model":"auto","messages":[]}`, draft: "policy: { name: random }"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := tierway(t, "explain", "--live", "--api", address, "-f", request, "--tenant", "acme", "--priority", "batch", "--draft", draft, "-H", "X-Model-Tier: large")
	o := asked()
	if o.Tenant != "acme" || o.Class != "batch" || o.Path != "/v1/chat/completions" || o.Headers["X-Model-Tier"] != "large" || len(o.Headers) != 1 ||
		o.Draft == nil || !strings.Contains(o.Draft.Text, "random") || !strings.Contains(string(o.Request), "auto") {
		t.Errorf("asked for %+v", o)
	}
	for _, want := range []string{"route: small by default; w0\n", "keyword:code asked for large; clamped decided", "large: not allowed", "3 of 10 used", "00000000000000ff of the prefix",
		"w0, score 0, step 0, requests 0.5; 2 in flight, 5 tokens to read, 6 to write, 7 cached  <- chosen", "w1: down", "?[31mred", "under the draft:", "add tiers[small]: x", "changed by the draft: outcome"} {
		if !strings.Contains(s.out, want) {
			t.Errorf("it does not say %q:\n%s", want, s.out)
		}
	}
	if s.status != 1 {
		t.Errorf("a draft that refuses ends with %d", s.status)
	}
}

// TestTheStatusIsTheOutcome of an explanation by a gateway.
func TestTheStatusIsTheOutcome(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		code   int
		says   string
	}{
		{200, explained + `"x":0}`, 0, "route"},
		{200, `{"outcome":"queue","summary":"it would wait"}`, 0, "queue"},
		{200, `{"outcome":"reject","summary":"refused at tier","status":404}`, 1, "reject"},
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

// TestFlagsThatNeedAGatewaySaySo, and those that exclude each other.
func TestFlagsThatNeedAGatewaySaySo(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--decision", "x"}, "--live"},
		{[]string{"-f", "x", "--tenant", "acme"}, "--live"},
		{[]string{"-f", "x", "--draft", "y"}, "--live"},
		{[]string{"--live"}, "file"},
		{[]string{"--live", "-f", "x", "--decision", "y"}, "decision"},
		{[]string{"--live", "-f", "x", "-c", "y"}, "config"},
	} {
		if s := tierway(t, append([]string{"explain"}, c.args...)...); s.status != 2 || !strings.Contains(s.messages, c.says) {
			t.Errorf("%v ends with %d and says %s", c.args, s.status, s.messages)
		}
	}
}
