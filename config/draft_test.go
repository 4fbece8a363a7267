package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// live is the configuration that drafts of these tests are over.
var live = `listen: "${LISTEN:-127.0.0.1:8080}"
store: {sql: "postgres://u:${PW}@h/db", redis: "redis://:${PW}@r:6379"}
auth:
  keys:
    - {name: a, sha256: "${KEY_A}", limits: {rpm: 60}}
    - {name: a, sha256: ` + digestB + `, limits: {rpm: 60}}
    - {name: b, sha256: ` + digestC + `}
policy: {name: chwbl, epsilon: 0.5}
tiers:
  - {name: small, model: m, context: 100, workers: [{name: w0, url: "http://h:1", api_key_env: K}, {name: w1, url: "http://h:2"}]}
  - {name: large, model: n, price: {input: 1, output: 2}, workers: [{name: w2, url: "http://h:3", weight: 2}]}
models: {auto: classify, "gpt-4*": small}
classifier:
  preset: none
  prompt_tokens: {large: 9}
  keywords: [{name: k, tier: large, match: [law]}, {name: k2, tier: large, match: [poem]}]
decisions: {file: /var/d.jsonl}
`

var (
	digestC = strings.Replace(digestB, "b", "c", 1)
	digestD = strings.Repeat("d", 64)
	liveEnv = map[string]string{"PW": "hunter2-hunter2", "KEY_A": digestA, "K": "worker-key", "OTHER": "other-secret"}
)

// changed returns what a draft changes, one change a line.
func changed(t *testing.T, f, draft *File) []string {
	t.Helper()
	lines := []string{}
	for _, c := range Changes(f, draft) {
		lines = append(lines, fmt.Sprintf("%s %s: %s → %s", c.Op, c.Path, c.Old, c.New))
	}
	return lines
}

