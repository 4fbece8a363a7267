package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/openai"
	"tierway/routing"
	"tierway/tenants"
	"tierway/workers"
	"tierway/workers/kvcache"
)

func TestExampleLoads(t *testing.T) {
	env := environment(map[string]string{"TIERWAY_KEY_SHA256": digestA})
	f, err := Load("../config.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Warnings()) > 0 {
		t.Error(f.Warnings())
	}
	if len(f.Tiers) != 3 || len(f.Specs()) != 7 {
		t.Errorf("%d tiers, %d workers", len(f.Tiers), len(f.Specs()))
	}
	if _, _, err := tenants.FromConfig(f.Auth.Keys); err != nil {
		t.Error(err)
	}
	if _, err := Load("../config.yaml", nil); err == nil ||
		!strings.Contains(err.Error(), "TIERWAY_KEY_SHA256 is not set") {
		t.Errorf("without a key the example must not load: %v", err)
	}
}

func TestErrorNamesTheFileThatCannotBeRead(t *testing.T) {
	_, err := Load("/nowhere/config.yaml", nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/config.yaml") {
		t.Error(err)
	}
}

// inherited sets values on each level that the levels above set too.
const inherited = keys + `policy: {name: round_robin}
queue: {heartbeat_after: 20s, max_depth: 50}
saturation: {stale_after: 8s}
health: {path: /up, interval: 8s, timeout: 4s, down_after: 5}
timeouts: {connect: 3s}
tiers:
  - name: a
    model: m
    workers: [{name: a0, url: "http://h:1"}, {name: a1, url: "http://h:2", weight: 0, api_key_env: K}]
  - name: b
    model: n
    engine: vllm
    serves: [chat]
    policy: {name: least_load}
    queue: {heartbeat_after: 1s, max_wait: {batch: 0s}}
    saturation: {kv_usage: 0}
    health: {interval: 6s, up_after: 1}
    workers: [{name: b0, url: "http://h:3", health: {timeout: 1s, path: "off"}}]
pools:
  - {name: c, model: o, models: [p], serves: [rerank, score], workers: [{name: c0, url: "http://h:4"}, {name: c1, url: "http://h:5"}]}
  - {name: d, paths: [/v9/*], workers: [{name: d0, url: "unix:///d.sock"}]}
`

func TestAbsentKeysAreInherited(t *testing.T) {
	f, err := Parse("f", []byte(inherited), environment(map[string]string{"K": "worker-key"}))
	if err != nil {
		t.Fatal(err)
	}
	models := map[string]string{"a": "m", "b": "n", "c": "o"}
	spec := func(name, url, pool string, weight int, engine openai.Engine, h workers.Health) workers.Spec {
		return workers.Spec{Config: workers.Config{Name: name, URL: url, Weight: &weight, Health: &h,
			KVEvents: &kvcache.Config{Enabled: new(true)}},
			Pool: pool, Model: models[pool], Engine: string(engine), ConnectTimeout: 3 * time.Second,
			StaleAfter: 8 * time.Second}
	}
	file := workers.Health{Path: "/up", Interval: 8 * time.Second, Timeout: 4 * time.Second, DownAfter: 5, UpAfter: 2}
	b := workers.Health{Path: "off", Interval: 6 * time.Second, Timeout: time.Second, DownAfter: 5, UpAfter: 1}
	a1 := spec("a1", "http://h:2", "a", 0, "auto", file)
	a1.APIKeyEnv, a1.Key = "K", "worker-key"
	waiting, full := waits(), saturates()
	waiting.MaxDepth, full.StaleAfter = 50, 8*time.Second
	waitingB, fullB := waiting, full
	waitingB.MaxWait[2], fullB.KVUsage = 0, 0
	want := []Pool{
		{Name: "a", Model: "m", Tier: true, Engine: openai.EngineAuto,
			Serves: []openai.Dialect{openai.Chat, openai.Completions, openai.Responses, openai.Messages, openai.Tokenize},
			Models: []string{"m"}, Policy: routing.Config{Name: "round_robin"}, Queue: waiting, Saturation: full,
			HeartbeatAfter: 20 * time.Second,
			Workers:        []workers.Spec{spec("a0", "http://h:1", "a", 1, "auto", file), a1}},
		{Name: "b", Model: "n", Tier: true, Engine: openai.EngineVLLM, Serves: []openai.Dialect{openai.Chat},
			Models: []string{"n"}, Policy: routing.Config{Name: "least_load"}, Queue: waitingB, Saturation: fullB,
			HeartbeatAfter: time.Second,
			Workers:        []workers.Spec{spec("b0", "http://h:3", "b", 1, "vllm", b)}},
		{Name: "c", Model: "o", Engine: openai.EngineAuto, Serves: []openai.Dialect{openai.Rerank, openai.Score},
			Models: []string{"o", "p"}, Policy: routing.Config{Name: "round_robin"}, Queue: waiting, Saturation: full,
			HeartbeatAfter: 20 * time.Second,
			Workers: []workers.Spec{spec("c0", "http://h:4", "c", 1, "auto", file),
				spec("c1", "http://h:5", "c", 1, "auto", file)}},
		{Name: "d", Engine: openai.EngineAuto, Paths: []string{"/v9/*"}, Policy: routing.Config{Name: "round_robin"},
			Queue: waiting, Saturation: full, HeartbeatAfter: 20 * time.Second,
			Workers: []workers.Spec{spec("d0", "unix:///d.sock", "d", 1, "auto", file)}},
	}
	same := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(want, f.ResolvedPools(), cmpopts.EquateEmpty(), same); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := f.catalogConfig(); got.Default != "a" || len(got.Targets) != 4 || !got.Targets[1].Tier ||
		got.Targets[2].Tier {
		t.Errorf("the catalog is %+v", got)
	}
}

