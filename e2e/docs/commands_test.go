package docs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tierway/e2e/gateway"
)

// notRun are the commands of documents that the test does not run, by the beginning of the command,
// each with the reason.
var notRun = []struct{ begins, reason string }{
	{"make ", "builds, measures or serves for minutes; TestSmokeThePrintedRequestsAreAnswered has the demo of make run"},
	{"TIERWAY_SOAK=60s go test ", "runs for a minute"},
	{"tierway features -c config.yaml", "needs recorded requests"},
	{"tierway train ", "needs recorded features and labels"},
	{"tierway tiers report --features ", "needs recorded features and labels"},
	{"sqlite3 ", "needs the program sqlite3"},
	{"pg_dump ", "needs a PostgreSQL server"},
	{"tierway simulate --trace ", "needs a recorded trace"},
	{"tierway import vllm-router start.sh", "needs the script of another router"},
	{"tierway import continuum ", "needs the file of another router"},
	{"tierway simulate --mode base,hot", "takes minutes"},
	{"python3 examples/hooks/redact.py ", "serves until it is stopped; e2e/state has its test"},
	{"TIERWAY_SOAK=60s TIERWAY_TRACE=", "needs a recorded trace"},
	{"curl -s $ADMIN_URL/metrics | grep tierway_handover", "needs the demo with --disaggregated"},
	{"vllm serve ", "needs an engine"},
	{"VLLM_NIXL_SIDE_CHANNEL_HOST=", "needs an engine"},
	{"PYTHONHASHSEED=", "needs an engine, or LMCache"},
	{"lmcache_server ", "needs LMCache"},
	{"pip install ", "installs packages of an engine"},
	{"OLLAMA_NUM_PARALLEL=", "needs an engine"},
	{"ollama ", "needs an engine"},
	{"llama-server ", "needs an engine"},
	{"python3 -m sglang.", "needs an engine"},
	{"curl -s $BASE_URL/feedback ", "needs learning.directory; server/feedback_test.go has its test"},
	{"grep ", "reads the access log of a gateway whose output the reader has redirected"},
	{`curl -sN "$ADMIN_URL/admin/decisions/stream`, "is a stream that does not end"},
	{"curl -X POST http://127.0.0.1:8081/admin/bootstrap", "needs the secret that a gateway announces at its start"},
}

// pageTests are the pages with commands that tests of other packages run.
var pageTests = map[string]string{
	"admin-api.md": "server/admin_doc_test.go runs its examples against a gateway with workers of their names",
}

// command is one line of a block with its continued lines.
var command = regexp.MustCompile(`(?m)^(?:.*\\\n)*.*$`)

// request is one curl with its continued lines.
var request = regexp.MustCompile(`(?m)^curl (?:.*\\\n)*.*$`)

// script returns the commands of a block that the test runs. It marks the entries of notRun that
// apply as used.
func script(block string, used map[string]bool) string {
	var run []string
	for _, line := range command.FindAllString(block, -1) {
		skip := line == "" || strings.HasPrefix(line, "#")
		for _, n := range notRun {
			if strings.HasPrefix(line, n.begins) {
				used[n.begins], skip = true, true
			}
		}
		if !skip {
			run = append(run, line)
		}
	}
	return strings.Join(run, "\n")
}

// TestCommandsOfDocumentsSucceed runs each block of shell commands, in the order of the page and in a
// folder of the page. Commands without a configuration use a demo that all pages share.
func TestCommandsOfDocumentsSucceed(t *testing.T) {
	d := newDesk(t)
	used := map[string]bool{}
	ran := 0
	for _, file := range documents(t) {
		if pageTests[filepath.Base(file)] == "" {
			ran += d.runPage(t, file, used)
		}
	}
	if ran < 50 {
		t.Errorf("the documents have only %d blocks of commands", ran)
	}
	for _, n := range notRun {
		if !used[n.begins] {
			t.Errorf("no document has a command that begins with %q: remove it from notRun", n.begins)
		}
	}
}

// TestSmokeCommandsOfTheREADMESucceed is TestCommandsOfDocumentsSucceed for one page.
func TestSmokeCommandsOfTheREADMESucceed(t *testing.T) {
	if newDesk(t).runPage(t, "../../README.md", map[string]bool{}) == 0 {
		t.Error("README.md has no commands")
	}
}

// runPage runs the blocks of shell commands of a page and returns how many it has run. It marks the entries of notRun
// that apply as used.
func (d *desk) runPage(t *testing.T, file string, used map[string]bool) (ran int) {
	t.Helper()
	dir := d.folder(t)
	for _, f := range fences(t, file) {
		if f.language != "sh" {
			continue
		}
		text := script(f.text, used)
		if text == "" {
			continue
		}
		ran++
		if out, err := d.run(dir, text); err != nil {
			t.Errorf("%s:%d:\n%s\n%v\n%s", file, f.line, text, err, out)
		}
	}
	return ran
}