func TestADraftIsLaidOverTheLiveConfiguration(t *testing.T) {
	cases := map[string]struct {
		draft string
		want  []string
	}{
		"nothing":        {"", []string{}},
		"a comment":      {"# nothing\n", []string{}},
		"empty sections": {"tiers: []\nauth: {}\npolicy: {}\n", []string{}},
		"a weight":       {"tiers: [{name: small, workers: [{name: w1, weight: 3}]}]", []string{"replace tiers[small].workers[w1].weight: 1 → 3"}},
		"a drain":        {"tiers: [{name: small, workers: [{name: w0, weight: 0}]}]", []string{"replace tiers[small].workers[w0].weight: 1 → 0"}},
		"a default again": {"tiers: [{name: large, price: , workers: [{name: w2, weight: null}]}]\npolicy: null\n", []string{
			"remove policy.epsilon: 0.5 → ", "remove tiers[large].price.input: 1 → ", "remove tiers[large].price.output: 2 → ", "replace tiers[large].workers[w2].weight: 2 → 1"}},
		"another policy":     {"policy: {name: least_load}", []string{"replace policy.name: chwbl → least_load", "remove policy.epsilon: 0.5 → "}},
		"the policy's bound": {"policy: {epsilon: 0.1}", []string{"replace policy.epsilon: 0.5 → 0.1"}},
		"the same policy":    {"policy: {name: chwbl}", []string{}},
		"a tier's policy":    {"tiers: [{name: small, policy: {name: random}}]", []string{"replace tiers[small].policy.name: chwbl → random", "remove tiers[small].policy.epsilon: 0.5 → "}},
		"a new worker": {"tiers: [{name: small, workers: [{name: w9, url: \"http://h:9\", weight: 2}]}]", []string{
			"add tiers[small].workers[w9]:  → {name: w9, url: 'http://h:9', weight: 2}"}},
		"a new tier comes last": {"tiers: [{name: huge, model: o, workers: [{name: w9, url: \"http://h:9\"}]}]", []string{
			"replace tiers: small, large → small, large, huge", "add tiers[huge]:  → {name: huge, model: o, workers: [{name: w9, url: 'http://h:9'}]}"}},
		"a new pool": {"pools: [{name: p, paths: [/x], workers: [{name: w9, url: \"http://h:9\"}]}]", []string{
			"add pools[p]:  → {name: p, paths: [/x], workers: [{name: w9, url: 'http://h:9'}]}", "add pools:  → p"}},
		"an alias":                {"models: {auto: large, \"gpt-4*\": null, x: small}", []string{"replace models.auto: classify → large", `remove models["gpt-4*"]: small → `, "add models.x:  → small"}},
		"a threshold":             {"classifier: {prompt_tokens: {large: 3}}", []string{"replace classifier.prompt_tokens.large: 9 → 3"}},
		"a limit of all its keys": {"auth: {keys: [{name: a, limits: {rpm: 30}}]}", []string{"replace auth.keys[a aaaaaaaa…].limits.rpm: 60 → 30", "replace auth.keys[a bbbbbbbb…].limits.rpm: 60 → 30"}},
		"another key":             {"auth: {keys: [{name: b, sha256: " + digestD + "}]}", []string{"replace auth.keys[b].sha256: cbbbbbbb… → dddddddd…"}},
		"a third key": {"auth: {keys: [{name: a, sha256: " + digestD + ", limits: {rpm: 60}}]}", []string{
			"add auth.keys[a dddddddd…]:  → {name: a, sha256: dddddddd…, limits: {rpm: 60}, isolate_cache: f…"}},
		"groups of words": {"classifier: {keywords: [{name: k2, weight: 2}, {name: k3, tier: large, match: [tax]}]}", []string{
			"replace classifier.keywords[k2].weight: 1 → 2", "replace classifier.keywords: k, k2 → k, k2, k3", "add classifier.keywords[k3]:  → {tier: large, name: k3, match: [tax]}"}},
		"expressions":             {"classifier: {keywords: [{name: k, tier: large, match: [tax, law]}]}", []string{"replace classifier.keywords[k].match: [law] → [tax, law]"}},
		"as the live file has it": {"listen: \"${LISTEN:-127.0.0.1:8080}\"\nstore: {sql: \"postgres://u:${PW}@h/db\"}\nauth: {keys: [{name: a, sha256: \"${KEY_A}\"}]}\ntiers: [{name: small, workers: [{name: w0, api_key_env: K}]}]\ndecisions: {file: /var/d.jsonl}", []string{}},
		"as it is shown":          {"store: {sql: \"postgres://***@h\", redis: \"redis://***@r:6379\"}\nauth: {keys: [{name: a, sha256: bbbbbbbb…}]}", []string{}},
		"a worker of another tier": {"tiers: [{name: small, workers: [{name: w0, url: \"http://h:1\"}]}, {name: large, workers: [{name: w7, url: \"http://h:7\"}]}]", []string{
			"add tiers[large].workers[w7]:  → {name: w7, url: 'http://h:7'}"}},
		"no store and no key": {"store: {sql: \"\", redis: }\ntiers: [{name: small, workers: [{name: w0, api_key_env: \"\"}]}]", []string{
			"replace store.sql: postgres://***@h → ", "remove store.redis: redis://***@r:6379 → ", "remove tiers[small].workers[w0].api_key_env: K → "}},
		"an alias of YAML": {"tiers: [{name: small, workers: [{name: w0, weight: &w 4}, {name: w1, weight: *w}]}]", []string{
			"replace tiers[small].workers[w0].weight: 1 → 4", "replace tiers[small].workers[w1].weight: 1 → 4"}},
		"a plain dollar": {"models: {x: small, auto: \"classify\", \"a\": 'm'}\nmetrics: {listen: \"127.0.0.1:1\"}", []string{
			"add metrics.listen:  → 127.0.0.1:1", "add models.a:  → m", "add models.x:  → small"}},
	}
	f := parsed(t, live, liveEnv)
	before := string(printed(f))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			draft, err := f.Draft([]byte(c.draft), false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, changed(t, f, draft)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if after := string(printed(f)); before != after {
				t.Errorf("the live configuration changed:\n%s", cmp.Diff(before, after))
			}
		})
	}
}