func TestResolvedPoolsDoNotShareMemoryWithTheFile(t *testing.T) {
	f, err := Parse("f", []byte(inherited), environment(map[string]string{"K": "k"}))
	if err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(f)
	for _, p := range f.ResolvedPools() {
		for i := range p.Models {
			p.Models[i] = "changed"
		}
		for _, w := range p.Workers {
			*w.Weight, w.Health.Path = 7, "/changed"
		}
	}
	if after := fmt.Sprint(f); before != after {
		t.Errorf("the file changed:\n%s", cmp.Diff(before, after))
	}
}

func TestFromFlagsBuildsAConfiguration(t *testing.T) {
	f, err := FromFlags([]string{"m"}, []string{"http://127.0.0.1:8000", " http://127.0.0.1:8001"}, nil, "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	p := f.ResolvedPools()
	if len(p) != 1 || p[0].Name != "default" || !p[0].Tier || p[0].Model != "m" || len(p[0].Workers) != 2 ||
		f.Auth.Required || f.Listen != "127.0.0.1:0" || f.Admin.Listen != "127.0.0.1:8081" {
		t.Errorf("%v", f)
	}
	f, err = FromFlags([]string{"a:7b=small", "b:70b=large"}, []string{"http://127.0.0.1:8000", "http://127.0.0.1:8001"},
		nil, "", "")
	if err != nil || len(f.Warnings()) > 0 {
		t.Fatal(err, f.Warnings())
	}
	var got []string
	for _, p := range f.ResolvedPools() {
		for _, w := range p.Workers {
			got = append(got, p.Name+" "+p.Model+" "+w.Name+" "+w.URL)
		}
	}
	if want := []string{"small a:7b small-0 http://127.0.0.1:8000", "small a:7b small-1 http://127.0.0.1:8001",
		"large b:70b large-0 http://127.0.0.1:8000", "large b:70b large-1 http://127.0.0.1:8001"}; !slices.Equal(got, want) {
		t.Errorf("two models are %q, want %q", got, want)
	}
	cases := map[string]struct {
		models        []string
		listen, admin string
		urls          []string
		want          string
	}{
		"nothing": {nil, "", "", nil, `command line: --model: missing (set the model that the workers serve)
command line: --worker-urls: missing (set the workers' URLs, such as --worker-urls http://127.0.0.1:8000)`},
		"bad workers": {[]string{"m"}, "", "", []string{"h:1", "", "http://h:2", "http://h:2/"},
			`command line: --worker-urls[1]: is empty (remove the extra comma)
command line: --worker-urls[0]: "h:1" has no scheme; write http://host:port, https://host or unix:///path
command line: --worker-urls[3]: "http://h:2/" is already the URL of --worker-urls[2] (remove one of them: a server appears once per tier or pool)`},
		"a model without its tier": {[]string{"a=small", "b"}, "", "", []string{"http://h:1"},
			`command line: --model[1]: "b" is not MODEL=TIER (write the model and its tier, such as qwen2.5:7b=small)`},
		"an empty model": {[]string{""}, "", "", []string{"http://h:1"},
			`command line: --model: is empty (set the model that the workers serve)`},
		"a tier twice": {[]string{"a=small", "b=small"}, "", "", []string{"http://h:1"},
			`command line: --model[1]: the tier "small" already has the model of --model[0] (choose a different tier for each model)`},
		"a tier that is no name": {[]string{"a=Small", "b=large"}, "", "", []string{"http://h:1"},
			`command line: --model[0]: the tier "Small" is not a valid name (write ` + forms["name"].want + `)`},
		"no tier": {[]string{"a=", "b=large"}, "", "", []string{"http://h:1"},
			`command line: --model[0]: "a=" is not MODEL=TIER (write the model and its tier, such as qwen2.5:7b=small)`},
		"not loopback": {[]string{"m"}, ":8080", "0.0.0.0:1", []string{"http://h:1"},
			`command line: --listen: ":8080" is not loopback and has no TLS: keys and prompts would cross the network in plain text (without a configuration file, addresses must be loopback: write a file with keys and pass it with --config)
command line: --admin-listen: "0.0.0.0:1" is not loopback and has no TLS: keys and prompts would cross the network in plain text (without a configuration file, addresses must be loopback: write a file with keys and pass it with --config)`},
		"no address": {[]string{"m"}, "x", "", []string{"http://h:1"},
			`command line: --listen: "x" is not an address (write host:port, such as 127.0.0.1:8080 or :8080 for every interface)`},
	}
	for name, c := range cases {
		f, err := FromFlags(c.models, c.urls, nil, c.listen, c.admin)
		if f != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, fmt.Sprint(err)))
		}
	}
}

