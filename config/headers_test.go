package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHeadersOfWorkersAreChecked: each problem names the header and a way out, and none shows a value.
func TestHeadersOfWorkersAreChecked(t *testing.T) {
	vars := map[string]string{"K": "a-whole-key", "TOKEN": "Swordfish4", "LINES": "a\nb", "NONE": ""}
	for name, c := range map[string]struct{ pool, worker, want string }{
		"plain":       {`headers: {X-Team: a}, `, `, headers: {X-Team: b, cf-access-client-id: "${TOKEN}"}`, ""},
		"credentials": {"", `, headers: {authorization: "Basic ${TOKEN}", X-Api-Key: "${TOKEN}", api-key: x, Cookie: a=b}`, ""},
		"a key":       {"", `, api_key_env: K, headers: {authorization: "Basic Swordfish4"}`, "workers[0].headers.authorization: the worker's key is sent in this header"},
		"a key of one": {`headers: {Authorization: "Basic Swordfish4"}, `, `, api_key_env: K`,
			"tiers[0].headers.Authorization: the key of tiers[0].workers[0] is sent in this header"},
		"anthropic's":     {`engine: anthropic, `, `, api_key_env: K, headers: {X-Api-Key: Swordfish4}`, "headers.X-Api-Key: the worker's key"},
		"beside":          {`engine: anthropic, `, `, api_key_env: K, headers: {Authorization: Swordfish4}`, ""},
		"host":            {"", `, headers: {HOST: Swordfish4}`, `headers.HOST: the gateway sets this header (write the host into the url`},
		"length":          {"", `, headers: {content-length: 4}`, "headers.content-length: the gateway sets"},
		"chunked":         {"", `, headers: {Transfer-Encoding: Swordfish4}`, "headers.Transfer-Encoding: the gateway sets"},
		"connection":      {"", `, headers: {Connection: Swordfish4}`, "headers.Connection: the gateway sets"},
		"proxy":           {"", `, headers: {proxy-authorization: Swordfish4}`, "headers.proxy-authorization: the gateway sets"},
		"te":              {"", `, headers: {TE: trailers}`, "headers.TE: the gateway sets"},
		"upgrade":         {"", `, headers: {upgrade: h2c}`, "headers.upgrade: the gateway sets"},
		"trace":           {"", `, headers: {traceparent: Swordfish4}`, "headers.traceparent: the gateway sets"},
		"id":              {"", `, headers: {X-Request-ID: Swordfish4}`, "headers.X-Request-ID: the gateway sets"},
		"type":            {"", `, headers: {Content-Type: Swordfish4}`, "headers.Content-Type: the gateway sets"},
		"accept":          {"", `, headers: {Accept-Encoding: gzip}`, "headers.Accept-Encoding: the gateway sets"},
		"via":             {"", `, headers: {Via: Swordfish4}`, "headers.Via: the gateway sets"},
		"rank":            {"", `, headers: {X-Data-Parallel-Rank: 1}`, "(write the rank into the url, or set ranks)"},
		"of a pool":       {`headers: {Host: Swordfish4}, `, "", "tiers[0].headers.Host: the gateway sets"},
		"underscores":     {"", `, headers: {content_length: 4}`, "headers.content_length: the gateway sets"},
		"a blank":         {"", `, headers: {"X Team": Swordfish4}`, `headers["X Team"]: want a header's name`},
		"a colon":         {"", `, headers: {"X:": Swordfish4}`, `headers["X:"]: want a header's name`},
		"no name":         {"", `, headers: {"": Swordfish4}`, `headers[""]: want a header's name`},
		"twice":           {"", `, headers: {X-Team: Swordfish4, x-team: b}`, "headers.x-team: is the header X-Team, which is already set"},
		"empty":           {"", `, headers: {X-Team: ""}`, "headers.X-Team: has no value"},
		"empty variable":  {"", `, headers: {X-Team: "${NONE}"}`, "headers.X-Team: has no value"},
		"lines":           {"", `, headers: {X-Team: "${LINES}"}`, "headers.X-Team: the value has a line break"},
		"a line break":    {"", `, headers: {X-Team: "Swordfish4\r\nX: y"}`, "headers.X-Team: the value has a line break"},
		"umlaut":          {"", `, headers: {X-Team: "Swordfish4ä"}`, "headers.X-Team: the value has a line break"},
		"blanks":          {"", `, headers: {X-Team: " Swordfish4"}`, "headers.X-Team: the value begins or ends with a blank"},
		"long":            {"", `, headers: {X-Team: Swordfish4` + strings.Repeat("x", 9000) + `}`, "headers.X-Team: the value has 9010 bytes"},
		"a list":          {"", `, headers: [Swordfish4]`, "headers: want a section of keys, got a list"},
		"a section":       {"", `, headers: {X: {Y: Swordfish4}}`, "headers.X: want a string, got a section"},
		"no variable":     {"", `, headers: {X: "${GONE}"}`, "the environment variable GONE is not set"},
		"a secret's name": {"", `, headers: {token: Swordfish4, key: Swordfish4}`, ""},
	} {
		src := keys + `tiers: [ { name: a, model: m, ` + c.pool + `workers: [ { name: w, url: "http://h"` + c.worker + " } ] } ]\n"
		_, err := Parse("f", []byte(src), environment(vars))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if strings.Contains(got, "Swordfish4") {
			t.Errorf("%s: the problem shows the value: %s", name, got)
		}
	}
}

