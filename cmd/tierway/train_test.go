package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tierway/tierscore"
	"tierway/tierscore/training"
)

// trainFiles are the files of a training.
type trainFiles struct{ features, labels, model string }

// newTrainFiles writes 400 requests with labels of both tiers. If signal is set, the small tier fails for one word.
func newTrainFiles(t *testing.T, signal bool) trainFiles {
	t.Helper()
	dir := t.TempDir()
	f := trainFiles{filepath.Join(dir, "features.jsonl"), filepath.Join(dir, "labels.jsonl"), filepath.Join(dir, "m")}
	var features, labels bytes.Buffer
	source := rand.New(rand.NewPCG(1, 2))
	e := tierscore.NewExtractor("")
	for i := range 400 {
		hard := source.IntN(2) == 0
		text := fmt.Sprintf("easy %d", source.IntN(50))
		if hard {
			text = fmt.Sprintf("hard %d", source.IntN(50))
		}
		if !signal {
			hard = source.IntN(2) == 0
		}
		var one tierscore.Features
		e.Extract(&one, &tierscore.Input{Tenant: "acme", User: []byte(text), Turns: 1})
		ts := time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC).Format(time.RFC3339)
		fmt.Fprintf(&features, `{"id":"r%d","ts":%q,"baseline":%d,"features":%s}`+"\n", i, ts, i%5, one.AppendJSON(nil))
		writeLabels(&labels, i, !hard)
	}
	f.write(t, f.features, features.String())
	f.write(t, f.labels, labels.String())
	return f
}

// writeLabels writes the labels of a request. The large tier is right.
func writeLabels(to io.Writer, i int, small bool) {
	for _, tier := range []struct {
		name string
		ok   bool
	}{{"small", small}, {"large", true}} {
		fmt.Fprintf(to, `{"id":"r%d","ts":"2026-01-02T00:00:00Z","tier":%q,"ok":%v,"source":"replay"}`+"\n", i, tier.name,
			tier.ok)
	}
}

func (trainFiles) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs the command on the files.
func (f trainFiles) run(t *testing.T, more ...string) output {
	t.Helper()
	return tierway(t, append([]string{"train", "--features", f.features, "--labels", f.labels, "-o", f.model}, more...)...)
}

// read returns the written model.
func (f trainFiles) read(t *testing.T) *tierscore.Model {
	t.Helper()
	file, err := os.ReadFile(f.model)
	if err != nil {
		t.Fatal(err)
	}
	m, err := tierscore.Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTrainWritesAModelThatIsBetter(t *testing.T) {
	f := newTrainFiles(t, true)
	s := f.run(t)
	if s.status != 0 || s.messages != "" || !strings.Contains(s.out, "result       the model is better") ||
		!strings.Contains(s.out, "400 of 400 lines") || !strings.Contains(s.out, "\ndifference   APGR 0.") {
		t.Fatalf("status %d\n%s%s", s.status, s.out, s.messages)
	}
	m := f.read(t)
	var of [2]tierscore.Features
	for i, text := range []string{"easy 3", "hard 3"} {
		tierscore.NewExtractor("").Extract(&of[i], &tierscore.Input{Tenant: "acme", User: []byte(text), Turns: 1})
	}
	easy, known := m.Score(&of[0])
	hard, also := m.Score(&of[1])
	if !known || !also || hard <= easy {
		t.Errorf("the scores are %v and %v", easy, hard)
	}
	if info, err := os.Stat(f.model); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the mode of the model is %v, %v", info.Mode(), err)
	}
	before, err := os.ReadFile(f.model)
	if err != nil {
		t.Fatal(err)
	}
	s = f.run(t, "--json")
	var r training.Report
	if err := json.Unmarshal([]byte(s.out), &r); err != nil || r.Requests != 400 || r.Difference.Low <= 0 {
		t.Errorf("%v: %s", err, s.out)
	}
	if after, err := os.ReadFile(f.model); err != nil || !bytes.Equal(after, before) {
		t.Errorf("a second training gives another model: %v", err)
	}
}

// TestTrainReportsLabelsThatDoNotCount: of other tenants, of repeated ids, and feedback without exploration.
func TestTrainReportsLabelsThatDoNotCount(t *testing.T) {
	f := newTrainFiles(t, true)
	features, err := os.ReadFile(f.features)
	if err != nil {
		t.Fatal(err)
	}
	answered := strings.Replace(string(features), `"baseline"`, `"tenant":"acme","tier":"small","baseline"`, 1)
	first, rest, _ := strings.Cut(answered, "\n")
	labels, err := os.ReadFile(f.labels)
	if err != nil {
		t.Fatal(err)
	}
	feedback := `{"id":"r0","ts":"2026-01-02T00:00:00Z","tenant":"acme","ok":true,"weight":1,"source":"feedback"}` + "\n"
	f.write(t, f.labels, string(labels)+feedback+strings.Replace(feedback, "acme", "other", 1))
	f.write(t, f.features, first+"\n"+rest+rest[:strings.Index(rest, "\n")+1])
	s := f.run(t)
	for _, want := range []string{
		"\nlabels       399 requests of the small tier",
		"\n             unused lines of another tenant than the request's: 1\n",
		"\n             unused lines of features with the tenant and id of another one: 2\n",
		"\nexplored     no request: 1 lines of feedback do not evaluate; set learning.replay\n",
	} {
		if !strings.Contains(s.out, want) {
			t.Errorf("status %d: no %q in\n%s%s", s.status, want, s.out, s.messages)
		}
	}
	f.write(t, f.features, strings.Replace(first, `"tier"`, `"explored":0.5,"tier"`, 1)+"\n"+rest)
	const hint = "\n             feedback about 1 of them does not evaluate; if clients give it about all answers: " +
		"--evaluate-feedback\n"
	for _, more := range [][]string{nil, {"--evaluate-feedback"}} {
		if s := f.run(t, more...); !strings.Contains(s.out, "\nexplored     1 requests\n") ||
			strings.Contains(s.out, hint) != (more == nil) {
			t.Errorf("%q: status %d:\n%s%s", more, s.status, s.out, s.messages)
		}
	}
}