func TestPrintedFormsContainNoSecret(t *testing.T) {
	src := keys + `admin: {keys: [{name: ops, sha256: ` + digestB + `}]}
tiers: [{name: a, model: m, workers: [{name: w, url: "http://h:1", api_key_env: K}]}]
`
	f, err := Parse("f", []byte(src), environment(map[string]string{"K": "worker-key"}))
	if err != nil {
		t.Fatal(err)
	}
	if f.Specs()[0].Key != "worker-key" {
		t.Error("the worker's key did not reach its Spec")
	}
	asJSON, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{fmt.Sprintf("%v", f), fmt.Sprintf("%+v", f), fmt.Sprintf("%#v", f), fmt.Sprintf("%s", f),
		fmt.Sprintf("%d", f), string(asJSON)} {
		if strings.Contains(out, "worker-key") || strings.Contains(out, digestA) || strings.Contains(out, digestB) {
			t.Errorf("a secret was printed: %s", out)
		}
		if !strings.Contains(out, digestA[:8]+"…") || !strings.Contains(out, "api_key_env") {
			t.Errorf("the configuration was not printed: %s", out)
		}
	}
}

// drawFile draws a File in which every key may be set. The decoder accepts each value; their combination
// may be invalid.
func drawFile(t *rapid.T) File {
	f := Default()
	draw(t, reflect.ValueOf(&f).Elem(), key{})
	return f
}

