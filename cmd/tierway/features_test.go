package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			`{"model":"auto","messages":[{"role":"user","content":"secret %s %d"}]}}`+"\n", i, i/60, i%60, text, i%50)
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
		for tier, ok := range map[string]bool{"small": i%2 == 0, "large": true} {
			fmt.Fprintf(&labels, `{"id":"r%d","ts":"2026-01-02T00:00:00Z","tier":%q,"ok":%v,"source":"replay"}`+"\n", i, tier,
				ok)
		}
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
	keyed := tierway(t, "features", "-c", config, "-f", requests, "--key-file", key)
	if keyed.status != 0 || keyed.out == plain.out || strings.Contains(keyed.out, "0123456789abcdef") {
		t.Errorf("status %d\n%s", keyed.status, keyed.messages)
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
		{`{"id":"x",` + ts + `,"body":{"input":"x"}}`, `path "/v1/embeddings" has no prompt`},
		{`{"id":"x",` + ts + `,"path":"/v1/x","body":{}}`, `path "/v1/x" has no prompt`},
		{`{"id":"x",` + ts + `,"body":{"messages":1}}`, "messages"},
		{`{"id":"x",` + ts + `,"text":"x"}`, `unknown field "text"`},
	} {
		trainFiles{}.write(t, requests, string(good)+c.line+"\n")
		if s := tierway(t, "features", "-c", config, "-f", requests); s.status != 2 ||
			!strings.Contains(s.messages, requests+":401: ") || !strings.Contains(s.messages, c.want) {
			t.Errorf("%s: status %d\n%s", c.line, s.status, s.messages)
		}
	}
	if s := tierway(t, "features", "-c", config, "-f", requests, "--key-file", key); s.status != 2 ||
		!strings.Contains(s.messages, "has 5 characters: write at least 16") {
		t.Errorf("status %d\n%s", s.status, s.messages)
	}
}
