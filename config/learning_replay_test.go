package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReplayIsChecked: each problem names the key and the way out, and none shows the key of the tenant.
func TestReplayIsChecked(t *testing.T) {
	const secret = "key-of-the-operator"
	digest := sha256.Sum256([]byte(secret))
	two := "auth: { keys: [{ name: operator, sha256: " + hex.EncodeToString(digest[:]) + " }] }\n" +
		"store: { sql: '' }\n" +
		"tiers: [{ name: a, model: m, workers: [{ name: v, url: 'http://h:1' }] }, " +
		"{ name: b, model: n, workers: [{ name: w, url: 'http://h:2' }] }]\n" +
		"pools: [{ name: p, models: [j], serves: [chat], workers: [{ name: u, url: 'http://h:3' }] }]\n" +
		"models: { any: classify, best: a }\n"
	judge := filepath.Join(t.TempDir(), "judge")
	if err := os.WriteFile(judge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	replay := func(more string) string {
		return two + "learning: { hash_key: " + hashKey + ", directory: d, replay: { " + more + " } }\n"
	}
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"a command": {replay("share: 0.01, api_key: '${KEY}', judge: { command: [sh, -c, x, -c] }, timeout: 1s"), nil},
		"a model":   {replay("share: 0.1, api_key: '${KEY}', judge: { model: j }"), nil},
		"auto judges": {replay("share: 0.1, api_key: '${KEY}', judge: { model: auto }"), []string{
			`warning: learning.replay.judge.model: "auto" lets the classifier select the tier`}},
		"an alias of auto": {replay("share: 0.1, api_key: '${KEY}', judge: { model: any }"), []string{
			`warning: learning.replay.judge.model: "any" lets the classifier select the tier`}},
		"a tier judges": {replay("share: 0.1, api_key: '${KEY}', judge: { model: a }"), []string{
			`warning: learning.replay.judge.model: "a" leads to the tier "a", whose answers are compared`}},
		"a tier's model judges": {replay("share: 0.1, api_key: '${KEY}', judge: { model: n }"), []string{
			`warning: learning.replay.judge.model: "n" leads to the tier "b", whose answers are compared`}},
		"an alias of a tier": {replay("share: 0.1, api_key: '${KEY}', judge: { model: best }"), []string{
			`warning: learning.replay.judge.model: "best" leads to the tier "a", whose answers are compared`}},
		"the key of a tenant without a tier": {strings.Replace(replay("share: 0.1, api_key: '${KEY}', judge: { model: j }"),
			"name: operator,", "name: operator, tiers: [a, p],", 1), []string{
			`learning.replay.api_key: belongs to "operator", which may not use the tier "b"`}},
		"the key of a tenant with both tiers": {strings.Replace(replay("share: 0.1, api_key: '${KEY}', judge: { model: j }"),
			"name: operator,", "name: operator, tiers: [a, b],", 1), nil},
		"off": {replay("share: 0"), nil},
		"a large share": {replay("share: 0.2, api_key: '${KEY}', judge: { model: j }"), []string{
			"learning.replay.share: want a number from 0 to 0.1"}},
		"no share": {replay("api_key: '${KEY}', judge: { model: j }"), []string{
			"warning: learning.replay: has no effect without a share"}},
		"no key":   {replay("share: 0.01, judge: { model: j }"), []string{"learning.replay.api_key: is missing"}},
		"no judge": {replay("share: 0.01, api_key: '${KEY}'"), []string{"learning.replay.judge: is missing"}},
		"another key": {replay("share: 0.01, api_key: '${OTHER}', judge: { model: j }"), []string{
			"learning.replay.api_key: is no key of auth.keys"}},
		"the key of a database": {strings.Replace(replay("share: 0.01, api_key: '${OTHER}', judge: { model: j }"),
			"sql: ''", "sql: 'sqlite://t.db'", 1), nil},
		"two judges": {replay("share: 0.01, api_key: '${KEY}', judge: { command: [sh], model: j }"), []string{
			"learning.replay.judge: has a command and a model"}},
		"another judge": {replay("share: 0.01, api_key: '${KEY}', judge: { url: 'http://h' }"), []string{
			"learning.replay.judge: is missing", "learning.replay.judge.url: unknown key"}},
		"an unknown model": {replay("share: 0.01, api_key: '${KEY}', judge: { model: nobody }"), []string{
			`learning.replay.judge.model: "nobody" is not served: no tier, no pool and no entry of models has this name`}},
		"a missing command": {replay("share: 0.01, api_key: '${KEY}', judge: { command: [/no/judge] }"), []string{
			`warning: learning.replay.judge.command[0]: "/no/judge" does not exist`}},
		"a command without permission": {replay("share: 0.01, api_key: '${KEY}', judge: { command: ['${JUDGE}'] }"), []string{
			`warning: learning.replay.judge.command[0]: "${JUDGE}" is not executable`}},
		"one tier": {strings.Replace(replay("share: 0.01, api_key: '${KEY}', judge: { model: m }"),
			", { name: b, model: n, workers: [{ name: w, url: 'http://h:2' }] }", "", 1), []string{
			"learning.replay.share: has no effect with fewer than two tiers"}},
		"no directory": {strings.Replace(replay("share: 0.01, api_key: '${KEY}', judge: { model: j }"), ", directory: d", "",
			1), []string{"learning.replay.share: has no effect without learning.directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			env := map[string]string{"KEY": secret, "OTHER": secret + "s", "JUDGE": judge}
			for i, problem := range problemsOf(t, c.src, env) {
				_, problem, _ = strings.Cut(problem, ": ")
				if i < len(c.want) && strings.HasPrefix(problem, c.want[i]) {
					problem = c.want[i]
				}
				if strings.Contains(problem, secret) {
					t.Errorf("the key is shown: %s", problem)
				}
				got = append(got, problem)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestDraftDoesNotShowWhetherTheCommandOfAJudgeExists, which the active configuration does.
func TestDraftDoesNotShowWhetherTheCommandOfAJudgeExists(t *testing.T) {
	const src = keys + "store: { sql: 'sqlite://t.db' }\n" +
		"tiers: [{ name: a, model: m, workers: [{ name: v, url: 'http://h:1' }] }, " +
		"{ name: b, model: n, workers: [{ name: w, url: 'http://h:2' }] }]\n" +
		"learning: { hash_key: " + hashKey + ", directory: d, replay: { share: 0.01, api_key: abc, judge: { command: [/no/judge] } } }\n"
	before := parsed(t, src, nil)
	draft, err := before.Draft(t.Context(), []byte(src))
	if err != nil || len(before.Warnings()) != 1 || len(draft.Warnings()) != 0 {
		t.Errorf("%v: %v and %v", err, before.Warnings(), draft.Warnings())
	}
}
