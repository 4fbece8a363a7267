package config

import (
	"errors"
	"strings"
	"testing"
)

// The text of a live file is a draft that changes nothing. No draft changes the live configuration or
// shows values of the environment.
func FuzzDraft(f *testing.F) {
	for _, draft := range []string{"", live, "tiers: [{name: small, workers: [{name: w0, weight: 0}, {name: w9}]}]",
		"tiers: &a [{name: small, pools: *a}, *a]",
		"models: {auto: , x: ${OTHER}, ? [a] : b}", "policy: !!x {name: random}",
		"auth: {keys: [{name: a}, {name: a}, {}, null, x, {name: [a], sha256: {}}]}",
		"store: {sql: \"postgres://u:${PW}@h/db\", redis: null}\ntls: {cert: x, key: }", "<<: {a: b}",
		"tiers: null\npools: {}\nretry: 5\ncors: {origins: ['$${x}', null, [a]]}",
		"classifier: {keywords: [{name: k, in: [system], match: ['(']}], prompt_tokens: {}}",
		"a: &a b\n*a : c\nqueue: {age: {batch: ~}, <<: *a}"} {
		// every parse compiles all expressions of the presets
		for _, src := range []string{live, inherited + "classifier: {preset: none}",
			keys + small + "classifier: {preset: none}"} {
			f.Add(src, draft)
		}
	}
	env := environment(liveEnv)
	f.Fuzz(func(t *testing.T, src, text string) {
		file, err := Parse("f", []byte(src), env)
		if err != nil {
			return
		}
		before := string(printed(file))
		same, err := file.Draft(t.Context(), []byte(src))
		if err != nil {
			t.Fatalf("the live file is no draft: %v\n%s", err, src)
		}
		if changes := Changes(file, same); len(changes) > 0 || string(printed(same)) != before {
			t.Fatalf("the live file is another configuration: %v", changes)
		}
		draft, err := file.Draft(t.Context(), []byte(text))
		var ps Problems
		switch {
		case err == nil && draft == nil, err != nil && (draft != nil || !errors.As(err, &ps) || !ps.Failed()):
			t.Fatalf("%v with %v", draft, err)
		case err == nil:
			ps = draft.Warnings()
		}
		for _, p := range ps {
			if p.Message == "" || p.File != draftName || p.Line < 0 || p.Line > len(splitLines(text))+1 {
				t.Fatalf("a bad problem: %+v", p)
			}
			if strings.Contains(p.String(), liveEnv["OTHER"]) || strings.Contains(p.String(), liveEnv["PW"]) &&
				!strings.Contains(text+src, liveEnv["PW"]) {
				t.Fatalf("a problem shows the environment: %v", p)
			}
		}
		if string(printed(file)) != before {
			t.Fatal("the live configuration changed")
		}
	})
}