func TestAProblemOfADraftStandsAtItsLine(t *testing.T) {
	const way = " (leave the key out; a change of it can be tried by a reload with dry_run)"
	const env = " (write the value, or leave the key out; a value that is written as in the live file stays what it is there)"
	cases := map[string]struct {
		draft string
		want  []string
	}{
		"no YAML": {"tiers: [", []string{"draft:1:1: no valid YAML: did not find expected node content"}},
		"unknown keys": {"teirs: []\ntiers:\n  - {name: small, wieght: 3}\n", []string{
			"draft:1:1: teirs: unknown key (did you mean tiers?)",
			"draft:3:19: tiers[0].wieght: unknown key (known: name, model, engine, serves, context, price, policy, queue, saturation, health, workers, allow_fields, response_headers)"}},
		"values": {"tiers:\n  - name: large\n    workers:\n      - {name: w2, weight: 900}\n", []string{
			`draft:4:28: tiers[1].workers[0].weight: want an integer from 0 to 100, got "900"`}},
		"what a new item lacks": {"tiers: [{name: small, workers: [{name: w9}]}]", []string{
			"draft:1:33: tiers[0].workers[2].url: missing (where it listens: http://host:port, https://host/base or unix:///path)"}},
		"what a reset takes away": {"tiers:\n  - {name: small, model: null}\n", []string{
			"draft:2:5: tiers[0].model: missing (the model that its workers serve, as they name it)"}},
		"a name that another has": {"tiers: [{name: small, workers: [{name: w2, url: \"http://h:9\"}]}]", []string{
			`draft: tiers[1].workers[0].name: "w2" is the name at tiers[0].workers[2].name already (names are unique; choose another)`}},
		"an item twice": {"tiers: [{name: small, context: 1}, {name: small, context: 2}]", []string{
			`draft:1:36: tiers[2].model: missing (the model that its workers serve, as they name it)`,
			`draft:1:36: tiers[2].workers: missing (the tier's workers)`,
			`draft:1:43: tiers[2].name: duplicate name "small" (tiers[0].name has it already)`}},
		"a key twice": {"retry: {attempts: 1, attempts: 2}", []string{
			"draft:1:22: retry.attempts: the key stands here twice, first in line 1 (keep one of the two)"}},
		"a tag and a merge": {"retry: !!map {attempts: 1}\nqueue: {<<: {max_depth: 1}}\n", []string{
			"draft:1:8: retry: YAML tags are not used here (remove the !!map)",
			"draft:2:9: queue: merge keys (<<) are not used here (write the keys out; an alias may stand for a whole value)"}},
		"an option of another policy": {"tiers: [{name: small, policy: {name: random, epsilon: 1}}]", []string{
			"draft:1:55: tiers[0].policy.epsilon: only chwbl reads it, and the policy is random (remove the key, or write name: chwbl)"}},
		"the environment": {"models: {x: \"${OTHER}\", y: \"${NOBODY:-small}\"}\nauth: {keys: [{name: b, sha256: \"${KEY_A}\"}]}\ncors: {origins: [\"${OTHER}\"]}\n", []string{
			`draft:1:13: models.x: a draft reads no variable of the environment: OTHER` + env,
			`draft:1:28: models.y: a draft reads no variable of the environment: NOBODY` + env,
			`draft:2:33: auth.keys[2].sha256: a draft reads no variable of the environment: KEY_A` + env,
			`draft:3:18: cors.origins[0]: a draft reads no variable of the environment: OTHER` + env}},
		"files": {"tls: {cert: /etc/hosts, key: /etc/shadow}\nadmin: {tls: {cert: /etc/hosts}}\ndecisions: {file: /etc/passwd}\n", []string{
			"draft:1:13: tls.cert: a draft cannot change it: it names a file" + way,
			"draft:1:30: tls.key: a draft cannot change it: it names a file" + way,
			"draft:2:21: admin.tls.cert: a draft cannot change it: it names a file" + way,
			"draft:3:19: decisions.file: a draft cannot change it: it names a file" + way}},
		"stores": {"store: {sql: \"postgres://u:hunter2-hunter2@h/db\", redis: \"redis://:${OTHER}@r\"}\n", []string{
			"draft:1:14: store.sql: a draft cannot change it: it leads to a store" + way,
			"draft:1:58: store.redis: a draft cannot change it: it leads to a store" + way}},
		"workers' keys": {"tiers: [{name: small, workers: [{name: w0, api_key_env: OTHER}, {name: w1, api_key_env: K}, {name: w9, url: \"http://h:9\", api_key_env: \"${K}\"}]}]\n", []string{
			"draft:1:57: tiers[0].workers[0].api_key_env: a draft cannot change it: it names a variable of the environment" + way,
			"draft:1:89: tiers[0].workers[1].api_key_env: a draft cannot change it: it names a variable of the environment" + way,
			"draft:1:136: tiers[0].workers[2].api_key_env: a draft cannot change it: it names a variable of the environment" + way}},
		"a key itself": {"tiers: [{name: small, workers: [{name: w0, api_key: sk-1}]}]\n", []string{
			"draft:1:53: tiers[0].workers[0].api_key: secrets are not written into the file (put it into an environment variable and name that: api_key_env)"}},
		"an open address": {"listen: \":80\"\n", []string{
			`draft:1:9: listen: ":80" is not loopback and has no TLS: keys and prompts would cross the network in plain text (set tls.cert and tls.key, or insecure: true where a proxy or the network protects it)`}},
	}
	f := parsed(t, live, liveEnv)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			draft, err := f.Draft([]byte(c.draft), false)
			var ps Problems
			if !errors.As(err, &ps) || draft != nil {
				t.Fatalf("%v with %v", draft, err)
			}
			if diff := cmp.Diff(strings.Join(c.want, "\n"), ps.Error()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var out strings.Builder
			if err := ps.Format(&out, []byte(c.draft)); err != nil {
				t.Fatal(err)
			}
			for _, secret := range liveEnv {
				if strings.Contains(out.String(), secret) {
					t.Errorf("a secret was printed: %s", out.String())
				}
			}
		})
	}
}

