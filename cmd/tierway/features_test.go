package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/tenants"
	"tierway/tierscore"
)

// newFeaturesFiles writes a configuration and the requests of newTrainFiles, as bodies of chats.
func newFeaturesFiles(t *testing.T) (config, requests string) {
	t.Helper()
	dir := t.TempDir()
	config, requests = filepath.Join(dir, "config.yaml"), filepath.Join(dir, "requests.jsonl")
	trainFiles{}.write(t, config, `auth: { required: false }
tiers:
  - { name: small, model: s, workers: [ { name: s, url: "http://127.0.0.1:1" } ] }
  - { name: large, model: l, workers: [ { name: l, url: "http://127.0.0.1:2" } ] }
`)
	var lines strings.Builder
	for i := range 400 {
		text := [...]string{"easy", "hard"}[i%2]
		fmt.Fprintf(&lines, `{"id":"r%d","ts":"2026-01-01T%02d:%02d:00Z","tenant":"acme","body":`+
			`{"model":"auto","messages":[{"role":"user","content":"secret %s %d"}]}}`+"\n", i, i/60, i%60, text, i%200)
	}
	trainFiles{}.write(t, requests, lines.String())
	return config, requests
}

// TestFeaturesOfRequestsTrainAScore: the lines of features have no text, and tierway train learns from them.
func TestFeaturesOfRequestsTrainAScore(t *testing.T) {
	config, requests := newFeaturesFiles(t)
	s := tierway(t, "features", "-c", config, "-f", requests)
	if s.status != 0 || strings.Count(s.out, "\n") != 400 || strings.Contains(s.out, "secret") ||
		strings.Contains(s.out, "acme") {
		t.Fatalf("status %d\n%s%s", s.status, s.out[:min(len(s.out), 1000)], s.messages)
	}
	dir := t.TempDir()
	f := trainFiles{filepath.Join(dir, "features"), filepath.Join(dir, "labels"), filepath.Join(dir, "m")}
	f.write(t, f.features, s.out)
	var labels strings.Builder
	for i := range 400 {
		writeLabels(&labels, i, i%2 == 0)
	}
	f.write(t, f.labels, labels.String())
	if s := f.run(t); s.status != 0 || !strings.Contains(s.out, "400 of 400 lines") {
		t.Errorf("status %d\n%s%s", s.status, s.out, s.messages)
	}
}

// TestKeysHideFeatures: the same requests have other hashes with a key.
func TestKeysHideFeatures(t *testing.T) {
	config, requests := newFeaturesFiles(t)
	key := filepath.Join(t.TempDir(), "key")
	trainFiles{}.write(t, key, "0123456789abcdef\n")
	plain := tierway(t, "features", "-c", config, "-f", requests)
	keyed := tierway(t, "features", "-c", config, "-f", requests, "--hash-key-file", key)
	if plain.status != 0 || keyed.status != 0 || strings.Contains(keyed.out, "0123456789abcdef") {
		t.Fatalf("status %d and %d\n%s%s", plain.status, keyed.status, plain.messages, keyed.messages)
	}
	hashes := func(out string) (all []map[string]string) {
		for line := range strings.Lines(out) {
			var one struct{ Features map[string]any }
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			hash := map[string]string{}
			for _, name := range []string{"key", "route", "words"} {
				hash[name], _ = one.Features[name].(string)
			}
			all = append(all, hash)
		}
		return all
	}
	with, without := hashes(keyed.out), hashes(plain.out)
	if len(with) != 400 || len(without) != 400 {
		t.Fatalf("%d and %d lines", len(with), len(without))
	}
	for i := range with {
		for name, hash := range with[i] {
			if hash == without[i][name] || hash == "" {
				t.Errorf("line %d: %s is %q with and without a key", i+1, name, hash)
			}
		}
	}
}

