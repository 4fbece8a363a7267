package config

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

// printed returns a configuration in the form of a file.
func printed(f *File) []byte {
	out, err := yaml.Marshal(nodeOf(reflect.ValueOf(f).Elem(), key{}, false))
	if err != nil {
		panic(err)
	}
	return out
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	defaults := Default()
	for _, seed := range [][]byte{example, printed(&defaults), []byte(keys + small), []byte(inherited), nil,
		[]byte("a: &a [*a]"), []byte("? {a: [b, *c]}\n: - x"), []byte("tiers: [{name: ${A:-b}${, workers: [{}]}]"),
		[]byte("\t"), []byte("a: b\n---\nc: d\n"), []byte("<<: {a: b}"),
		[]byte("models: {\"a\\\"]: b\": x, ? !!binary x : y}"),
		[]byte("auth: {keys: [{sha256: 'x\ny'}]}"), []byte("%YAML 1.2\n---\n- !<x> y"), []byte("\r\r0"),
		[]byte("\xef\xbb\xbflisten: x"),
		[]byte(keys + three + "policy: {epsilon: 0, slack: 1e-9}\nbreaker: {slow: {factor: 0}}"),
		[]byte("policy: {name: random, epsilon: .inf}"),
		[]byte(keys + three +
			`classifier: {prompt_tokens: {large: 7}, max_tokens: {}, keyword_score: {large: 2}, sticky: {enabled: false},
  keywords: [{tier: large, name: a, weight: 2, in: [system], match: ['(?i)a{2,3}b|c*', "\\bx"]}, {tier: huge, name: a, match: ['(']}]}`),
		[]byte("store: {sql: 'postgres://u:p@h', redis: '', retention: 0}\ngateways: 3\ntrusted_proxies: ['::1', " +
			"10.0.0.0/8]\nadmin: {keys: [{name: a, role: viewer, sha256: " + digestB + "}]}\n" + small),
		[]byte("auth: {keys: [{name: a, sha256: " + digestA +
			", limits: {rpm: 5, burst: 1, day_money: 0.5}, default_priority: batch}]}\n" +
			"tiers: [{name: small, model: m, price: {input: 1e-9, cached_input: 0}, workers: [{name: w, url: \"http://h:1\"}]}]"),
		[]byte(withTier("queue: {max_depth: 0, max_wait: {batch: 0s}, age: {interactive: 1s, batch: }, aged_share: 0.5, "+
			"max_bytes: 0, displace: true}, saturation: {waiting: 0, kv_usage: 1e-3},") +
			"queue: {max_bytes: 1 KB, engine_wait: 1h, age: }\nsaturation: {stale_after: 1ms}\n"),
		[]byte("store: {sql: ''}\nclassifier: {prompt_tokens: {small: 9, large: 3, \"a.b\": -1}, keyword_score: {x: 0}}")} {
		f.Add(seed)
	}
	env := environment(map[string]string{"TIERWAY_KEY_SHA256": digestA, "K": "worker-key"})
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := Parse("f", src, env)
		var ps Problems
		switch {
		case err == nil && file == nil:
			t.Fatal("neither a file nor an error")
		case err != nil && (file != nil || !errors.As(err, &ps) || !ps.Failed()):
			t.Fatalf("%v with %v", file, err)
		case err == nil:
			again, err := Parse("f", printed(file), env)
			if err != nil {
				t.Fatalf("what was printed does not load: %v\n%s", err, printed(file))
			}
			if !bytes.Equal(printed(file), printed(again)) {
				t.Fatal("what was printed and read is another configuration")
			}
			if changes := Changes(file, again); len(changes) > 0 {
				t.Fatalf("what was printed and read differs: %v", changes)
			}
			return
		}
		for _, p := range ps {
			if p.Message == "" || p.File != "f" || p.Line < 0 || p.Line > len(splitLines(string(src)))+1 {
				t.Fatalf("a bad problem: %+v", p)
			}
		}
		if err := ps.Format(io.Discard, src); err != nil {
			t.Fatal(err)
		}
	})
}