func TestAWholeDraftIsItsTextAlone(t *testing.T) {
	f := parsed(t, live, liveEnv)
	if draft, err := f.Draft([]byte(live), true); err != nil || len(Changes(f, draft)) > 0 {
		t.Errorf("the live file's own text: %v", err)
	}
	text := "auth: {keys: [{name: a, sha256: \"${KEY_A}\"}]}\ntiers: [{name: medium, model: m, workers: [{name: w0, url: \"http://h:1\", api_key_env: K}]}]\n"
	draft, err := f.Draft([]byte(text), true)
	if err != nil {
		t.Fatal(err)
	}
	if len(draft.Tiers) != 1 || len(draft.Models) > 0 || draft.Store.Redis != "" || len(draft.Auth.Keys) != 1 || draft.Auth.Keys[0].SHA256 != digestA ||
		draft.Specs()[0].Key != "worker-key" || draft.Policy.Epsilon != nil {
		t.Errorf("%v", draft)
	}
	for text, want := range map[string]string{
		"":                                     `draft: tiers: there are no tiers and no pools, so that nothing could be served (add tiers: with a name, a model and workers)`,
		"retry: {attempts: }\n" + keys + small: "draft:1:19: retry.attempts: the key has no value (remove it for the default)",
	} {
		if _, err := f.Draft([]byte(text), true); err == nil || err.Error() != want {
			t.Errorf("%q: %s", text, cmp.Diff(want, fmt.Sprint(err)))
		}
	}
}

