package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// parsed parses a valid configuration.
func parsed(t *testing.T, src string, vars map[string]string) *File {
	t.Helper()
	f, err := Parse("f", []byte(src), environment(vars))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// grown is the configuration that the cases of TestChangesListEachDifference change.
const grown = `auth: {keys: [{name: a, sha256: ` + digestA + `, limits: {rpm: 60}}]}
tiers:
  - {name: small, model: m, workers: [{name: w0, url: "http://h:1", api_key_env: K}, {name: w1, url: "http://h:2"}]}
  - {name: large, model: n, price: {input: 1, output: 2}, policy: {name: random}, workers: [{name: w2, url: "http://h:3"}]}
models: {auto: classify, "gpt-4*": small}
`

func TestChangesListEachDifference(t *testing.T) {
	with := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(grown) }
	cases := map[string]struct {
		src  string
		want []string
	}{
		"nothing": {grown, nil},
		"equal meaning": {"# a comment\nlisten: 127.0.0.1:8080\ngateways: 1\n" + with(
			`rpm: 60}`, `rpm: 60, tpm: 0}, priority: interactive, weight: 1`,
			`{name: w0, url: "http://h:1", api_key_env: K}, {name: w1, url: "http://h:2"}`,
			`{name: w1, url: "http://h:2", weight: 1, priority: 0}, {name: w0, url: "http://h:1", api_key_env: K, health: {path: auto}}`,
			`output: 2}`,
			`output: 2, cached_input: 1}, engine: auto, health: {}, queue: {aged_share: 0.2, max_bytes: 262144KiB, age: {interactive: 0s}}, saturation: {}`), nil},
		"a limit": {with("rpm: 60", "rpm: 30, month_money: 12.50"), []string{
			"replace auth.keys[a].limits.rpm: 60 → 30 (live)",
			"add auth.keys[a].limits.month_money:  → 12.5 (live)"}},
		"a tenant": {with("auth: {keys: [", "auth: {keys: [{name: b, sha256: "+digestB+", tiers: []}, "), []string{
			"add auth.keys[b]:  → {name: b, sha256: bbbbbbbb…, tiers: [], isolate_cache: false, de… (live)"}},
		"a second key of a tenant": {with("auth: {keys: [", "auth: {keys: [{name: a, sha256: "+digestB+
			", limits: {rpm: 60}}, "), []string{
			"add auth.keys[a bbbbbbbb…]:  → {name: a, sha256: bbbbbbbb…, limits: {rpm: 60}, isolate_cache: f… (live)"}},
		"another key of a tenant": {with(digestA, digestB), []string{
			"replace auth.keys[a].sha256: aaaaaaaa… → bbbbbbbb… (live)"}},
		"a worker is added": {with("tiers:\n  - {name: small, model: m, workers: [",
			"tiers:\n  - {name: small, model: m, workers: [{name: x, url: \"http://h:9\"}, "), []string{
			"add tiers[small].workers[x]:  → {name: x, url: 'http://h:9'} (live)"}},
		"a worker is removed": {with(`, {name: w1, url: "http://h:2"}`, ""), []string{
			"remove tiers[small].workers[w1]: {name: w1, url: 'http://h:2'} →  (drain)"}},
		"a worker has a higher weight": {with(`"http://h:2"`, `"http://h:2", weight: 3`), []string{
			"replace tiers[small].workers[w1].weight: 1 → 3 (live)"}},
		"a worker is elsewhere": {with(`"http://h:2"`, `"http://h:9"`), []string{
			"replace tiers[small].workers[w1].url: http://h:2 → http://h:9 (drain)"}},
		"a tier has another model": {with("name: large, model: n", "name: large, model: o"), []string{
			"replace tiers[large].model: n → o (drain)"}},
		"a worker changes tiers": {with(`, {name: w1, url: "http://h:2"}`, "", `[{name: w2,`,
			`[{name: w1, url: "http://h:2"}, {name: w2,`), []string{
			"remove tiers[small].workers[w1]: {name: w1, url: 'http://h:2'} →  (drain)",
			"add tiers[large].workers[w1]:  → {name: w1, url: 'http://h:2'} (live)"}},
		"tiers change places": {with("tiers:\n", "tiers:\n  - {name: large, model: n, price: {input: 1, output: 2}, "+
			"policy: {name: random}, workers: [{name: w2, url: \"http://h:3\"}]}\n",
			"  - {name: large, model: n, price: {input: 1, output: 2}, policy: {name: random}, workers: [{name: w2, url: "+
				"\"http://h:3\"}]}\n", ""), []string{
			"replace tiers: small, large → large, small (live)"}},
		"a tier goes": {with("  - {name: large, model: n, price: {input: 1, output: 2}, policy: {name: random}, workers: "+
			"[{name: w2, url: \"http://h:3\"}]}\n", ""), []string{
			"remove tiers[large]: {name: large, model: n, price: {input: 1, output: 2}, policy: {n… →  (drain)",
			"replace tiers: small, large → small (live)"}},
		"what tiers inherit, once": {grown + "health: {interval: 9s}\npolicy: {name: chwbl, epsilon: 0.5}\nqueue: " +
			"{heartbeat_after: 1s}\ntimeouts: {connect: 1s}\n", []string{
			"replace policy.name: kv_aware → chwbl (live)",
			"add policy.epsilon:  → 0.5 (live)",
			"replace health.interval: 5s → 9s (live)",
			"replace timeouts.connect: 2s → 1s (live)",
			"replace queue.heartbeat_after: 15s → 1s (live)"}},
		"how requests wait": {with("model: m,", "model: m, queue: {max_wait: {batch: 0s}, displace: false, max_depth: "+
			"1000}, saturation: {kv_usage: 0},") +
			"queue: {max_depth: 9, age: {batch: 40s}, max_bytes: 32MiB}\nsaturation: {waiting: 5, stale_after: 6s}\n", []string{
			"replace tiers[small].queue.max_wait.batch: 10m0s → 0s (live)",
			"replace tiers[small].queue.displace: true → false (live)",
			"replace tiers[small].saturation.kv_usage: 0.9 → 0 (live)",
			"replace queue.max_depth: 1000 → 9 (live)",
			"replace queue.age.batch: 30s → 40s (live)",
			"replace queue.max_bytes: 256MiB → 32MiB (live)",
			"replace saturation.stale_after: 5s → 6s (live)"}},
		"what a worker takes": {with(`"http://h:2"`, `"http://h:2", max_inflight: 4, max_tokens_inflight: 65536`), []string{
			"add tiers[small].workers[w1].max_inflight:  → 4 (live)",
			"add tiers[small].workers[w1].max_tokens_inflight:  → 65536 (live)"}},
		"a tenant's weight": {with("rpm: 60}", "rpm: 60}, weight: 3"), []string{
			"replace auth.keys[a].weight: 1 → 3 (live)"}},
		"a tier stops to inherit": {with("model: m,", "model: m, policy: {name: random}, health: {interval: 9s},"), []string{
			"replace tiers[small].policy.name: kv_aware → random (live)",
			"replace tiers[small].health.interval: 5s → 9s (live)"}},
		"a tier inherits": {with("policy: {name: random}, ", ""), []string{
			"replace tiers[large].policy.name: random → kv_aware (live)"}},
		"prices": {with("price: {input: 1, output: 2}", "price: {input: 1, output: 3, cached_input: 0.1}"), []string{
			"replace tiers[large].price.cached_input: 1 → 0.1 (live)",
			"replace tiers[large].price.output: 2 → 3 (live)"}},
		"aliases": {with(`auto: classify, "gpt-4*": small`, `auto: small, "gpt-5*": small`), []string{
			`replace models.auto: classify → small (live)`,
			`remove models["gpt-4*"]: small →  (live)`,
			`add models["gpt-5*"]:  → small (live)`}},
		"a map is switched off": {grown + "classifier: {prompt_tokens: {}}\n",
			[]string{"add classifier.prompt_tokens:  → {} (live)"}},
		"what waits for a restart": {grown + "listen: 127.0.0.1:1\nadmin: {listen: 127.0.0.1:2}\nlog: {level: " +
			"debug}\nstore: {sql: \"postgres://u:hunter2@h/db\", retention: 24h}\nwatch: true\n", []string{
			"replace listen: 127.0.0.1:8080 → 127.0.0.1:1 (restart)",
			"replace watch: false → true (live)",
			"replace admin.listen: 127.0.0.1:8081 → 127.0.0.1:2 (restart)",
			"replace store.sql: sqlite://tierway.db → postgres://u:***@h/db (restart)",
			"replace store.retention: 2160h0m0s → 24h0m0s (restart)",
			"replace log.level: info → debug (restart)"}},
	}
	env := map[string]string{"K": "worker-key"}
	old := parsed(t, grown, env)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range Changes(old, parsed(t, c.src, env)) {
				got = append(got, fmt.Sprintf("%s %s: %s → %s (%s)", c.Op, c.Path, c.Old, c.New, c.Effect))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestChangedSecretIsReportedAndNotShown(t *testing.T) {
	src := func(password string) string {
		return grown + "store: {sql: \"postgres://u:" + password + "@h/db?sslpassword=" + password +
			"\", redis: \"rediss://:" + password + "@h:1/2\"}\n"
	}
	old, f := parsed(t, src("hunter2"), map[string]string{"K": "worker-key"}),
		parsed(t, src("hunter3"), map[string]string{"K": "worker-kex"})
	want := []Change{
		{"store.sql", "replace", "postgres://u:***@h/db", "postgres://u:***@h/db (another value)", "restart"},
		{"store.redis", "replace", "rediss://:***@h:1/2", "rediss://:***@h:1/2 (another value)", "restart"},
		{"tiers[small].workers[w0].api_key_env", "replace", "K", "K (another value)", "live"},
	}
	if diff := cmp.Diff(want, Changes(old, f)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestChangedTokenizerIsAChange: the policy names a path, and the file at that path changes.
func TestChangedTokenizerIsAChange(t *testing.T) {
	vocabulary, err := os.ReadFile("../tokenizer/testdata/bytes.json")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	src := strings.Replace(grown, ", api_key_env: K", "", 1) + "policy: {name: kv_aware, tokenizer: " + path + "}\n"
	read := func(data []byte) *File {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return parsed(t, src, nil)
	}
	old, same, changed := read(vocabulary), read(vocabulary), read(append(vocabulary, '\n'))
	if got := Changes(old, same); len(got) > 0 {
		t.Errorf("the same file is a change: %+v", got)
	}
	got := Changes(old, changed)
	if len(got) != 1 || got[0].Path != "policy.tokenizer" || !strings.HasSuffix(got[0].New, " (another value)") {
		t.Errorf("the changes are %+v", got)
	}
	draft, err := changed.Draft(t.Context(), []byte(src))
	if err != nil || len(Changes(changed, draft)) > 0 {
		t.Errorf("the same text as a draft: %v, %+v", err, Changes(changed, draft))
	}
}

// filled sets every key below v, with one item in every list and map. All numbers and texts differ, so
// that inherited values differ too.
func filled(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), n)
	case reflect.Struct:
		for _, field := range members(v) {
			filled(field, n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		item := reflect.New(v.Type().Elem()).Elem()
		filled(item, n)
		v.SetMapIndex(reflect.ValueOf("k"), item)
	case reflect.String:
		v.SetString(fmt.Sprint("a", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n))
	default:
		v.SetInt(*n)
	}
}

// eachKey calls try once for every key below v, while the key has another value.
func eachKey(v reflect.Value, path string, try func(path string)) {
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		eachKey(v.Elem(), path, try)
		v.SetZero()
	case reflect.Struct:
		for k, field := range members(v) {
			eachKey(field, join(path, k.name), try)
		}
		return
	case reflect.Slice:
		eachKey(v.Index(0), path+"[]", try)
		v.Set(reflect.Append(reflect.MakeSlice(v.Type(), 0, 2), v.Index(0), reflect.Zero(v.Type().Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.String:
		v.SetString("b")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.5)
	default:
		v.SetInt(v.Int() + 1000)
	}
	try(path)
	v.Set(before)
}

func TestEveryChangedKeyIsReported(t *testing.T) {
	var old, f File
	filled(reflect.ValueOf(&old).Elem(), new(int64))
	filled(reflect.ValueOf(&f).Elem(), new(int64))
	// it differs from the value of tiers and pools, like numbers and texts
	old.Queue.Displace, f.Queue.Displace = new(false), new(false)
	old.HealthWeight.Enabled, f.HealthWeight.Enabled = new(false), new(false)
	for _, c := range [...]*File{&old, &f} {
		c.Tiers[0].KVEvents.Enabled, c.Pools[0].KVEvents.Enabled = new(false), new(false)
	}
	if diff := Changes(&old, &f); len(diff) > 0 {
		t.Fatalf("without any change: %v", diff)
	}
	tried := map[string]bool{}
	eachKey(reflect.ValueOf(&f).Elem(), "", func(path string) {
		tried[path] = true
		got := Changes(&old, &f)
		if len(got) == 0 {
			t.Errorf("%s was changed, and no change is told", path)
		}
		for _, c := range got {
			if c.Path == "" || c.Old == c.New || !slices.Contains([]string{"add", "remove", "replace"}, c.Op) ||
				!slices.Contains([]string{"live", "drain", "restart"}, c.Effect) {
				t.Errorf("%s: a bad change: %+v", path, c)
			}
			kept := Changes(&old, f.KeepRestartOnly(&old))
			if restart := c.Effect == EffectRestart; restart && len(kept) > 0 || !restart && len(kept) == 0 {
				t.Errorf("%s is %s, and %d changes are in force after a reload", path, c.Effect, len(kept))
			}
		}
	})
	if !tried["auth.keys[].limits.month_money"] || !tried["tiers[].workers[].health.path"] || len(tried) < 120 {
		t.Errorf("only %d keys were tried", len(tried))
	}
}

func TestConfigurationDoesNotDifferFromItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t)
		if got := Changes(&f, &f); len(got) > 0 {
			t.Fatalf("%v", got)
		}
		again, d := decode("f", printed(&f), nil)
		if len(d.problems) > 0 {
			t.Fatal(d.problems)
		}
		if got := Changes(&f, again); len(got) > 0 {
			t.Fatalf("printed and read back: %v", got)
		}
	})
}

