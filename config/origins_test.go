package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jsonPaths returns the paths of the printed form of f, as a page that shows it computes them.
func jsonPaths(t *testing.T, f *File) map[string]bool {
	t.Helper()
	text, err := f.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		paths[path] = true
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				walk(join(path, name), value)
			}
		case []any:
			for i, value := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), value)
			}
		}
	}
	walk("", root)
	return paths
}

// ofMany has values of every kind of origin: a variable, nested lists, a map with quoted keys, an anchor.
const ofMany = `store: { sql: "postgres://u:${DB_PASSWORD:-hunter2}@${DB_HOST}/d" }
gateways: 2
auth:
  keys:
    - { name: a, sha256: ` + digestA + `, tiers: [small] }
    - name: b
      sha256: ` + digestB + `
      limits:
        rpm: 60
tiers:
  - name: small
    model: m
    health: &h
      interval: 9s
    workers:
      - { name: w0, url: "http://h:1" }
      - name: w1
        url: "http://h:2"
        weight: 3
  - name: large
    model: n
    health: *h
    workers: [ { name: w2, url: "http://h:3" } ]
models:
  auto: classify
  "gpt-4*": [ small, large ]
`

// CF-03: each value that the file writes has the line of its key. Paths are those of the printed form.
func TestOriginsAreTheLinesOfTheKeys(t *testing.T) {
	f := parsed(t, ofMany, map[string]string{"DB_PASSWORD": "correcthorse", "DB_HOST": "db.internal"})
	got := f.Origins()
	file := func(line int) Origin { return Origin{Source: "file", Line: line} }
	for path, want := range map[string]Origin{
		"store.sql":                       {Source: "environment", Line: 1, Variables: []string{"DB_HOST", "DB_PASSWORD"}},
		"gateways":                        file(2),
		"auth.keys[0].sha256":             file(5),
		"auth.keys[0].tiers":              file(5),
		"auth.keys[0].tiers[0]":           file(5),
		"auth.keys[1]":                    file(6),
		"auth.keys[1].limits.rpm":         file(9),
		"tiers[0].name":                   file(11),
		"tiers[0].health.interval":        file(14),
		"tiers[0].workers[1]":             file(17),
		"tiers[0].workers[1].weight":      file(19),
		"tiers[1].health":                 file(22),
		"tiers[1].health.interval":        file(14), // of the anchor
		"tiers[1].workers[0].url":         file(23),
		"models.auto":                     file(25),
		`models["gpt-4*"]`:                file(26),
		`models["gpt-4*"][1]`:             file(26),
		"listen":                          {},
		"tiers[0].workers[0].weight":      {},
		"classifier.mode":                 {},
		"auth.required":                   {},
		"tiers[0].workers[1].api_key_env": {},
	} {
		if diff := cmp.Diff(want, got[path]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	shown := jsonPaths(t, f)
	for path := range got {
		if !shown[path] && !strings.HasPrefix(path, "models.auto[") {
			t.Errorf("%s is not a path of the printed form", path)
		}
	}
	text, err := json.Marshal(got)
	if err != nil || strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "horse") ||
		strings.Contains(string(text), "db.internal") {
		t.Errorf("origins contain values: %s (%v)", text, err)
	}
}

// TestOriginsOfFlagsAndVariables: flags and the variable of the policy replace the file's origins.
func TestOriginsOfFlagsAndVariables(t *testing.T) {
	f := parsed(t, ofMany+"policy: { name: chwbl, epsilon: 0.5 }\nlisten: 127.0.0.1:1\n",
		map[string]string{"DB_HOST": "h"})
	with, err := f.WithPolicy("random")
	if err != nil {
		t.Fatal(err)
	}
	if with, err = with.WithListen("127.0.0.1:2", ""); err != nil {
		t.Fatal(err)
	}
	got := with.Origins()
	if got["policy.name"].Source != "environment" || got["policy.name"].Variables[0] != PolicyVariable ||
		got["policy.epsilon"].Source != "" || got["listen"].Source != "flag" || got["admin.listen"].Source != "" {
		t.Errorf("%+v", got)
	}
	if before := f.Origins(); before["policy.name"].Line != 27 || before["listen"].Line != 28 {
		t.Errorf("the file's own origins changed: %+v, %+v", before["policy.name"], before["listen"])
	}
	started, err := FromFlags([]string{"m"}, []string{"http://h:1"}, nil, "", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	got = started.Origins()
	for path, want := range map[string]string{"tiers[0].workers[0].url": "flag", "admin.listen": "flag", "listen": "",
		"auth.required": "flag", "gateways": ""} {
		if got[path].Source != want {
			t.Errorf("%s is from %q, want %q", path, got[path].Source, want)
		}
	}
	if empty := Default(); len(empty.Origins()) != 0 {
		t.Error("defaults have origins")
	}
}

// TestOriginsAfterReload: a value that needs a restart does not have the line of the new value.
func TestOriginsAfterReload(t *testing.T) {
	variables := map[string]string{"DB_HOST": "h", "PORT": "4"}
	old := parsed(t, "listen: 127.0.0.1:${PORT}\n"+ofMany, variables)
	moved := strings.Replace(ofMany, "gateways: 2", "gateways: 3\nlisten: 127.0.0.1:2", 1)
	next := parsed(t, "# a comment\n\n"+moved, variables)
	got := next.KeepRestartOnly(old).Origins()
	if o := got["listen"]; o.Source != "environment" || o.Line != 0 || o.Variables[0] != "PORT" ||
		!strings.Contains(o.Detail, "restart") {
		t.Errorf("listen is %+v", o)
	}
	if got["gateways"].Line != 4 || got["store.sql"].Line != 3 {
		t.Errorf("gateways is %+v, store.sql is %+v", got["gateways"], got["store.sql"])
	}
	gone := parsed(t, ofMany, variables).KeepRestartOnly(old).Origins()["listen"]
	if gone.Source != "environment" || gone.Line != 0 {
		t.Errorf("a removed key that still applies is %+v", gone)
	}
	added := old.KeepRestartOnly(parsed(t, ofMany, variables)).Origins()["listen"]
	if added.Source != "default" || !strings.Contains(added.Detail, "restart") {
		t.Errorf("a new key that does not apply yet is %+v", added)
	}
}

func TestWorkerPathIsOfTheEntry(t *testing.T) {
	f := parsed(t, ofMany, map[string]string{"DB_HOST": "h"})
	for name, want := range map[string]string{"w1": "tiers[0].workers[1]", "w2": "tiers[1].workers[0]", "w3": ""} {
		if got := f.WorkerPath(name); got != want {
			t.Errorf("%s is at %q, want %q", name, got, want)
		}
	}
}
