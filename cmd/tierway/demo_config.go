package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tierway/engines"
	"tierway/tenants"
)

type demoSettings struct {
	Key, AdminKey string
	Load          *demoLoadSettings // nil without a background load
	Tiers         []demoTier
}

type demoLoadSettings struct {
	ChatKey, NightlyKey string
	ChatRPM, NightlyRPM int64
}

func (k demoKeys) settings(load float64, fleet []demoTier) demoSettings {
	d := demoSettings{Key: digest(k.tenant), AdminKey: digest(k.admin), Tiers: fleet}
	if load > 0 {
		d.Load = &demoLoadSettings{
			ChatKey:    digest(k.load[chatApp]),
			NightlyKey: digest(k.load[nightlyBatch]),
			ChatRPM:    perMinute(4 * load),
			NightlyRPM: perMinute(nightlyHeadroom * nightlyShare * load),
		}
	}
	return d
}

// perMinute returns a rate per second as a limit, at least 1.
func perMinute(rate float64) int64 { return max(1, int64(math.Ceil(60*rate))) }

func digest(key string) string { return fmt.Sprintf("%x", tenants.Digest(key)) }

const demoConfig = `# The configuration of a demo. Edit this file and reload it: in the UI, or with "tierway reload".
# The demo removes the file when it stops. Keys are stored as digests.
admin:
  keys:
    - { name: demo, sha256: {{.AdminKey}} }
auth:
  keys:
    - { name: demo, sha256: {{.Key}} }
{{- with .Load}}
    # The tenants of the background load. A lower limit rejects more of their requests.
    - { name: chat-app, sha256: {{.ChatKey}}, limits: { rpm: {{.ChatRPM}}, concurrent: 100 } }
    - { name: nightly-batch, sha256: {{.NightlyKey}}, priority: batch, limits: { rpm: {{.NightlyRPM}}, burst: 2 } }
{{- end}}
store: { sql: "sqlite://:memory:" }
drain: { accept_grace: 10ms, timeout: 2s }
tiers:
{{- range .Tiers}}
  - name: {{.Name}}
    model: {{.Model}}
    engine: vllm
{{- with .Handover}}
    # A prefill engine computes a prompt with at least 500 tokens that no cache has. A decode engine computes
    # shorter ones, and generates the answers. Without the threshold the expected times decide.
    handover: {{.}}
    uncached_threshold: 500
{{- end}}
    serves: [chat, completions, responses, messages, embeddings, rerank, score, tokenize, moderations, images, audio]
    workers:
    {{- range .Workers}}
      - { name: {{.Name}}, url: "{{.URL}}"{{with .Role}}, role: {{.}}{{end}} }
    {{- end}}
{{- end}}
# Names that clients have as defaults: some offer only listed names, and GET /v1/models lists exact ones.
models:
  gpt-3.5-turbo: small
  gpt-4o-mini: small
  gpt-4.1-mini: small
  gpt-4.1-nano: small
  gpt-5-mini: small
  gpt-5-nano: small
  claude-haiku-4-5: small
  text-embedding-3-small: small
  text-embedding-3-large: small
  text-embedding-ada-002: small
  omni-moderation-latest: small
  whisper-1: small
  gpt-4o-transcribe: small
  gpt-4o-mini-transcribe: small
  tts-1: small
  tts-1-hd: small
  gpt-4o-mini-tts: small
  dall-e-2: small
  dall-e-3: small
  gpt-image-1: small
  gpt-4o: medium
  gpt-4.1: medium
  o3-mini: medium
  o4-mini: medium
  claude-sonnet-5: medium
  claude-sonnet-4-6: medium
  claude-sonnet-4-5: medium
  gpt-4: large
  gpt-4-turbo: large
  gpt-5: large
  gpt-5-codex: large
  gpt-5.1: large
  gpt-5.1-codex: large
  gpt-5.2: large
  gpt-5.5: large
  o1: large
  o3: large
  claude-opus-4-8: large
  claude-opus-4-5: large
  claude-opus-4-1: large
  # Patterns cover versions of these and newer models.
  chatgpt-*: large
  codex-*: large
  dall-e-*: small
  gpt-*: large
  gpt-*-mini*: small
  gpt-*-nano*: small
  gpt-3*: small
  gpt-4o*: medium
  gpt-image-*: small
  o?*: large
  o?-mini*: medium
  qwen*: large
  text-*: small
  tts-*: small
  whisper-*: small
  "*-moderation-*": small
  claude-*: large
  claude-*haiku*: small
  claude-*sonnet*: medium
`

// demoFile is the configuration file of a demo. The zero value has no file. It is safe for concurrent
// use: a second signal removes the file while the first one is being handled.
type demoFile struct {
	mu   sync.Mutex
	name string // absolute; empty while there is no file
}

// create writes the configuration to a new file, which only its owner can read: to a temporary file if
// the path is empty. It returns the name of the file.
func (f *demoFile) create(path string, settings demoSettings) (name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := newDemoFile(path)
	if err != nil {
		return "", err
	}
	f.name = file.Name()
	if err := errors.Join(executeTemplate(file, demoConfig, settings), file.Close()); err != nil {
		return "", fmt.Errorf("writing the demo's configuration: %w: choose another file with --config", err)
	}
	return f.name, nil
}

// newDemoFile creates a file that did not exist.
func newDemoFile(path string) (*os.File, error) {
	if path == "" {
		file, err := os.CreateTemp("", "tierway-demo-*.yaml")
		if err != nil {
			return nil, fmt.Errorf("creating the demo's configuration: %w: choose another file with --config", err)
		}
		return file, nil
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--config %q: %w", plain(path), err)
	}
	file, err := os.OpenFile(absolute, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, fmt.Errorf("--config %q: the file exists, and the demo would replace and remove it: choose a new file; "+
			"to serve an existing configuration, run `tierway serve -c FILE`", plain(path))
	case err != nil:
		return nil, fmt.Errorf("--config %q: %w: choose another file", plain(path), withoutPath(err))
	}
	return file, nil
}

// remove removes the file if there is one. Repeated calls are permitted.
func (f *demoFile) remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.name == "" {
		return nil
	}
	err := os.Remove(f.name)
	f.name = ""
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the demo's configuration: %w", err)
	}
	return nil
}

// demoSeed makes the responses of all demos equal, and the requests of their background loads.
const demoSeed = 7

type demoTier struct {
	Name, Model string
	Handover    string // empty: one worker serves a whole request
	Workers     []demoWorker
}

type demoWorker struct{ Name, URL, Role string }

func startFleet(ctx context.Context, fleet []engines.Config) (tiers []demoTier, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, end := range slices.Backward(stops) {
			end()
		}
	}
	for _, c := range fleet {
		e := engines.New(c)
		stops = append(stops, e.Close)
		err := e.PublishEvents(ctx, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("publishing the KV events of the simulated engine %s: %w", c.Name, err)
		}
		s, err := engines.Start(e, "127.0.0.1:0")
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("starting the simulated engine %s: %w", c.Name, err)
		}
		stops = append(stops, s.Kill)
		if n := len(tiers); n == 0 || tiers[n-1].Model != c.Model {
			name, _, _ := strings.Cut(c.Name, "-")
			tiers = append(tiers, demoTier{Name: name, Model: c.Model, Handover: c.Handover})
		}
		last := &tiers[len(tiers)-1]
		last.Workers = append(last.Workers, demoWorker{Name: c.Name, URL: s.URL, Role: c.Role})
	}
	return tiers, stop, nil
}