// TestFeaturesAreThoseOfTheGateway: a model that is trained on the lines of features meets the same features in the
// gateway, in each dialect.
func TestFeaturesAreThoseOfTheGateway(t *testing.T) {
	const key = "0123456789abcdef"
	config, requests := newFeaturesFiles(t)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	trainFiles{}.write(t, config, "learning: { hash_key: "+key+" }\n"+string(text))
	caller := &intake.Caller{Caller: tenants.NewCaller(tenants.Tenant{Name: "acme"}, tenants.Key{Tenant: "acme"})}
	in := &intake.Inbound{Snap: &control.Snapshot{Extractor: tierscore.NewExtractor(key)}}
	long := strings.Repeat("Prove that é is prime. ", 2000)
	seen := map[string]bool{}
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"auto","messages":[{"role":"user","content":"Hi"}]}`},
		{"/v1/chat/completions", `{"model":"auto","tools":[{"type":"function","function":{"name":"f"}}],"messages":[` +
			`{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Why?"},` +
			`{"type":"image_url","image_url":{"url":"https://x"}}]},{"role":"assistant","content":null,"tool_calls":[]},` +
			`{"role":"tool","tool_call_id":"1","content":"done"}]}`},
		{"/v1/chat/completions", `{"model":"auto","messages":[{"role":"user","content":"` + long + `"}]}`},
		{"/v1/completions", `{"model":"auto","prompt":"Hi there"}`},
		{"/v1/completions", `{"model":"auto","prompt":["Hello","Why?"]}`},
		{"/v1/completions", `{"model":"auto","prompt":[1,2,3]}`},
		{"/v1/messages", `{"model":"auto","max_tokens":9,"system":"Be brief.","messages":[{"role":"user","content":"How?"},` +
			`{"role":"assistant","content":"So."},{"role":"user","content":[{"type":"text","text":"Why?"}]}]}`},
		{"/v1/responses", `{"model":"auto","input":"Is it?"}`},
		{"/v1/responses", `{"model":"auto","instructions":"Be brief.","input":[{"role":"user","content":"Is it?"},` +
			`{"type":"function_call_output","call_id":"c","output":"o"}]}`},
	} {
		trainFiles{}.write(t, requests, `{"id":"r","ts":"2026-01-01T00:00:00Z","tenant":"acme","path":"`+c.path+`","body":`+
			c.body+"}\n")
		s := tierway(t, "features", "-c", config, "-f", requests)
		var line struct{ Features json.RawMessage }
		if err := json.Unmarshal([]byte(s.out), &line); err != nil {
			t.Fatalf("%v: %s%s", err, s.out, s.messages)
		}
		req, err := openai.Parse(dialects[c.path], []byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		parsed := intake.Parsed{Req: req, Prompt: new(intake.Prompt)}
		for range 2 {
			if got := string(parsed.Features(in, caller).AppendJSON(nil)); got != string(line.Features) {
				t.Errorf("%s %.200s\ngateway  %s\nfeatures %s", c.path, c.body, got, line.Features)
			}
		}
		if seen[string(line.Features)] {
			t.Errorf("%s %.200s has the features of another request", c.path, c.body)
		}
		seen[string(line.Features)] = true
	}
}

func TestFeaturesNameTheFaultyLine(t *testing.T) {
	config, requests := newFeaturesFiles(t)
	good, err := os.ReadFile(requests)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	trainFiles{}.write(t, key, "short")
	const ts = `"ts":"2026-01-01T00:00:00Z"`
	for _, c := range []struct{ line, want string }{
		{`{` + ts + `,"body":{"prompt":"x"}}`, "id is missing"},
		{`{"id":"x","body":{"prompt":"x"}}`, "ts is missing"},
		{`{"id":"x",` + ts + `}`, "body is missing"},
		{`{"id":"x",` + ts + `,"body":{"input":"x"}}`, "body has no prompt"},
		{`{"id":"x",` + ts + `,"path":"/v1/x","body":{}}`, "path has no prompt of a chat or text: leave the line"},
		{`{"id":"x",` + ts + `,"body":{"messages":1}}`, "messages"},
		{`{"id":"x",` + ts + `,"text":"x"}`, "unknown field: the fields are id, ts, tenant, path, body"},
	} {
		trainFiles{}.write(t, requests, string(good)+c.line+"\n")
		if s := tierway(t, "features", "-c", config, "-f", requests); s.status != 2 ||
			!strings.Contains(s.messages, requests+":401: ") || !strings.Contains(s.messages, c.want) ||
			strings.Count(s.out, "\n") != 400 || !strings.HasSuffix(s.out, "}\n") {
			t.Errorf("%s: status %d\n%s", c.line, s.status, s.messages)
		}
	}
	if s := tierway(t, "features", "-c", config, "-f", requests, "--hash-key-file", key); s.status != 2 ||
		!strings.Contains(s.messages, "has 5 bytes: write at least 16") {
		t.Errorf("status %d\n%s", s.status, s.messages)
	}
}

// TestErrorsOfLinesHaveNoText: a marker stands for a part of a prompt, in each name and value of a faulty line.
func TestErrorsOfLinesHaveNoText(t *testing.T) {
	config, requests := newFeaturesFiles(t)
	f := newTrainFiles(t, true)
	const marker = "kumquat"
	var e tierscore.Features
	request := `{"id":"x","ts":"2026-01-01T00:00:00Z","tenant":"a","path":"/v1/chat/completions","body":{"model":"auto",` +
		`"stream":false,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}}`
	label := `{"id":"r0","ts":"2026-01-01T00:00:00Z","route":"00000000","tenant":"a","tier":"small","ok":true,"weight":1,` +
		`"source":"replay"}`
	features := `{"id":"r0","ts":"2026-01-01T00:00:00Z","baseline":1,"features":` + string(e.AppendJSON(nil)) + `}`
	for name, c := range map[string]struct {
		line string
		run  func(line string) output
	}{
		"features -f": {request, func(line string) output {
			trainFiles{}.write(t, requests, line)
			return tierway(t, "features", "-c", config, "-f", requests)
		}},
		"train --labels": {label, func(line string) output {
			f.write(t, f.labels, line)
			return f.run(t)
		}},
		"train --features": {features, func(line string) output {
			f.write(t, f.labels, strings.Replace(label, `"route":"00000000",`, "", 1))
			f.write(t, f.features, line)
			return f.run(t)
		}},
	} {
		faults := 0
		for _, faulty := range markedLines(c.line, marker) {
			s := c.run(faulty)
			if faults += s.status; strings.Contains(s.messages, marker) {
				t.Errorf("%s %s: %s", name, faulty, s.messages)
			}
		}
		if faults == 0 {
			t.Errorf("%s: no line is faulty", name)
		}
	}
}

// markedLines returns a JSON line with a marker in place of each text, number and literal, and in other kinds of
// values.
func markedLines(line, marker string) (lines []string) {
	tokens := regexp.MustCompile(`"[^"]*"|\b(true|false|[0-9]+)\b`)
	for _, at := range tokens.FindAllStringIndex(line, -1) {
		for _, value := range []string{`"` + marker + `"`, marker, `["` + marker + `"]`, `{"` + marker + `":1}`} {
			lines = append(lines, line[:at[0]]+value+line[at[1]:])
		}
	}
	return append(lines, line+marker, marker+line, line[:len(line)-1]+`,"`+marker+`":"`+marker+`"}`, `"`+marker+`"`,
		`["`+marker+`"]`)
}