func TestTrainDoesNotEnableAModelThatIsNotBetter(t *testing.T) {
	f := newTrainFiles(t, false)
	s := f.run(t)
	if s.status != 1 ||
		!strings.Contains(s.messages, "is written and not enabled: the model is not better than the default score") ||
		!strings.Contains(s.out, "result       not enabled") {
		t.Errorf("status %d\n%s%s", s.status, s.out, s.messages)
	}
	if f.read(t).Enabled {
		t.Error("the model is enabled")
	}
}

func TestTrainNamesTheErrorAndWritesNoModel(t *testing.T) {
	f := newTrainFiles(t, true)
	good, err := os.ReadFile(f.labels)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want, labels string
		more         []string
	}{
		{f.labels + ":801: ok is missing",
			string(good) + `{"id":"x","ts":"2026-01-01T00:00:00Z","tier":"small","source":"replay"}`, nil},
		{"have no id in common", strings.ReplaceAll(string(good), `"id":"r`, `"id":"other`), nil},
		{"labels on 400 requests with features, the large tier on 0; at least 50",
			strings.ReplaceAll(string(good), `"large"`, `"medium"`), nil},
		{`no label is of the tiers "a" and`, string(good), []string{"--small", "a", "--large", "b"}},
		{`--small and --large are both "lar`, string(good), []string{"--small", "large"}},
		{"the files of --labels have no line", "", nil},
		{"no such file or directory", string(good), []string{"--labels", "absent"}},
		{"no such file or directory", string(good), []string{"-o", filepath.Join("absent", "m")}},
	} {
		f.write(t, f.labels, c.labels)
		if s := f.run(t, c.more...); s.status != 2 || !strings.Contains(s.messages, c.want) || s.out != "" {
			t.Errorf("%s: status %d\n%s%s", c.want, s.status, s.out, s.messages)
		}
	}
	if _, err := os.Stat(f.model); err == nil {
		t.Error("a model is written")
	}
	if s := tierway(t, "train", "--features", f.features, "--labels", f.labels); s.status != 2 ||
		!strings.Contains(s.messages, "--output is required") {
		t.Errorf("status %d\n%s%s", s.status, s.out, s.messages)
	}
}

// TestTrainReplacesModelsOnly: the model replaces no input, link or folder, and nothing is trained before.
func TestTrainReplacesModelsOnly(t *testing.T) {
	f := newTrainFiles(t, true)
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(f.features, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ output, want string }{
		{f.features, "is a file of --features or --labels"},
		{f.labels, "is a file of --features or --labels"},
		{link, "is not a regular file"},
		{dir, "is not a regular file"},
		{filepath.Join(dir, "absent", "m"), "no such file or directory"},
		{"-", "name a file"},
	} {
		if s := f.run(t, "-o", c.output); s.status != 2 || !strings.Contains(s.messages, c.want) || s.out != "" {
			t.Errorf("%s: status %d\n%s%s", c.output, s.status, s.out, s.messages)
		}
	}
	if s := f.run(t, "--large", "gpt"); s.status != 2 || !strings.Contains(s.messages, "400 labels are of other tiers") {
		t.Errorf("status %d\n%s", s.status, s.messages)
	}
}

// TestTrainUsesFeaturesOfTheNewestKey: older files may have those of an earlier hash_key.
func TestTrainUsesFeaturesOfTheNewestKey(t *testing.T) {
	f := newTrainFiles(t, true)
	features, err := os.ReadFile(f.features)
	if err != nil {
		t.Fatal(err)
	}
	line := func(at string) string {
		var one tierscore.Features
		tierscore.NewExtractor("0123456789abcdef").Extract(&one, &tierscore.Input{User: []byte("easy")})
		return fmt.Sprintf(`{"id":"old","ts":%q,"baseline":1,"features":%s}`+"\n", at, one.AppendJSON(nil))
	}
	f.write(t, f.features, line("2025-12-31T00:00:00Z")+string(features))
	const unused = "\n             unused lines of features with another hash_key than the newest one: 1\n"
	s := f.run(t)
	if s.status != 0 || !strings.Contains(s.out, "requests     400 of 401 lines") || !strings.Contains(s.out, unused) {
		t.Errorf("status %d\n%s%s", s.status, s.out, s.messages)
	}
	f.write(t, f.features, line("2026-02-01T00:00:00Z")+string(features))
	if s := f.run(t); s.status != 2 ||
		!strings.Contains(s.messages, "newest hash_key: 400 of 401 lines have another one") {
		t.Errorf("status %d\n%s", s.status, s.messages)
	}
}

// TestFeaturesThatAreReadTwiceAreNamed: the ids are in common, so the cause is another one.
func TestFeaturesThatAreReadTwiceAreNamed(t *testing.T) {
	f := newTrainFiles(t, true)
	features, err := os.ReadFile(f.features)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, f.features, string(features)+string(features))
	const want = "800 of 800 lines of features have the tenant and id of another line, and no other line has labels: " +
		"name each file once"
	if s := f.run(t); s.status != 2 || !strings.Contains(s.messages, want) {
		t.Errorf("status %d: %s%s", s.status, s.out, s.messages)
	}
}