func TestChangesAreMirrored(t *testing.T) {
	count := func(all []Change, op string) int {
		n := 0
		for _, c := range all {
			if c.Op == op {
				n++
			}
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawFile(t), drawFile(t)
		there, back := Changes(&a, &b), Changes(&b, &a)
		if len(there) != len(back) || count(there, "add") != count(back, "remove") ||
			count(there, "replace") != count(back, "replace") {
			t.Fatalf("%v there, %v back", there, back)
		}
		if fmt.Sprint(there) != fmt.Sprint(Changes(&a, &b)) {
			t.Fatal("told in another order the second time")
		}
	})
}

// drawPair draws two configurations that have some sections, workers and inherited values in common.
func drawPair(t *rapid.T) (a, b File) {
	a, b = drawFile(t), drawFile(t)
	from, to := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	for k := range members(from) {
		if rapid.IntRange(0, 3).Draw(t, "equal "+k.name) > 0 {
			to.Field(k.field).Set(from.Field(k.field))
		}
	}
	if rapid.Bool().Draw(t, "other workers") && len(a.Tiers) > 0 { // beside equal ones
		b.Tiers = slices.Clone(a.Tiers)
		b.Tiers[0].Workers = slices.Clone(b.Tiers[0].Workers)
		draw(t, reflect.ValueOf(&b.Tiers[0].Workers[0]).Elem(), key{})
	}
	return a, b
}

// TestEqualPartsMayBeLeftOutOfAComparison: Changes leaves out equal sections and equal workers.
func TestEqualPartsMayBeLeftOutOfAComparison(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawPair(t)
		shared := sharedNames(&a, &b)
		want := differences(&a, &b, newComparison(&a, shared, nil), newComparison(&b, shared, nil))
		if diff := cmp.Diff(want, Changes(&a, &b)); diff != "" {
			t.Fatalf("(-all +without equal parts):\n%s", diff)
		}
	})
}

// TestKeptValuesAreTheChangesThatNeedARestart: the others are the differences from the configuration in force.
func TestKeptValuesAreTheChangesThatNeedARestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawPair(t)
		live := slices.DeleteFunc(Changes(&a, &b), func(c Change) bool { return c.Effect == EffectRestart })
		if diff := cmp.Diff(live, Changes(&a, b.KeepRestartOnly(&a))); diff != "" {
			t.Fatalf("(-live +in force):\n%s", diff)
		}
	})
}