// TestHeadersOfAPoolApplyBesideTheWorkers, whose own values win.
func TestHeadersOfAPoolApplyBesideTheWorkers(t *testing.T) {
	f, err := Parse("f", []byte(headersFile), environment(map[string]string{"TOKEN": "Swordfish4"}))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"map[X-Gate:Bearer Hunter2Hunter2 x-team:b]", "map[X-Gate:Swordfish4 X-Team:a]"} {
		if got := fmt.Sprint(map[string]string(f.ResolvedPools()[0].Workers[i].Headers)); got != want {
			t.Errorf("worker %d has %s, want %s", i, got, want)
		}
	}
}

const headersFile = keys + `tiers:
  - name: small
    model: m
    headers: { X-Team: a, X-Gate: "${TOKEN}" }
    workers:
      - { name: w0, url: "http://h:1", headers: { x-team: b, X-Gate: "Bearer Hunter2Hunter2" } }
      - name: w1
        url: "http://h:2"
        headers:
`

// TestNoOutputShowsHeaders: the printed file, JSON, settings of pools, changes, and the text, valid or not.
func TestNoOutputShowsHeaders(t *testing.T) {
	vars := map[string]string{"TOKEN": "Swordfish4"}
	old := parsed(t, headersFile, vars)
	path := filepath.Join(t.TempDir(), "config.yaml")
	read := func(text string) string {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		shown, err := ReadText(path)
		if err != nil {
			t.Fatal(err)
		}
		return shown.Text
	}
	printed, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := old.PoolSettings()
	if err != nil {
		t.Fatal(err)
	}
	shown := read(headersFile)
	edited := parsed(t, strings.NewReplacer("Hunter2Hunter2", "Hunter2Hunter3", "X-Team: a", "X-Org: Hunter2Hunter4").
		Replace(headersFile), vars)
	rotated := parsed(t, headersFile, map[string]string{"TOKEN": "Swordfish5"})
	added := parsed(t, headersFile+"          X-New: Hunter2Hunter5\n"+
		"      - { name: w2, url: \"http://h:3\", headers: { X-New: Hunter2Hunter6 } }\n", vars)
	outputs := []string{fmt.Sprintf("%v %+v %#v", old, old, old.Tiers[0].Workers[0]), string(printed),
		fmt.Sprint(settings), shown, read(headersFile + "\"unclosed"),
		read(strings.Replace(headersFile, "X-Gate", "[ X-Gate", 1)),
		read(strings.ReplaceAll(headersFile, "headers", "extra_headers")), fmt.Sprint(old.Origins())}
	for what, c := range map[string]struct {
		new  *File
		want int
	}{"an edit": {edited, 3}, "another variable": {rotated, 1}, "more": {added, 2},
		"nothing": {parsed(t, headersFile, vars), 0}} {
		changes := Changes(old, c.new)
		if len(changes) != c.want {
			t.Errorf("%s: %+v", what, changes)
		}
		outputs = append(outputs, fmt.Sprint(changes), fmt.Sprint(Changes(c.new, old)))
	}
	for _, out := range outputs {
		for _, secret := range []string{"Swordfish", "Hunter2"} {
			if strings.Contains(out, secret) {
				t.Errorf("shown: %s", out)
			}
		}
	}
	if !strings.Contains(shown, `X-Gate: "${TOKEN}"`) || !strings.Contains(shown, `x-team: ***`) && !strings.Contains(shown, `x-team: "***"`) {
		t.Errorf("the text is %s", shown)
	}
	read(headersFile)
	draft, err := old.Draft(t.Context(), RestoreHidden([]byte(shown), path))
	if err != nil {
		t.Fatalf("the shown text as a draft: %v\n%s", err, shown)
	}
	if changes := Changes(old, draft); len(changes) != 0 {
		t.Errorf("the shown text as a draft has changes: %+v", changes)
	}
	if draft, err = old.Draft(t.Context(), RestoreHidden([]byte(strings.Replace(shown, `X-Gate: "***"`, "X-Gate: Hunter2Hunter7", 1)), path)); err != nil {
		t.Fatal(err)
	}
	if changes := Changes(old, draft); len(changes) != 1 || strings.Contains(fmt.Sprint(changes), "Hunter2") {
		t.Errorf("a draft's value: %+v", changes)
	}
}

