package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/routing"
)

const (
	digestA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// small is a valid tier, keys its auth section.
const (
	small = "tiers: [{name: small, model: m, workers: [{name: w, url: \"http://h:1\"}]}]\n"
	keys  = "auth: {keys: [{name: a, sha256: " + digestA + "}]}\n"
)

// policies returns the names of this build's policies.
var policies = strings.Join(routing.Names(), ", ")

// environment is a lookup in a literal map.
func environment(vars map[string]string) lookup {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// problemsOf parses src and returns its problems and warnings without the name of the file.
func problemsOf(t *testing.T, src string, vars map[string]string) []string {
	t.Helper()
	f, err := Parse("f", []byte(src), environment(vars))
	var ps Problems
	switch {
	case err == nil:
		ps = f.Warnings()
	case f != nil:
		t.Fatal("a file and an error")
	case !errors.As(err, &ps):
		t.Fatalf("the error is no Problems: %v", err)
	}
	lines := []string{}
	for _, p := range ps {
		lines = append(lines, strings.TrimPrefix(p.String(), "f:"))
	}
	return lines
}

func TestEveryProblemHasAPositionAndAHint(t *testing.T) {
	env := map[string]string{"WEIGHT": "7", "BAD": "sk-very-secret", "EMPTY": "", "KEY": "a-whole-key"}
	cases := map[string]struct {
		src  string
		want []string
	}{
		"nothing wrong": {keys + small, nil},
		"an empty file": {"", []string{
			` tiers: there are no tiers and no pools, so no request could be served (add a tier with a name, a model and workers)`,
		}},
		"neither keys nor a database": {small + "store: {sql: \"\"}\n", []string{
			`1:1: auth.keys: keys are required, but the file has none and store.sql is empty: every request would be rejected (add - {name: me, sha256: …} with the output of printf %s "$KEY" | sha256sum, set store.sql, or set auth.required: false on loopback)`,
		}},
		"a database for keys": {small, nil},
		"many at once": {`lissten: ":80"
auth:
  keys:
    - {name: a, sha256: ` + digestA + `, tiers: [smal], models: ["x*", "gpt-4o"]}
store: {sql: "sqlite//x"}
tiers:
  - name: Small
    modle: m
    price: {input: -1}
    workers:
      - {name: w0, url: "http://h:8000", weight: 900, zone: eu}
      - {name: w0, url: "HTTP://H:8000/", weight: heavy}
  - name: medium
    model: n
    engine: vlm
    serves: [chat, chta]
    workers: []
models: {auto: classify, "gpt-4*": medum}
classifier: {mode: min, default: medium}
health: {interval: 2s, timeout: 5}
`, []string{
			`1:1: lissten: unknown key (did you mean listen?)`,
			`4:99: auth.keys[0].tiers[0]: "smal" is not a tier or pool of this file (known: medium)`,
			`4:115: auth.keys[0].models[0]: "x*" matches no model, tier or alias of this file (known: auto, classify, medium, n, gpt-4*)`,
			`5:14: store.sql: is no URL (write sqlite://FILE or postgres://user@host/database)`,
			`7:11: tiers[0].name: want a name of up to 63 lower-case letters, digits, dots, underscores and hyphens that starts with a letter or digit, got "Small"`,
			`8:5: tiers[0].modle: unknown key (did you mean model?)`,
			`9:20: tiers[0].price.input: want a number from 0 to 1000000, got "-1"`,
			`11:50: tiers[0].workers[0].weight: want an integer from 0 to 100, got "900"`,
			`11:55: tiers[0].workers[0].zone: unknown key (known: name, url, ranks, weight, max_inflight, max_tokens_inflight, priority, models, region, api_key_env, api_key_file, headers, tls, health, kv_events, cache_tokens, role, bootstrap_port, kv_address)`,
			`12:16: tiers[0].workers[1].name: "w0" is already the name at tiers[0].workers[0].name (choose a unique name)`,
			`12:25: tiers[0].workers[1].url: "HTTP://H:8000/" is already the URL of tiers[0].workers[0].url (remove one of them: a server appears once per tier or pool)`,
			`12:51: tiers[0].workers[1].weight: want an integer from 0 to 100, got "heavy"`,
			`15:13: tiers[1].engine: want one of auto, vllm, sglang, llamacpp, ollama, openai, anthropic, got "vlm" (did you mean vllm?)`,
			`16:20: tiers[1].serves[1]: want one of chat, completions, responses, messages, embeddings, rerank, score, pooling, tokenize, moderations, images, audio, got "chta" (did you mean chat?)`,
			`17:14: tiers[1].workers: the list is empty (workers of the pool: at least one, each with a name and a URL)`,
			`18:36: models["gpt-4*"]: unknown target "medum" (name a tier or pool (medium), a model that one serves, or "classify")`,
			`19:20: classifier.mode: want one of max, first_match, got "min"`,
			`20:33: health.timeout: want a duration above 0, got "5" (add a unit, such as 5s)`,
		}},
		"missing keys of sections": {keys + `tiers:
  - {}
  - name: b
pools:
  - workers:
      - weight: 1
`, []string{
			`3:5: tiers[0].name: missing (add name: name of the tier, unique in the file)`,
			`3:5: tiers[0].model: missing (add model: model that the tier's workers serve, by the name that they use)`,
			`3:5: tiers[0].workers: missing (add workers: workers of the pool: at least one, each with a name and a URL)`,
			`4:5: tiers[1].model: missing (add model: model that the tier's workers serve, by the name that they use)`,
			`4:5: tiers[1].workers: missing (add workers: workers of the pool: at least one, each with a name and a URL)`,
			`6:5: pools[0].name: missing (add name: name of the pool, unique in the file)`,
			`6:5: pools[0].models: the pool has no model and no paths, so no request can reach it (list the names that clients request)`,
			`7:9: pools[0].workers[0].name: missing (add name: name of the worker, unique in the file)`,
			`7:9: pools[0].workers[0].url: missing (add url: address of the server: http://host:port, https://host/base or unix:///path)`,
		}},
		"kinds of values": {keys + small + `listen: [a]
tls: x
retry: {attempts: 6, budget: 1.5}
drain: {accept_grace: 0s, timeout: 0s}
routing_headers: yes
max_body_bytes: 3 apples
log: {level: , access: "true"}
timeouts: {connect: -1s, total: [1s]}
pools: {}
cors: {origins: ~}
queue:
admin: !!map {}
`, []string{
			`3:9: listen: want a string, got a list`,
			`4:6: tls: want a section of keys, got a single value`,
			`5:19: retry.attempts: want an integer from 1 to 5, got "6"`,
			`5:30: retry.budget: want a number from 0 to 1, got "1.5"`,
			`6:36: drain.timeout: want a duration above 0, got "0s"`,
			`7:18: routing_headers: want true or false, got "yes" (write true or false)`,
			`8:17: max_body_bytes: want a size above 0, got "3 apples" (write a number with a unit, such as 32MiB, or bytes, such as 33554432)`,
			`9:14: log.level: the key has no value (remove the key to use the default, or write "" for an empty value)`,
			`9:24: log.access: want true or false, got "true" (remove the quotes)`,
			`10:21: timeouts.connect: want a duration above 0, got "-1s"`,
			`10:33: timeouts.total: want a section of keys, got a list`,
			`11:8: pools: want a list, got a section of keys (write [ … ], or one item per line after a hyphen)`,
			`12:17: cors.origins: the list has no value (remove the key, or write [] for an empty list)`,
			`14:8: admin: YAML tags are not supported (remove the !!map)`,
		}},
		"what is no kind of request": {keys +
			`tiers: [{name: small, model: m, serves: [other], workers: [{name: w, url: "http://h:1"}]}]
pools: [{name: p, models: [n], serves: [chat, other], workers: [{name: x, url: "http://h:2"}]}]
`, []string{
			`2:42: tiers[0].serves[0]: want one of chat, completions, responses, messages, embeddings, rerank, score, pooling, tokenize, moderations, images, audio, got "other"`,
			`3:47: pools[0].serves[1]: want one of chat, completions, responses, messages, embeddings, rerank, score, pooling, tokenize, moderations, images, audio, got "other"`,
		}},
		"a policy and an option that there are not": {keys + small + "policy: {name: prefix_tree, blocks: 16}\n", []string{
			`3:16: policy.name: want one of ` + policies + `, got "prefix_tree"`,
			`3:29: policy.blocks: unknown key (known: name, fallback, epsilon, slack, virtual_nodes, max_prefix_length, no_key, depth, key, key_header, fallback_key, cache_threshold, balance_abs_threshold, balance_rel_threshold, eviction_interval, max_tree_size, on_miss, overlap_weight, load_weight, health_weight, min_score, mode, controller_url, controller_api_key_env and 6 more)`,
		}},
		"a mistyped policy": {keys + small + "policy: {name: least_laod}\n", []string{
			`3:16: policy.name: want one of ` + policies + `, got "least_laod" (did you mean least_load?)`,
		}},
		"variables": {keys + `tiers:
  - name: small
    model: "${MODEL:-m}-${EMPTY:-x}$${y}"
    workers:
      - {name: "${MISSING}", url: "http://h:1", weight: "${WEIGHT}"}
      - {name: "${BAD}!", url: "ftp://${BAD}", weight: "${BAD}", api_key_env: KEY}
      - {name: w3, url: "${OPEN", "${BAD}": x, api_key_env: GONE}
`, []string{
			`6:16: tiers[0].workers[0].name: the environment variable MISSING is not set (set it, or write ${MISSING:-default})`,
			`7:16: tiers[0].workers[1].name: want a name of up to 63 lower-case letters, digits, dots, underscores and hyphens that starts with a letter or digit, got "${BAD}!"`,
			`7:32: tiers[0].workers[1].url: "ftp://${BAD}" has the scheme "ftp"; it must be http, https or unix`,
			`7:56: tiers[0].workers[1].weight: want an integer from 0 to 100, got "${BAD}"`,
			`8:25: tiers[0].workers[2].url: want ${NAME} or ${NAME:-default}, got "${OPEN" (write $${ for a literal ${)`,
			`8:35: tiers[0].workers[2]["${BAD}"]: variables are expanded in values, not in keys (write the key without ${…})`,
			`8:61: tiers[0].workers[2].api_key_env: the environment variable GONE is not set (set it to the worker's key)`,
		}},
		"secrets in the file": {`auth: {keys: [{name: a, sha256: hunter2, key: hunter2}]}
admin: {keys: [{name: a, sha256: ` + digestB + `}, {name: a, sha256: ` + digestB + `}]}
tiers:
  - name: small
    model: m
    workers:
      - {name: w0, url: "http://u:hunter2@h:1", api_key: hunter2}
      - {name: w1, url: "http://h:2", api_key_env: hunter2}
`, []string{
			`1:33: auth.keys[0].sha256: want 64 hex digits, got 7 characters`,
			`1:47: auth.keys[0].key: the file must not contain secrets (set sha256 to its digest, from printf %s "$KEY" | sha256sum)`,
			`2:108: admin.keys[1].name: "a" is already the name at admin.keys[0].name (choose a unique name)`,
			`2:119: admin.keys[1].sha256: duplicates the key of admin.keys[0] (create a separate key for each entry)`,
			`7:25: tiers[0].workers[0].url: "http://…@h:1" must not hold a user or a password; name the variable with the worker's key in api_key_env`,
			`7:58: tiers[0].workers[0].api_key: the file must not contain secrets (set it in an environment variable and name the variable in api_key_env)`,
			`8:52: tiers[0].workers[1].api_key_env: the environment variable that it names is not set (write the variable's name here, never the key itself, and set the variable to the key)`,
		}},
		"keys of tenants": {small + `auth:
  keys:
    - {name: a, sha256: ` + digestA + `, priority: urgent}
    - {name: b, sha256: ` + strings.ToUpper(digestA) + `}
    - {name: a, sha256: ` + digestB + `, tiers: [small]}
    - {name: A, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855}
    - {name: c, sha256: 1234, tiers: ["sm*"], models: ["", "m", "m"]}
`, []string{
			`4:101: auth.keys[0].priority: want one of interactive, background, batch, got "urgent"`,
			`5:25: auth.keys[1].sha256: duplicates the key of auth.keys[0] (create a separate key for each entry)`,
			`6:14: auth.keys[2].name: another key of "a" has different settings (give all keys of a tenant the same settings, or choose another name)`,
			`7:14: auth.keys[3].name: want a name of up to 63 lower-case letters, digits and hyphens, got "A"`,
			`7:25: auth.keys[3].sha256: is the digest of an empty key (use the digest of the key)`,
			`8:25: auth.keys[4].sha256: want 64 hex digits, got 4 characters`,
			`8:39: auth.keys[4].tiers[0]: "sm*" is not a tier or pool of this file (known: small)`,
			`8:56: auth.keys[4].models[0]: "" matches no model, tier or alias of this file (known: auto, classify, small, m)`,
			`8:65: auth.keys[4].models[2]: "m" is listed twice (remove one of them)`,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := problemsOf(t, c.src, env)
			if diff := cmp.Diff(append([]string{}, c.want...), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
