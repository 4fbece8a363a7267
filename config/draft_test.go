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

// live is the configuration with which these tests compare their drafts.
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
	liveEnv = map[string]string{"PW": "hunter2-hunter2", "KEY_A": digestA, "K": "worker-key", "OTHER": "other-secret"}
)

// changed returns the changes of a draft, one per line.
func changed(t *testing.T, f, draft *File) []string {
	t.Helper()
	lines := []string{}
	for _, c := range Changes(f, draft) {
		lines = append(lines, fmt.Sprintf("%s %s: %s → %s", c.Op, c.Path, c.Old, c.New))
	}
	return lines
}

// TestDraftIsACompleteConfiguration: absent keys have their defaults, and the live
// configuration does not change.
func TestDraftIsACompleteConfiguration(t *testing.T) {
	f := parsed(t, live, liveEnv)
	before := string(printed(f))
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"the live file": {"", "", []string{}},
		"a weight": {`name: w1, `, `name: w1, weight: 3, `,
			[]string{"replace tiers[small].workers[w1].weight: 1 → 3"}},
		"another policy": {`chwbl, epsilon: 0.5`, `least_load`,
			[]string{"replace policy.name: chwbl → least_load", "remove policy.epsilon: 0.5 → "}},
		"a default again": {`price: {input: 1, output: 2}, `, "",
			[]string{"remove tiers[large].price.input: 1 → ", "remove tiers[large].price.output: 2 → "}},
		"a limit of a key": {`sha256: ` + digestC, `limits: {rpm: 30}, sha256: ` + digestC,
			[]string{"add auth.keys[b].limits.rpm:  → 30"}},
		"another store": {`store: {sql: "postgres://u:${PW}@h/db", redis`, `store: {redis`,
			[]string{"replace store.sql: postgres://u:***@h/db → sqlite://tierway.db"}},
		"a worker's secret": {`api_key_env: K`, `api_key_env: NEW_KEY`,
			[]string{"replace tiers[small].workers[w0].api_key_env: K → NEW_KEY"}},
		"a moved variable": {`{name: a, sha256: ` + digestB + `, limits: {rpm: 60}}`, `{name: c, sha256: "` + digestB + `"}`,
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			draft, err := f.Draft(t.Context(), []byte(strings.Replace(live, c.old, c.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, changed(t, f, draft)); c.want != nil && diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if after := string(printed(f)); before != after {
				t.Errorf("the live configuration changed:\n%s", cmp.Diff(before, after))
			}
		})
	}
}

// TestDraftKeepsWhatFlagsSet: an address of a flag is no change of the draft; one of the file is.
func TestDraftKeepsWhatFlagsSet(t *testing.T) {
	f, err := parsed(t, live, liveEnv).WithListen("127.0.0.1:9000", "")
	if err != nil {
		t.Fatal(err)
	}
	draft, err := f.Draft(t.Context(), []byte(live+"admin: {listen: \"127.0.0.1:9001\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"replace admin.listen: 127.0.0.1:8081 → 127.0.0.1:9001"}
	if diff := cmp.Diff(want, changed(t, f, draft)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDraftHasTheErrorsOfAFile: a draft has the same problems at the same lines.
func TestDraftHasTheErrorsOfAFile(t *testing.T) {
	f := parsed(t, live, liveEnv)
	for _, text := range []string{"", "tiers: [", "teirs: []\ntiers:\n  - {name: small, wieght: 3}\n",
		keys + small + "listen: \":80\"\n", "retry: {attempts: }\n" + keys + small,
		"retry: !!map {attempts: 1}\nqueue: {<<: {max_depth: 1}}\n",
		"tiers: [{name: small, workers: [{name: w0, api_key: sk-1}]}]\n",
		"x: [" + strings.Repeat("1, ", maxNodes) + "]",
		keys + small + "store: {redis: x}\ndecisions:\n  max_size: 2MiB\ngateways: 2\n"} {
		_, want := Parse(draftName, []byte(text), nil)
		draft, err := f.Draft(t.Context(), []byte(text))
		if want == nil || draft != nil || err == nil || err.Error() != want.Error() {
			t.Errorf("%.40q: -want +got:\n%s", text, cmp.Diff(fmt.Sprint(want), fmt.Sprint(err)))
		}
	}
	text := keys + small + "decisions:\n  max_size: 2MiB\n"
	draft, err := f.Draft(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if file := parsed(t, text, nil); len(file.Warnings()) != 1 ||
		draft.Warnings()[0].Message != file.Warnings()[0].Message || draft.Hash() != file.Hash() {
		t.Errorf("%v, and of a file %v", draft.Warnings(), file.Warnings())
	}
}

// TestDraftReadsOnlyItsText: it reads no file, and only the environment variables that the
// live file uses. It shows no value of either.
func TestDraftReadsOnlyItsText(t *testing.T) {
	const way = " (write the value; ${…} is allowed only where the live file has the same text under the same key)"
	f := parsed(t, live, liveEnv)
	draft := "models: {x: \"${OTHER}\", y: \"${NOBODY:-small}\"}\nauth: {keys: [{name: b, sha256: \"${KEY_A}\"}, {name: " +
		"\"${KEY_A}\", sha256: x}]}\ncors: {origins: [\"${OTHER}\"]}\n" +
		"tls: {cert: /etc/hosts, key: /etc/shadow}\ntiers: [{name: small, model: m, workers: [{name: w0, url: " +
		"\"http://${PW}\", api_key_env: OTHER}]}]\n"
	_, err := f.Draft(t.Context(), []byte(draft))
	want := strings.Join([]string{
		`draft:1:13: models.x: a draft may not read the environment variable OTHER` + way,
		`draft:1:28: models.y: a draft may not read the environment variable NOBODY` + way,
		`draft:2:53: auth.keys[1].name: a draft may not read the environment variable KEY_A` + way,
		`draft:2:73: auth.keys[1].sha256: want 64 hex digits, got 1 characters`,
		`draft:3:18: cors.origins[0]: a draft may not read the environment variable OTHER` + way,
		`draft:5:59: tiers[0].workers[0].url: a draft may not read the environment variable PW` + way}, "\n")
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var ps Problems
	errors.As(err, &ps)
	var out strings.Builder
	if err := ps.Format(&out, []byte(draft)); err != nil {
		t.Fatal(err)
	}
	same, err := f.Draft(t.Context(), []byte(live))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := same.redacted()
	if err != nil {
		t.Fatal(err)
	}
	// A copy of another type does not have the methods that redact the printed form.
	for _, out := range []string{out.String(), string(shown), fmt.Sprintf("%v %+v %#v", same, same, same),
		fmt.Sprintf("%+v %#v", *f, *same)} {
		for name, secret := range liveEnv {
			if strings.Contains(out, secret) && (name != "KEY_A" && name != "PW" || !strings.Contains(out, "config.File{") &&
				!strings.Contains(out, "{Listen")) {
				t.Errorf("a secret was printed: %s", out)
			}
		}
	}
}

func TestDraftKeepsThePathOfItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := keys + small + "decisions: {file: d.jsonl}\nstore: {sql: \"sqlite://x.db\"}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	draft, err := f.Draft(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := changed(t, f, draft); len(got) > 0 {
		t.Error(got)
	}
}