// TestLinesOfProblemsShowNoHeaders: a line is shown for any of its keys, and with the line before it.
func TestLinesOfProblemsShowNoHeaders(t *testing.T) {
	for name, lines := range map[string]string{
		"one line":   "      - { name: w, url: \"http://h\", headers: { X: Hunter2, token: Hunter2 }, weight: 900 }\n",
		"quoted":     "      - { name: w, url: \"http://h\", \"headers\" : { X: Hunter2 }, weight: 900 }\n",
		"reserved":   "      - { name: w, url: \"http://h\", headers: { A: Hunter2, HOST: Hunter2 } }\n",
		"block":      "      - name: w\n        url: \"http://h\"\n        headers:\n          token: Hunter2\n        weight: 900\n",
		"bad block":  "      - name: w\n        url: \"http://h\"\n        headers:\n          Host: Hunter2\n          key: Hunter2\n        weight: 900\n",
		"lines":      "      - { name: w, url: \"http://h\", headers: { X: Hunter2,\n          key: Hunter2 }, weight: 900 }\n",
		"long value": "      - name: w\n        url: \"http://h\"\n        headers:\n          x: \"a\n            key: Hunter2\"\n        weight: 900\n",
		"a pool's":   "      - { name: w, url: \"http://h\" }\n    headers:\n      x: Hunter2\n    modle: x\n",
	} {
		src := keys + "tiers:\n  - name: a\n    model: m\n    workers:\n" + lines + "policy: { name: nope }\n"
		_, err := Parse("f", []byte(src), environment(nil))
		problems, ok := errors.AsType[Problems](err)
		if !ok {
			t.Errorf("%s: no problem: %v", name, err)
			continue
		}
		var out strings.Builder
		if err := problems.Format(&out, []byte(src)); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); strings.Contains(text, "Hunter2") || !strings.Contains(text, "| policy: { name: nope }") {
			t.Errorf("%s: the lines are\n%s", name, text)
		}
	}
}
