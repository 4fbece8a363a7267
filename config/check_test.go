package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTiersPoolsAndWorkersAreChecked(t *testing.T) {
	worker := func(n int) string { return fmt.Sprintf(`{name: w%d, url: "http://h:%d"}`, n, n) }
	cases := map[string]struct {
		src  string
		want []string
	}{
		"pools": {keys + `pools:
  - {name: a, model: x, models: [y, y, x], serves: [embeddings, embeddings], workers: [` + worker(1) + `]}
  - {name: a, models: [y], serves: [embeddings], workers: [` + worker(2) + `]}
  - {name: c, models: [z], workers: [` + worker(3) + `]}
  - {name: d, serves: [chat], paths: [/x], workers: [` + worker(4) + `]}
  - {name: e, models: [k], serves: [], workers: [` + worker(5) + `]}
  - {name: classify, paths: [/y], workers: [` + worker(6) + `]}
`, []string{
			`3:37: pools[0].models[1]: "y" is listed twice (remove one of them)`,
			`3:40: pools[0].models[2]: duplicate name "x", used by pools[0].model (use another name)`,
			`3:65: pools[0].serves[1]: "embeddings" is listed twice (remove one of them)`,
			`4:12: pools[1].name: duplicate name "a", used by pools[0].name (use another name)`,
			`4:24: pools[1].models[0]: duplicate name "y", used by pools[0].models[0] (use another name)`,
			`5:5: pools[2].serves: missing (list the kinds of request that its models serve, such as [embeddings])`,
			`6:5: pools[3].models: missing, but serves is set (list the models that clients request, or remove serves)`,
			`7:36: pools[4].serves: the list is empty (list kinds of request, or remove the key)`,
			`8:12: pools[5].name: "classify" is reserved (use another name)`,
		}},
		"paths": {keys + `pools:
  - name: a
    paths: [/v1/audio/*, /x, x, "/a/*/b", /b*, "/c?d", /e//f, /../g, "", /*]
    workers: [` + worker(1) + `]
  - name: b
    paths: [/x, "/v1/audio/*", /v1/audio]
    workers: [` + worker(2) + `]
`, []string{
			`4:30: pools[0].paths[2]: "x" does not start with / (write /v1/x, or /v1/x/* for everything below)`,
			`4:33: pools[0].paths[3]: "/a/*/b" has a * before its end (use * only at the end)`,
			`4:43: pools[0].paths[4]: "/b*" has a * within a segment (write "/b/*" for everything below)`,
			`4:48: pools[0].paths[5]: "/c?d" is not a plain path (remove the query, escapes, // and dot segments)`,
			`4:56: pools[0].paths[6]: "/e//f" is not a plain path (remove the query, escapes, // and dot segments)`,
			`4:63: pools[0].paths[7]: "/../g" is not a plain path (remove the query, escapes, // and dot segments)`,
			`4:70: pools[0].paths[8]: "" does not start with / (write /v1/x, or /v1/x/* for everything below)`,
			`7:13: pools[1].paths[0]: "/x" is already listed at pools[0].paths[1] (remove one of them: a path belongs to one pool)`,
			`7:17: pools[1].paths[1]: "/v1/audio/*" is already listed at pools[0].paths[0] (remove one of them: a path belongs to one pool)`,
		}},
		"paths of the gateway itself": {keys + `pools:
  - {name: a, paths: [/v1/chat/completions, /livez, /batch/v1/embeddings, /v1/models, /v1/responses/compact, /v1/embeddings/*, /], workers: [` + worker(1) + `]}
`, []string{
			`3:23: warning: pools[0].paths[0]: "/v1/chat/completions" receives no POST requests: the gateway serves them itself (remove it; the API's own endpoints reach a pool through models and serves)`,
			`3:45: warning: pools[0].paths[1]: "/livez" receives no GET requests: the gateway serves them itself (remove it; the API's own endpoints reach a pool through models and serves)`,
			`3:53: warning: pools[0].paths[2]: "/batch/v1/embeddings" receives no POST requests: the gateway serves them itself (remove it; the API's own endpoints reach a pool through models and serves)`,
			`3:75: warning: pools[0].paths[3]: "/v1/models" receives no GET requests: the gateway serves them itself (remove it; the API's own endpoints reach a pool through models and serves)`,
		}},
		"pools of one tenant": {`store: {sql: ""}
auth: {keys: [{name: acme, sha256: ` + digestA + `}]}
pools:
  - {name: a, paths: [/v1/files/*, /x], tenant: acme, workers: [` + worker(1) + `]}
  - {name: b, paths: [/v1/files/*, /v1/responses/*, /v1/chat/completions/*, /*], workers: [` + worker(2) + `]}
  - {name: c, paths: [/x], tenant: Acme, workers: [` + worker(3) + `]}
  - {name: d, paths: [/x], tenant: other, workers: [` + worker(4) + `]}
  - {name: e, paths: [/x], tenant: acme, workers: [` + worker(5) + `]}
`, []string{
			`5:23: warning: pools[1].paths[0]: "/v1/files/*" never passes a request: engines store files without separating tenants (set pools[1].tenant to the only tenant that may use them)`,
			`5:53: warning: pools[1].paths[2]: "/v1/chat/completions/*" never passes a request: engines store chat completions without separating tenants (set pools[1].tenant to the only tenant that may use them)`,
			`6:36: pools[2].tenant: "Acme" is not a tenant name (use 1 to 63 of a-z, 0-9 and -)`,
			`7:36: pools[3].tenant: "other" has no key, so no request can use the pool (set a tenant of auth.keys, or set store.sql)`,
			`8:23: pools[4].paths[0]: "/x" is already listed at pools[0].paths[1] (remove one of them: a path belongs to one pool)`,
		}},
		"files where no key is required": {`auth: {required: false}
pools:
  - {name: a, paths: [/v1/files/*], workers: [` + worker(1) + `]}
`, []string{}},
		"uploads": {keys + `pools:
  - {name: a, paths: [/a/*], max_upload_bytes: 33MiB, workers: [` + worker(1) + `]}
  - {name: b, paths: [/b/*], max_upload_bytes: 32MiB, workers: [` + worker(2) + `]}
  - {name: c, models: [c], serves: [audio], max_upload_bytes: 1GiB, workers: [` + worker(3) + `]}
  - {name: d, paths: [/d/*], max_upload_bytes: 0, workers: [` + worker(4) + `]}
`, []string{
			`4:48: pools[1].max_upload_bytes: 32MiB does not exceed max_body_bytes (32MiB), so no body is streamed (raise it, or remove the key)`,
			`5:63: pools[2].max_upload_bytes: has no effect: the pool has no paths (add paths, or remove the key)`,
			`6:48: pools[3].max_upload_bytes: want a size above 0, got "0" (write a number with a unit, such as 32MiB, or bytes, such as 33554432)`,
		}},
		"answer headers and engine fields": {keys + `pools:
  - {name: a, paths: [/a/*], response_headers: [X-Pod, x-pod, X-Should-Retry, set-cookie, Access-Control-Allow-Origin, "x y"], workers: [` + worker(1) + `]}
  - {name: b, paths: [/b/*], allow_fields: [vllm_xargs, vllm_xargs, kv_transfer_param], workers: [` + worker(2) + `]}
`, []string{
			`3:56: pools[0].response_headers[1]: "X-Pod" is listed twice (remove one of them)`,
			`3:63: pools[0].response_headers[2]: "X-Should-Retry" is never passed to clients: the gateway sets it, or it is specific to the connection or the worker (remove it)`,
			`3:79: pools[0].response_headers[3]: "set-cookie" is never passed to clients: the gateway sets it, or it is specific to the connection or the worker (remove it)`,
			`3:91: pools[0].response_headers[4]: "Access-Control-Allow-Origin" is never passed to clients: the gateway sets it, or it is specific to the connection or the worker (remove it)`,
			`3:120: pools[0].response_headers[5]: want a header's name of letters, digits and hyphens, got "x y"`,
			`4:57: pools[1].allow_fields[1]: "vllm_xargs" is listed twice (remove one of them)`,
			`4:69: pools[1].allow_fields[2]: want one of kv_transfer_params, ec_transfer_params, vllm_xargs, bootstrap_host, bootstrap_port, bootstrap_room, bootstrap_pair_key, data_parallel_rank, routed_dp_rank, disagg_prefill_dp_rank, got "kv_transfer_param" (did you mean kv_transfer_params?)`,
		}},
		"workers": {keys + `tiers:
  - name: a
    model: m
    workers: [{name: w1, url: "http://h:1", weight: 0}, {name: w2, url: "http://h:2", weight: 0, max_inflight: -1}]
  - name: b
    model: n
    workers:
      - {name: w3, url: "http://h:1/v1"}
      - {name: w4, url: "h:4"}
      - {name: w5, url: ""}
      - {name: w6, url: "http://169.254.169.254"}
      - {name: w7, url: "unix:///run/a.sock", api_key_env: "", events: "tcp://h:1"}
      - {name: w8, url: "unix:///run//a.sock"}
`, []string{
			`5:14: tiers[0].workers: every worker has weight 0, so none receives requests (set the weight of one worker to 1 or more)`,
			`5:112: tiers[0].workers[1].max_inflight: want an integer of 0 or more, got "-1"`,
			`9:25: warning: tiers[1].workers[0].url: "http://h:1/v1" is also the server of tiers[0].workers[0].url: limits such as max_inflight apply to each entry separately (divide the server's capacity among its entries)`,
			`10:25: tiers[1].workers[1].url: "h:4" has no scheme; write http://host:port, https://host or unix:///path`,
			`11:25: tiers[1].workers[2].url: want a string, got "" (address of the server: http://host:port, https://host/base or unix:///path)`,
			`12:25: tiers[1].workers[3].url: "http://169.254.169.254" is a cloud's metadata address, which is neither a worker nor a hook`,
			`13:64: tiers[1].workers[4].events: unknown key (known: name, url, ranks, weight, max_inflight, max_tokens_inflight, priority, models, region, api_key_env, api_key_file, headers, tls, health, kv_events, cache_tokens, role, bootstrap_port, kv_address)`,
			`14:25: tiers[1].workers[5].url: "unix:///run//a.sock" is already the URL of tiers[1].workers[4].url (remove one of them: a server appears once per tier or pool)`,
		}},
		"aliases and the classifier": {keys + small +
			`models: {small: m, m: small, "a: b": small, x: nobody, "gpt-*": small, "gpt-**": m, "": m}
classifier: {default: big, sticky: {}, price: 1}
`, []string{
			`3:17: models.small: never matches: "small" is already a name of "small" (remove the alias)`,
			`3:23: models.m: never matches: "m" is already a name of "small" (remove the alias)`,
			`3:48: models.x: unknown target "nobody" (name a tier or pool (small), a model that one serves, or "classify")`,
			`3:82: models["gpt-**"]: never matches: models["gpt-*"] matches the same names (remove one)`,
			`3:89: models[""]: empty model name (a request without a model goes to the default tier)`,
			`4:23: classifier.default: unknown tier "big" (name one of the tiers (small))`,
			`4:40: classifier.price: unknown key (known: mode, prompt_tokens, max_tokens, preset, keywords, keyword_score, score, share, length_weight, default, sticky, unavailable)`,
		}},
		"health": {keys + `health: {path: nowhere, down_after: 0, up_after: 2}
tiers:
  - name: a
    model: m
    health: {interval: 1s}
    workers:
      - {name: w1, url: "http://h:1", health: {interval: 10s}}
      - {name: w2, url: "http://h:2", health: {timeout: 900ms}}
      - {name: w3, url: "http://h:3", health: {timeout: 20s}}
      - {name: w4, url: "http://h:4", health: {timeout: 20s, path: "off"}}
`, []string{
			`2:16: health.path: want auto, off or a path that starts with /, got "nowhere"`,
			`2:37: health.down_after: want an integer from 1 to 1000, got "0"`,
			`6:5: tiers[0].health.timeout: the timeout 5s is longer than the interval 1s: checks would overlap (set timeout to at most 1s, or raise interval)`,
			`10:57: tiers[0].workers[2].health.timeout: the timeout 20s is longer than the interval 1s: checks would overlap (set timeout to at most 1s, or raise interval)`,
		}},
		"origins": {keys + small +
			`cors: {origins: ["https://a.example", "https://a.example/", "https://A.example", "*", a.example, "https://a.example", "ftp://a"]}
`, []string{
			`3:39: cors.origins[1]: "https://a.example/" is not an origin (write scheme://host or scheme://host:port in lower case, such as https://app.example.com)`,
			`3:61: cors.origins[2]: "https://A.example" is not an origin (write scheme://host or scheme://host:port in lower case, such as https://app.example.com)`,
			`3:82: cors.origins[3]: "*" already includes the other origins (keep only "*", or remove it)`,
			`3:87: cors.origins[4]: "a.example" is not an origin (write scheme://host or scheme://host:port in lower case, such as https://app.example.com)`,
			`3:98: cors.origins[5]: "https://a.example" is listed twice (remove one of them)`,
			`3:119: cors.origins[6]: "ftp://a" is not an origin (write scheme://host or scheme://host:port in lower case, such as https://app.example.com)`,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, problemsOf(t, c.src, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPlainTextOutsideLoopbackNeedsConfirmation(t *testing.T) {
	const (
		data  = `listen: "%s" is not loopback and has no TLS: keys and prompts would cross the network in plain text (set tls.cert and tls.key, or insecure: true if a proxy or the network protects it)`
		admin = `admin.listen: "%s" is not loopback and has no TLS: keys and prompts would cross the network in plain text (set admin.tls.cert and admin.tls.key, or admin.insecure: true if a proxy or the network protects it)`
		port  = `metrics.listen: "%s" uses the same port as %s, "%s": only one of them can be opened (choose another port, or remove the key to serve /metrics on the admin plane)`
		read  = `warning: metrics.insecure: names of tenants, models and workers cross the network to "%s" in plain text`
		open  = `warning: %sinsecure: keys and prompts cross the network to "%s" in plain text`
	)
	cases := map[string]struct {
		src  string
		want []string // without line and column
	}{
		"loopback":        {`{listen: "[::1]:1", admin: {listen: "localhost:2"}}`, nil},
		"every interface": {`{listen: ":8080"}`, []string{fmt.Sprintf(data, ":8080")}},
		"a name":          {`{listen: "gateway:8080"}`, []string{fmt.Sprintf(data, "gateway:8080")}},
		"with the word": {`{listen: "0.0.0.0:80", insecure: true}`,
			[]string{fmt.Sprintf(open, "", "0.0.0.0:80")}},
		"the word is for one plane": {`{listen: "127.0.0.1:80", insecure: true, admin: {listen: "10.0.0.1:1"}}`,
			[]string{fmt.Sprintf(admin, "10.0.0.1:1")}},
		"admin with the word": {`{admin: {listen: "10.0.0.1:1", insecure: true}}`,
			[]string{fmt.Sprintf(open, "admin.", "10.0.0.1:1")}},
		"one address": {`{listen: "127.0.0.1:80", admin: {listen: "127.0.0.1:80"}}`, nil},
		"one open address needs both": {`{listen: ":80", insecure: true, admin: {listen: ":80"}}`,
			[]string{fmt.Sprintf(open, "", ":80"), fmt.Sprintf(admin, ":80")}},
		"no port": {`{listen: "127.0.0.1"}`,
			[]string{`listen: "127.0.0.1" is not an address (write host:port, such as 127.0.0.1:8080 or :8080 for every interface)`}},
		"a port too high": {`{listen: "127.0.0.1:65536"}`,
			[]string{`listen: "127.0.0.1:65536" has no port from 0 to 65535 (write host:port, such as 127.0.0.1:8080)`}},
		"a named port": {`{listen: "127.0.0.1:http"}`,
			[]string{`listen: "127.0.0.1:http" has no port from 0 to 65535 (write host:port, such as 127.0.0.1:8080)`}},
		"no host": {`{listen: "a b:80"}`,
			[]string{`listen: "a b:80" has no valid host (write a name, an IPv4 address or an IPv6 address in brackets)`}},
		"metrics on the data plane": {`{listen: "127.0.0.1:80", metrics: {listen: "127.0.0.1:80"}}`,
			[]string{fmt.Sprintf(port, "127.0.0.1:80", "listen", "127.0.0.1:80")}},
		"metrics on the admin plane": {`{metrics: {listen: "localhost:8081"}}`,
			[]string{fmt.Sprintf(port, "localhost:8081", "admin.listen", "127.0.0.1:8081")}},
		"metrics on the port of another": {`{listen: "127.0.0.1:80", metrics: {listen: ":80", insecure: true}}`,
			[]string{fmt.Sprintf(port, ":80", "listen", "127.0.0.1:80"), fmt.Sprintf(read, ":80")}},
		"planes on one port": {`{listen: "0.0.0.0:80", insecure: true, admin: {listen: "127.0.0.1:80"}}`,
			[]string{fmt.Sprintf(open, "", "0.0.0.0:80"),
				`admin.listen: "127.0.0.1:80" uses the same port as listen, "0.0.0.0:80": only one of them can be opened (choose another port, or use exactly the same address to serve both planes on it)`}},
		"planes on two addresses": {`{listen: "127.0.0.1:80", admin: {listen: "127.0.0.2:80"}, metrics: {listen: "[::1]:80"}}`, nil},
		"metrics on every interface": {`{metrics: {listen: ":9090"}}`,
			[]string{`metrics.listen: ":9090" is not loopback and has no TLS: names of tenants, models and workers would cross the network in plain text (set metrics.insecure: true if the network protects them, or remove the key to serve /metrics on the admin plane)`}},
		"metrics with the word": {`{metrics: {listen: ":9090", insecure: true}}`,
			[]string{fmt.Sprintf(read, ":9090")}},
		"no keys and metrics elsewhere": {`{metrics: {listen: ":9090", insecure: true}, auth: {required: false}}`,
			[]string{fmt.Sprintf(read, ":9090"),
				`auth.required: false requires loopback addresses, but metrics.listen is ":9090" (set auth.required: true and add keys, or listen only on 127.0.0.1)`}},
		"no keys on loopback": {`{auth: {required: false}}`, nil},
		"no keys beyond loopback": {`{listen: ":80", insecure: true, auth: {required: false}}`,
			[]string{fmt.Sprintf(open, "", ":80"),
				`auth.required: false requires loopback addresses, but listen is ":80" (set auth.required: true and add keys, or listen only on 127.0.0.1)`}},
		"no keys and admin elsewhere": {`{admin: {listen: ":80", insecure: true}, auth: {required: false}}`,
			[]string{fmt.Sprintf(open, "admin.", ":80"),
				`auth.required: false requires loopback addresses, but admin.listen is ":80" (set auth.required: true and add keys, or listen only on 127.0.0.1)`}},
		"a certificate without its key": {`{tls: {cert: x}}`,
			[]string{`tls.key: missing, but cert is set (set the path of the private key's PEM file)`}},
		"a key without its certificate": {`{admin: {tls: {key: x}}}`,
			[]string{`admin.tls.cert: missing, but key is set (set the path of the certificate's PEM file)`}},
		"files that are not there": {`{tls: {cert: /nowhere/a, key: /nowhere/b}}`,
			[]string{`tls.cert: cannot read "/nowhere/a": no such file or directory (relative paths start at the working directory of the process)`, `tls.key: cannot read "/nowhere/b": no such file or directory (relative paths start at the working directory of the process)`}},
		"files that are no certificates": {`{tls: {cert: check.go, key: check.go}}`,
			[]string{`tls.cert: the certificate "check.go" does not load with its key: tls: failed to find any PEM data in certificate input (check that both are PEM files of the same pair)`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			src := "{" + strings.TrimSuffix(strings.TrimPrefix(c.src, "{"), "}")
			if !strings.Contains(src, "auth:") {
				src += ", " + strings.TrimSpace(keys)
			}
			src += ", " + strings.TrimSpace(small) + "}"
			var got []string
			for _, line := range problemsOf(t, src, nil) {
				_, line, _ = strings.Cut(line, ": ")
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestInvalidFilesAreRejected(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), c-1)
	}
	cases := map[string]struct{ src, want string }{
		"a tab":           {"listen: a\nadmin:\n\tlisten: b\n", `3:1: a tab in the indentation (indent with spaces)`},
		"an open bracket": {"tiers: [\n", `1:1: invalid YAML: did not find expected node content`},
		"a variable in a section": {"a: 1\nauth: { keys: [ { name: me, sha256: ${DIGEST} } ] }\n",
			`2:37: ${DIGEST} needs quotes inside { } and [ ] (write "${DIGEST}")`},
		"a variable in a list":       {"hosts: [a, ${B}]\n", `1:12: ${B} needs quotes inside { } and [ ] (write "${B}")`},
		"a variable in lines":        {"tiers: [ {\n  name: a,\n  model: x-${M} } ]\n", `3:12: ${M} needs quotes`},
		"a variable with a default":  {"hosts: [ ${B:-b} ]\n", `1:10: ${B:-…} needs quotes inside { } and [ ] (write "${B:-…}")`},
		"the second of three":        {"x: ${A}\ny: [ ${B} ]\nz: [ \"${C}\" ]\n", `2:6: ${B} needs quotes`},
		"a variable and other fault": {"x: ${A}\ny: [ b\n", `1:1: invalid YAML: `},
		"a control character":        {"listen: \x01\n", `1:1: invalid YAML: control characters are not allowed`},
		"two documents": {keys + small + "---\nlisten: x\n",
			`3:1: a second document starts here (remove the ---: a configuration is one document)`},
		"not UTF-8": {keys + "listen: ä\xff\n" + small, `2:10: the file is not UTF-8 (save it as UTF-8)`},
		"a list":    {"- a\n", `1:1: want a section of keys, got a list`},
		"a policy's name alone": {keys + small + "policy: kv_aware\n",
			`3:9: policy: want a section of keys, got a single value (write { name: kv_aware })`},
		"a key twice": {keys + small + "insecure: false\nlog: {level: info, level: info}\n",
			`4:20: log.level: the key appears twice, first in line 4 (remove one of them)`},
		"a merge key": {keys + small + "log: {<<: {level: info}}\n",
			`3:7: log: merge keys (<<) are not supported (write the keys out; an alias may replace only a whole value)`},
		"an alias within itself": {keys + small + "cors: &c {origins: [*c]}\n",
			`3:7: cors.origins[0]: want a string, got a section of keys`},
		"a list within itself": {keys + small + "cors: {origins: &c [*c]}\n",
			`3:17: cors.origins[0]: want a string, got a list`},
		"an alias bomb":        {bomb, `1:1: a: unknown key`},
		"a key that is a list": {keys + small + "? [a]\n: b\n", `3:3: want a plain name as the key, got a list`},
		"a key of escapes":     {keys + small + `"\e[31mred": 1`, `3:1: ["\x1b[31mred"]: unknown key`},
		"too long":             {strings.Repeat("# comment\n", 500_000), ` the file is longer than 4MiB`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := problemsOf(t, c.src, nil)
			if len(got) == 0 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("want first\n%s\ngot\n%s", c.want, strings.Join(got, "\n"))
			}
		})
	}
}

func TestYAMLAliasesMayReplaceWholeValues(t *testing.T) {
	f, err := Parse("f", []byte(keys+`tiers:
  - {name: a, model: m, health: &h {interval: 9s}, workers: [{name: w1, url: "http://h:1"}]}
  - {name: b, model: n, health: *h, workers: [{name: w2, url: "http://h:2"}]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Specs()[1].Health.Interval.String(); got != "9s" {
		t.Errorf("the alias gave %s", got)
	}
}

func TestYAMLAliasesCannotExpandWithoutLimit(t *testing.T) {
	src := keys + small + "cors: {origins: &a [" + strings.Repeat("x,", 1000) + "]}\npools:\n"
	src += strings.Repeat("  - {paths: *a, workers: []}\n", 60)
	_, d := decode("f", []byte(src), nil)
	if d.nodes != maxNodes+1 {
		t.Errorf("%d values were read", d.nodes)
	}
	got := problemsOf(t, src, nil)
	if len(got) != maxProblems+1 || !strings.HasSuffix(got[maxProblems], " more problems") {
		t.Errorf("%d problems, the last %s", len(got), got[len(got)-1])
	}
}

func TestSnippetsShowNoSecretsOfOtherLines(t *testing.T) {
	const rest = "auth: {required: false}\ntiers: [{name: s, model: m, workers: [{name: a, url: \"http://h:1\"}]}]\n"
	for _, src := range []string{
		"response_cache: { store: memory, encrypt: hunter2hunter2hunter2hunter2hunter2 }\n",
		"response_cache: { encrypt: hunter2hunter2hunter2hunter2hunter2, stoer: redis }\n",
		"response_cache:\n  encrypt: hunter2hunter2hunter2hunter2hunter2\n  stoer: redis\n",
		"learning: { hash_key: hunter2 }\n", "learning:\n  hash_key: hunter2hunter2hunter2\n  modle: x\n",
		"response_cache:\n  encrypted: hunter2hunter2hunter2hunter2hunter2\n",
		"policy: { name: lmcache_aware, controller_api_key: hunter2 }\n",
	} {
		f, err := Parse("config.yaml", []byte(src+rest), nil)
		var problems Problems
		if !errors.As(err, &problems) {
			problems = f.Warnings()
		}
		var out bytes.Buffer
		if err := problems.Format(&out, []byte(src+rest)); err != nil || !strings.Contains(out.String(), "***") ||
			strings.Contains(out.String(), "hunter2") {
			t.Errorf("%s\n%s%v", src, out.String(), err)
		}
	}
}

func TestSnippetMarksTheColumnAndHidesSecrets(t *testing.T) {
	src := `admin: {keys: [{name: é, sha256: ` + digestA + `}]}
tiers:
  - name: small
    model: m
    workers:
      - name: w0
        url: http://h:1
        api_key: |
          hunter2
          hunter3
        weight: heavy
auth: {required: false}
`
	_, err := Parse("config.yaml", []byte(src), nil)
	var out bytes.Buffer
	var problems Problems
	errors.As(err, &problems)
	if err := problems.Format(&out, []byte(src)); err != nil {
		t.Fatal(err)
	}
	want :=
		`config.yaml:1:23: admin.keys[0].name: want a name of up to 63 lower-case letters, digits, dots, underscores and hyphens that starts with a letter or digit, got "é"
>   1 | admin: {keys: [{name: é, sha256: ` + digestA + `}]}
                              ^

config.yaml:8:18: tiers[0].workers[0].api_key: the file must not contain secrets (set it in an environment variable and name the variable in api_key_env)
    7 |         url: http://h:1
>   8 |         api_key: ***
                         ^

config.yaml:11:17: tiers[0].workers[0].weight: want an integer from 0 to 100, got "heavy"
   10 | ***
>  11 |         weight: heavy
                        ^
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