// desk has what the commands of pages need.
type desk struct {
	demo  *gateway.Process // serves requests, the admin API and tierway --live
	file  *gateway.Process // has a configuration file, for tierway reload
	draft string           // the draft of docs/tiers.md
	keyID string           // of a key that may be revoked
}

// configuration is config.yaml of the pages' folders. Its admin key is the demo's.
const configuration = `
auth: { keys: [{ name: docs, sha256: %s }] }
admin: { keys: [{ name: docs, sha256: %s }] }
drain: { accept_grace: 1ms, timeout: 1s }
tiers:
  - { name: small, model: demo-small-7b, workers: [{ name: small-0, url: "http://127.0.0.1:9" }] }
  - { name: medium, model: demo-medium-32b, workers: [{ name: medium-0, url: "http://127.0.0.1:9" }] }
  - { name: large, model: demo-large-70b, workers: [{ name: large-0, url: "http://127.0.0.1:9" }] }
`

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{demo: gateway.Demo(t)}
	d.file = gateway.Start(t, d.configuration())
	for _, block := range blocks(t, "../../docs/tiers.md", "yaml") {
		if strings.Contains(block, "name: contracts") {
			d.draft = block
		}
	}
	if d.draft == "" {
		t.Fatal("docs/tiers.md has no draft")
	}
	status, answer := d.demo.Admin("POST", "/admin/tenants", `{"name":"docs","issue_key":true}`, d.demo.AdminKey)
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(answer)
	if status != 201 || id == nil {
		t.Fatalf("creating a tenant with a key: %d %s", status, answer)
	}
	d.keyID = id[1]
	return d
}

func (d *desk) configuration() string {
	digest := func(key string) string {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	return fmt.Sprintf(configuration, digest("docs"), digest(d.demo.AdminKey))
}

// programs are the programs of a page's folder. Wrappers make requests fail that are not answered
// with 2xx or 3xx, and give commands the addresses of the test's gateways. serve is ended once it
// serves.
var programs = map[string]string{
	"curl": `#!/bin/bash
exec "$CURL" --fail-with-body --max-time 30 "$@"
`,
	"tierway": `#!/bin/bash
case " $* " in
" reload "*) exec "$TIERWAY" "$@" --api "$FILE_URL" ;;
*" --live "*) exec "$TIERWAY" "$@" --api "$ADMIN_URL" ;;
" serve "*) ;;
*) exec "$TIERWAY" "$@" ;;
esac
log=$(mktemp)
"$TIERWAY" "$@" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 >/dev/null 2>"$log" &
until grep -q '"msg":"serving"' "$log"; do
  kill -0 $! || { cat "$log"; exit 1; }
  sleep 0.02
done
kill -KILL $!
`,
}

// folder makes the working directory of a page, with the files that its commands name.
func (d *desk) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"config.yaml": d.configuration(), "draft.yaml": d.draft,
		"request.json": `{"model":"auto","max_tokens":5,"messages":[{"role":"user","content":"Say hello"}]}`}
	for name, text := range programs {
		files[filepath.Join("bin", name)] = text
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	examples, err := filepath.Abs("../../examples")
	if err == nil {
		err = os.Symlink(examples, filepath.Join(dir, "examples"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := d.run(dir, recorded); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// recorded makes files of decision records, as decisions.file writes them.
const recorded = `
curl -s $BASE_URL/chat/completions -H "Authorization: Bearer $API_KEY" -H 'Content-Type: application/json' -d @request.json
curl -s $ADMIN_URL/admin/decisions -H "Authorization: Bearer $ADMIN_KEY" -H 'Accept: application/x-ndjson' > decisions.jsonl
cp decisions.jsonl decisions.jsonl.1
`

// run runs a script in a page's folder. It fails with the first command that fails, in the
// background too.
func (d *desk) run(dir, text string) (string, error) {
	binary, err := filepath.Abs(os.Getenv("TIERWAY_BIN"))
	if err != nil {
		return "", err
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		return "", err
	}
	c := exec.Command("bash", "-euo", "pipefail", "-c", text+"\nfor job in $(jobs -p); do wait $job; done")
	c.Dir, c.SysProcAttr = dir, gateway.EndWithParent()
	c.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "CURL="+curl,
		"TIERWAY="+binary, "BASE_URL="+d.demo.BaseURL, "API_KEY="+d.demo.APIKey, "ADMIN_URL="+d.demo.AdminURL,
		"ADMIN_KEY="+d.demo.AdminKey, "TIERWAY_ADMIN_KEY="+d.demo.AdminKey, "FILE_URL="+d.file.AdminURL,
		"KEY_ID="+d.keyID)
	out, err := c.CombinedOutput()
	return string(out), err
}