func draw(t *rapid.T, v reflect.Value, k key) {
	if v.Kind() != reflect.Struct && !k.required && rapid.Bool().Draw(t, "keep") {
		return
	}
	text := rapid.StringMatching(`[ -~äß€]{1,8}|\$\{[A-Z]*\}|\$+\{|true|1|~|- a|0x1|a: b`)
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(rapid.Int64Range(1, 1e15).Draw(t, "duration"))
	case v.Type() == reflect.TypeFor[Size]():
		v.SetInt(rapid.Int64Range(1, 1<<62).Draw(t, "size"))
	case v.Type() == reflect.TypeFor[tenants.Money]():
		v.SetInt(rapid.Int64Range(0, int64(1e9*tenants.Unit)).Draw(t, "money"))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		k.required = true
		draw(t, v.Elem(), k)
	case v.Kind() == reflect.Struct:
		for k, field := range members(v) {
			draw(t, field, *k)
		}
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, name := range rapid.SliceOfN(rapid.StringMatching(`[a-z*."]{0,5}`), 0, 3).Draw(t, "names") {
			item := reflect.New(v.Type().Elem()).Elem()
			draw(t, item, key{min: k.min, max: k.max, above: k.above, form: k.form, required: true})
			v.SetMapIndex(reflect.ValueOf(name), item)
		}
	case v.Kind() == reflect.Slice:
		n := rapid.IntRange(0, 3).Draw(t, "items")
		if k.required || v.Type().Elem().Kind() == reflect.Struct {
			n++
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			draw(t, v.Index(i), key{words: k.words, form: k.form, required: k.words != nil || forms[k.form].pattern != nil ||
				k.required})
		}
	case v.Kind() == reflect.String && k.words != nil:
		v.SetString(rapid.SampledFrom(k.words).Draw(t, "word"))
	case v.Kind() == reflect.String && forms[k.form].pattern != nil:
		v.SetString(rapid.StringMatching(strings.Trim(forms[k.form].pattern.String(), "^$")).Filter(func(s string) bool {
			return isForm(k.form, s)
		}).Draw(t, "form"))
	case v.Kind() == reflect.String:
		v.SetString(text.Filter(func(s string) bool { return s != "" || !k.required }).Draw(t, "text"))
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case v.CanInt():
		v.SetInt(rapid.Int64Range(int64(k.min), int64(k.max)).Draw(t, "int"))
	case v.Kind() == reflect.Float64:
		v.SetFloat(rapid.Float64Range(k.min, k.max).Filter(k.within).Draw(t, "float"))
	}
}

func TestPrintedFormRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawFile(t)
		src := printed(&want)
		got, d := decode("f", src, nil)
		if len(d.problems) > 0 {
			t.Fatalf("%v\n%s", d.problems, src)
		}
		if diff := cmp.Diff(want, *got, cmpopts.IgnoreUnexported(File{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("-want +got:\n%s\n%s", diff, src)
		}
	})
}

func TestDefaultEqualsAnEmptyFile(t *testing.T) {
	want := Default()
	for _, src := range []string{"", "# nothing\n", "{}", "log:\n", string(printed(&want))} {
		got, d := decode("f", []byte(src), nil)
		if diff := cmp.Diff(want, *got, cmpopts.IgnoreUnexported(File{})); diff != "" || len(d.problems) > 0 {
			t.Errorf("%q: %v\n%s", src, d.problems, diff)
		}
	}
}

func TestSizesAreParsedAndPrinted(t *testing.T) {
	cases := map[string]struct {
		want Size
		ok   bool
	}{
		"33554432": {33554432, true}, "32MiB": {32 << 20, true}, "64KB": {64000, true}, "1 GiB": {1 << 30, true},
		"7B": {7, true}, "2GB": {2e9, true}, "": {}, "MiB": {}, "1.5MiB": {}, "9223372036854775807": {1<<63 - 1, true},
		"9007199254740993GiB": {}, "1e6": {}, "1mib": {}, "0x10": {}, "-1KB": {-1000, true},
	}
	for text, c := range cases {
		if got, ok := parseSize(text); got != c.want || ok != c.ok {
			t.Errorf("%q is %d, %t", text, got, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := Size(rapid.Int64Range(0, 1<<62).Draw(t, "size"))
		if got, ok := parseSize(want.String()); !ok || got != want {
			t.Fatalf("%d was written as %s and read as %d", want, want, got)
		}
	})
}

func TestUnknownKeysGetASuggestion(t *testing.T) {
	known := []string{"listen", "tls", "admin", "auth", "models", "pools", "least_load"}
	cases := map[string]string{
		"lissten": "listen", "listne": "listen", "Listen": "listen", "modles": "models", "adm": "", "authn": "auth",
		"tsl": "tls",
		"x":   "", "": "", "leastload": "least_load", "workers": "", "polos": "pools", "lstn": "",
	}
	for word, want := range cases {
		if got := nearest(word, known); got != want {
			t.Errorf("%q: want %q, got %q", word, want, got)
		}
	}
	if got := edits("chbwl", "chwbl"); got != 1 {
		t.Errorf("a swap counts %d", got)
	}
}
