package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// TestWordsOfClientsSelectNoTier sends the first requests of real clients, in which the user has written "hi". The
// files in openai/testdata are recorded and shortened; those of Open WebUI follow the form of its prompts.
func TestWordsOfClientsSelectNoTier(t *testing.T) {
	paths := map[string]string{
		"claude-code.json": "/v1/messages", "claude-code-2.0.json": "/v1/messages", "codex.json": "/v1/responses",
		"qwen-code.json": "/v1/chat/completions", "qwen-code-0.12.json": "/v1/chat/completions",
		"opencode.json": "/v1/chat/completions", "opencode-title.json": "/v1/chat/completions",
		"opencode-file.json": "/v1/chat/completions",
		"aider.json":         "/v1/chat/completions", "aider-diff.json": "/v1/chat/completions",
		"open-webui-title.json": "/v1/chat/completions", "open-webui-tags.json": "/v1/chat/completions",
		"open-webui-follow-ups.json": "/v1/chat/completions", "open-webui-queries.json": "/v1/chat/completions",
	}
	files, err := filepath.Glob("../openai/testdata/clients/*.json")
	if err != nil || len(files) != len(paths) {
		t.Fatalf("%d recorded requests, want %d: %v", len(files), len(paths), err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newWideRig(t, "classifier: {}\n")
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(file)
			got := r.post(paths[name], string(body))
			if tier, rule := tierOf(got); tier != "small" || rule != "default" {
				t.Errorf("%s: to %s by %s (%d), want small by default", name, tier, rule, got.status)
			}
			// the same request with a hard question selects the last tier
			hard := strings.ReplaceAll(string(body), `"hi"`, `"Write a function in Python that sorts a list"`)
			hard = strings.ReplaceAll(hard, `"hi\n`, `"Write a function in Python that sorts a list\n`)
			if hard == string(body) || strings.HasPrefix(name, "open-webui") {
				continue
			}
			if tier, rule := tierOf(r.post(paths[name], hard)); tier != "large" || rule != "keyword:code" {
				t.Errorf("%s with a question about code: to %s by %s, want large by keyword:code", name, tier, rule)
			}
		}
	})
}
