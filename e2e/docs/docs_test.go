package docs

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tierway/config"
	"tierway/e2e/gateway"
	"tierway/tierscore"
)

func TestSmokeEveryYAMLBlockIsAConfiguration(t *testing.T) {
	env := func(name string) (string, bool) { // another digest for each name
		sum := sha256.Sum256([]byte(name))
		return hex.EncodeToString(sum[:]), true
	}
	all := map[string][]string{}
	for _, file := range documents(t) {
		all[file] = blocks(t, file, "yaml")
	}
	t.Chdir(t.TempDir())
	key, _ := env("TIERWAY_HASH_KEY")
	writeModel(t, "tier.model", key)
	seen := 0
	for file, configurations := range all {
		for _, block := range configurations {
			seen++
			if _, err := config.Parse(filepath.Base(file), []byte(block), env); err != nil {
				t.Errorf("%s:\n%s\n%v", file, block, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no document shows a configuration")
	}
}

// writeModel writes a model of a tier score without weights, for features with a key.
func writeModel(t *testing.T, path, key string) {
	t.Helper()
	var f tierscore.Features
	tierscore.NewExtractor(key).Extract(&f, &tierscore.Input{})
	none := tierscore.Head{Weights: make([]float64, tierscore.Columns)}
	m, err := tierscore.NewModel(f.Key(), nil, none, none)
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.Append(nil)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSmokeTheREADMEShowsTheFirstAnswer verifies that the first request of README.md gets the headers
// that README.md shows after it.
func TestSmokeTheREADMEShowsTheFirstAnswer(t *testing.T) {
	const readme = "../../README.md"
	first := ""
	for _, block := range blocks(t, readme, "sh") {
		if first = request.FindString(block); first != "" {
			break
		}
	}
	shown := blocks(t, readme, "text")
	if first == "" || len(shown) == 0 {
		t.Fatal("README.md shows no request or no answer")
	}
	demo := gateway.Demo(t)
	run := exec.Command("bash", "-c", first+" --fail-with-body --max-time 30")
	run.Env = append(os.Environ(), "BASE_URL="+demo.BaseURL, "API_KEY="+demo.APIKey)
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", first, err, out)
	}
	got := strings.ToLower(strings.ReplaceAll(string(out), "\r\n", "\n"))
	head, _, _ := strings.Cut(shown[0], "\n\n")
	for line := range strings.Lines(head) {
		if !strings.Contains(got, strings.ToLower(strings.TrimSuffix(line, "\n"))+"\n") {
			t.Errorf("README.md shows %q, the answer is\n%s", line, out)
		}
	}
}

func TestSmokeThePrintedRequestsAreAnswered(t *testing.T) {
	text := gateway.DemoGreeting(t).Stdout()
	lines := request.FindAllString(text, -1)
	if len(lines) != 4 {
		t.Fatalf("the greeting shows %d requests, want 4:\n%s", len(lines), text)
	}
	tiers := map[int]string{1: "large", 2: "medium"} // as the lines before them say
	for i, line := range lines {
		out, err := exec.Command("bash", "-c", line+" --fail-with-body --max-time 30").CombinedOutput()
		if err != nil || !strings.Contains(strings.ToLower(string(out)), strings.ToLower(tierHeader(tiers[i]))) {
			t.Errorf("%s\n%v\n%s", line, err, out)
		}
	}
}

// tierHeader is the header that tells a tier; nothing for none.
func tierHeader(tier string) string {
	if tier == "" {
		return ""
	}
	return "X-Model-Tier: " + tier
}
