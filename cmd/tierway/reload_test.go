package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"tierway/tenants"
)

// reloading starts a fake gateway with one answer for every reload. It returns the URLs of the requests.
func reloading(t *testing.T, status int, body string) (address string, asked func() string) {
	t.Helper()
	uri := make(chan string, 1) // one command asks once
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		uri <- r.Method + " " + r.URL.RequestURI()
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // a client that left asks for nothing more
	})
	t.Setenv(adminKeyVariable, newKey(t, tenants.AdminPrefix))
	return s.URL, func() string { return <-uri }
}

const reloaded = `{"generation":4,"from_hash":"aa","to_hash":"bb",
"changes":[{"path":"tiers[small].workers[s0].weight","op":"replace","old":"1","new":"2","effect":"live"},
{"path":"tiers[small].workers[s1]","op":"remove","old":"http://s1","new":"","effect":"drain"},
{"path":"listen","op":"replace","old":":80","new":":81","effect":"restart"}],
"impact":{"workers_added":["s2","s3"],"workers_removed":["s1"],"affinity_moved":{"small":0.168,"medium":0},"restart_needed":["listen"]},
"problems":[{"file":"config.yaml","line":3,"column":1,"path":"insecure","message":"open","severity":"warning"}]}`

func TestReloadPrintsChangesAndEffects(t *testing.T) {
	address, asked := reloading(t, 200, reloaded)
	s := must(t, "reload", "--api", address)
	want := `live     replace  tiers[small].workers[s0].weight  1 → 2
drain    remove   tiers[small].workers[s1]         http://s1
restart  replace  listen                           :80 → :81
workers added: s2, s3
workers removed after their in-flight requests: s1
small: 16.8 % of prompts move to another worker
restart needed: listen
3 changes, applied as generation 4; 1 of them needs a restart
`
	if s.out != want || s.messages != "config.yaml:3:1: warning: insecure: open\n" {
		t.Errorf("it says\n%s%s", s.out, s.messages)
	}
	if got := asked(); got != "POST /admin/reload" {
		t.Errorf("asked %s", got)
	}
}

// TestReloadSummaryCountsAllChanges: changes that need a restart are included, as in the gateway's log
// line.
func TestReloadSummaryCountsAllChanges(t *testing.T) {
	for want, n := range map[string][2]int{
		"0 changes, applied as generation 4":                            {0, 0},
		"1 change, applied as generation 4":                             {1, 0},
		"3 changes, applied as generation 4; 2 of them need a restart":  {3, 2},
		"2 changes, applied as generation 4; 1 of them needs a restart": {2, 1},
		"1 change needs a restart: generation 4 stays active":           {1, 1},
		"2 changes need a restart: generation 4 stays active":           {2, 2},
	} {
		if got := reloadSummary(n[0], n[1], 4); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	address, asked := reloading(t, 200, strings.Replace(reloaded, "{", `{"dry_run":true,`, 1))
	s := must(t, "reload", "--api", address, "--dry-run")
	if !strings.HasSuffix(s.out, "3 changes, not applied: generation 4 stays active\n") {
		t.Errorf("it says\n%s", s.out)
	}
	if got := asked(); got != "POST /admin/reload?dry_run=true" {
		t.Errorf("asked %s", got)
	}
	s = must(t, "reload", "--api", address, "--dry-run", "--json")
	var got struct{ Changes []struct{ Effect string } }
	if err := json.Unmarshal([]byte(s.out), &got); err != nil || len(got.Changes) != 3 ||
		got.Changes[1].Effect != "drain" {
		t.Errorf("%v in %s", err, s.out)
	}
}

// CF-02: all problems of the configuration are printed with their positions, and the status is 1.
func TestRejectedReloadPrintsAllProblems(t *testing.T) {
	address, _ := reloading(t, 422,
		`{"title":"Unprocessable Entity","status":422,"detail":"The configuration has errors and was not applied. The previous configuration stays in force.","errors":[
{"location":"tiers[0].weight","message":"config.yaml:3:5: tiers[0].weight: is negative (write 0 to 100)"},
{"location":"listn","message":"config.yaml:9:1: listn: unknown key (did you mean listen?)"}]}`)
	s := tierway(t, "reload", "--api", address)
	want := `config.yaml:3:5: tiers[0].weight: is negative (write 0 to 100)
config.yaml:9:1: listn: unknown key (did you mean listen?)
tierway: The configuration has errors and was not applied. The previous configuration stays in force.
`
	if s.status != 1 || s.out != "" || s.messages != want {
		t.Errorf("status %d, %q\n%s", s.status, s.out, s.messages)
	}
}

func TestUnreachableGatewayIsAnError(t *testing.T) {
	address, _ := reloading(t, 409, `{"status":409,"detail":"another reload was first"}`)
	if s := tierway(t, "reload", "--api", address); s.status != 2 ||
		!strings.Contains(s.messages, "409 Conflict: another reload was first") {
		t.Errorf("status %d, %s", s.status, s.messages)
	}
	address, _ = reloading(t, 422, `{"status":422,"detail":"no such parameter"}`)
	if s := tierway(t, "reload", "--api", address); s.status != 2 || !strings.Contains(s.messages, "no such parameter") {
		t.Errorf("a 422 without problems: status %d, %s", s.status, s.messages)
	}
	t.Setenv(adminKeyVariable, "")
	if s := tierway(t, "reload", "--api", address); s.status != 2 ||
		!strings.Contains(s.messages, "TIERWAY_ADMIN_KEY is empty") {
		t.Errorf("without a key: status %d, %s", s.status, s.messages)
	}
}