// CF-02: what is live and wrong with it is no fault of a draft.
func TestWhateverIsInForceCanBeDrafted(t *testing.T) {
	f := parsed(t, live, liveEnv)
	flags, err := FromFlags([]string{"m"}, []string{"http://h:1", "http://h:2"}, nil, "", "")
	if err != nil {
		t.Fatal(err)
	}
	moved, err := f.WithListen("127.0.0.1:9", "")
	if err != nil {
		t.Fatal(err)
	}
	open := parsed(t, "listen: \"0.0.0.0:8080\"\ninsecure: true\nstore: {sql: \"\"}\n"+keys+small, nil)
	later := parsed(t, "auth: {required: false}\n"+small, nil).KeepRestartOnly(open)
	drained := f.WithOverrides(map[string]int{"w0": 0, "w1": 0, "w2": 7})
	again, err := drained.Draft([]byte("retry: {attempts: 1}"), false)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*File{"flags": flags, "moved": moved, "restart": later, "drained": drained, "a draft": again} {
		draft, err := f.Draft(nil, false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := changed(t, f, draft); len(got) > 0 || string(printed(draft)) != string(printed(f)) {
			t.Errorf("%s: %v", name, got)
		}
	}
	draft, err := drained.Draft([]byte("tiers: [{name: small, workers: [{name: w1, weight: 5}]}]"), false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"replace tiers[small].workers[w1].weight: 0 → 5"}, changed(t, drained, draft)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if draft.Specs()[0].Key != "worker-key" {
		t.Error("the worker's key did not stay")
	}
}

func TestADraftWarnsOfWhatItSaysItself(t *testing.T) {
	f := parsed(t, "queue: {age: {batch: 10m}}\ndecisions: {max_files: 3}\n"+keys+small, nil)
	if len(f.Warnings()) != 2 {
		t.Fatal(f.Warnings())
	}
	for text, want := range map[string]string{
		"retry: {attempts: 1}": "",
		"decisions:\n  max_size: 2MiB\ngateways: 2\n": `draft:2:13: warning: decisions.max_size: does nothing without decisions.file (set decisions.file, or remove the key; decisions.keep bounds what is in memory)
draft:3:1: warning: store.sql: gateways is 2, and a SQLite file belongs to one: each would have tenants, keys and a ledger of its own (use postgres:// where several gateways share tenants and keys)`,
	} {
		draft, err := f.Draft([]byte(text), false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, draft.Warnings().Error()); diff != "" {
			t.Errorf("%q: -want +got:\n%s", text, diff)
		}
	}
}

func TestADraftOfAFileKeepsWhereItLies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := keys + small + "decisions: {file: d.jsonl}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, whole := range []bool{false, true} {
		draft, err := f.Draft([]byte(text), whole)
		if err != nil {
			t.Fatal(err)
		}
		if got := changed(t, f, draft); len(got) > 0 {
			t.Error(got)
		}
	}
}

// OB-01: a draft shows no more of the live configuration than the live
// configuration.
func TestNoDraftPrintsASecret(t *testing.T) {
	f := parsed(t, live, liveEnv)
	draft, err := f.Draft([]byte("tiers: [{name: small, workers: [{name: w0, weight: 5}]}]"), false)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := draft.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{string(shown), fmt.Sprintf("%v %+v %#v", draft, draft, draft)} {
		for _, secret := range liveEnv {
			if strings.Contains(out, secret) {
				t.Errorf("a secret was printed: %s", out)
			}
		}
	}
	// A copy has no printing of its own.
	if out := fmt.Sprintf("%+v %#v", *f, *draft); strings.Contains(out, "worker-key") || strings.Contains(out, "${PW}") {
		t.Errorf("a key or the source was printed: %s", out)
	}
	if draft.Store.SQL != f.Store.SQL || draft.Hash() == f.Hash() {
		t.Error("the draft is not its own")
	}
}

func TestABombOfAliasesIsNoDraft(t *testing.T) {
	workers := "&w [" + strings.Repeat("{name: w0, weight: 1}, ", 1000) + "]"
	text := "tiers: [{name: small, workers: " + workers + "}" + strings.Repeat(", {name: small, workers: *w}", 1000) + "]"
	f := parsed(t, live, liveEnv)
	for _, whole := range []bool{false, true} {
		if _, err := f.Draft([]byte(text), whole); err == nil || !strings.Contains(err.Error(), "50000 values (write aliases out)") && !strings.Contains(err.Error(), "100000 values") {
			t.Errorf("whole %t: %.200s", whole, fmt.Sprint(err))
		}
	}
}
