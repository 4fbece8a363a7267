package openai

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// All other bytes stay unchanged.
func TestEngineFieldsAreRemovedWithOneComma(t *testing.T) {
	for name, tt := range map[string]struct {
		d          Dialect
		edit       Edit
		body, want string
	}{
		"none": {Chat, Edit{}, `{"model":"m","messages":[{}]}`, `{"model":"m","messages":[{}]}`},
		"first": {Chat, Edit{},
			`{ "kv_transfer_params" : {"remote_host":"h"} , "model":"m","messages":[{}]}`, `{  "model":"m","messages":[{}]}`},
		"in between": {Chat, Edit{}, `{"model":"m", "vllm_xargs":{"a":1}, "messages":[{}]}`,
			`{"model":"m", "messages":[{}]}`},
		"last": {Messages, Edit{}, `{"model":"m","messages":[{}] , "kv_transfer_params":null }`,
			`{"model":"m","messages":[{}]  }`},
		"several": {Chat, Edit{},
			`{"vllm_xargs":1,"bootstrap_host":"h","model":"m","bootstrap_room":5,"messages":[{}],"bootstrap_port":1}`,
			`{"model":"m","messages":[{}]}`},
		"twice": {Chat, Edit{}, `{"vllm_xargs":1,"vllm_xargs":2,"model":"m","vllm_xargs":3,"messages":[{}]}`,
			`{"model":"m","messages":[{}]}`},
		"escaped": {Chat, Edit{}, `{"model":"m","kv_transfer_par\u0061ms":{},"messages":[{}]}`,
			`{"model":"m","messages":[{}]}`},
		"other case": {Chat, Edit{}, `{"model":"m","KV_Transfer_Params":{},"vllm_xarg\u017f":1,"messages":[{}]}`,
			`{"model":"m","messages":[{}]}`},
		"nested": {Chat, Edit{},
			`{"model":"m","metadata":{"vllm_xargs":1},"messages":[{"kv_transfer_params":1}]}`,
			`{"model":"m","metadata":{"vllm_xargs":1},"messages":[{"kv_transfer_params":1}]}`},
		"longer name": {Chat, Edit{}, `{"model":"m","vllm_xargs2":1,"messages":[{}]}`,
			`{"model":"m","vllm_xargs2":1,"messages":[{}]}`},
		"only engine fields": {Other, Edit{}, `{ "vllm_xargs":1 , "routed_dp_rank":2 }`, `{   }`},
		"only engine fields, with edits": {Tokenize, Edit{Model: "n", CacheSalt: "s"},
			`{"vllm_xargs":1,"data_parallel_rank":2}`,
			`{"model":"n"}`},
		"all edits": {Chat, Edit{Model: "n", IncludeUsage: true, CacheSalt: "s", Priority: 20, SetPriority: true},
			`{"vllm_xargs":1,"model":"m","stream":true,"messages":[{}],"priority":1,"ec_transfer_params":{}}`,
			`{"stream_options":{"include_usage":true},"cache_salt":"s","model":"n","stream":true,"messages":[{}],"priority":20}`},
		"only engine fields in a score": {Score, Edit{Model: "n", CacheSalt: "s", Priority: 10, SetPriority: true},
			`{"vllm_xargs":1}`, `{"model":"n","cache_salt":"s","priority":10}`},
		"empty body": {Score, Edit{Model: "n", CacheSalt: "s"}, `{}`, `{"model":"n","cache_salt":"s"}`},
		"allowed": {Chat, Edit{AllowFields: []string{"vllm_xargs"}},
			`{"vllm_xargs":1,"bootstrap_host":"h","model":"m","messages":[{}]}`, `{"vllm_xargs":1,"model":"m","messages":[{}]}`},
		"allowed after others": {Other, Edit{AllowFields: []string{"vllm_xargs"}},
			`{"bootstrap_host":"h","vllm_xargs":1,"bootstrap_port":1}`, `{"vllm_xargs":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse(tt.d, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(bytes.Join(r.Splice(tt.edit), nil)); got != tt.want {
				t.Errorf("%s\nbecame %s\nwant   %s", tt.body, got, tt.want)
			}
		})
	}
}

func TestEngineFieldsAreRemovedFromAnyBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawBody(t)
		for i := range rapid.IntRange(1, 4).Draw(t, "fields") {
			name := rapid.SampledFrom(EngineFields[:]).Draw(t, "field")
			value := rapid.SampledFrom([]string{"1", `{"remote_host":"x,}"}`, "null", `[","]`}).Draw(t, "value")
			members = slices.Insert(members, i, member{`"` + name + `"`, value})
		}
		body := assemble(rapid.Permutation(members).Draw(t, "order"), drawSpace(t))
		r, err := Parse(Chat, []byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		e := Edit{Model: rapid.SampledFrom([]string{"", "new"}).Draw(t, "model"), IncludeUsage: rapid.Bool().Draw(t, "usage"),
			CacheSalt: rapid.SampledFrom([]string{"", "salt"}).Draw(t, "salt"), Priority: 5,
			SetPriority: rapid.Bool().Draw(t, "priority")}
		after := bytes.Join(r.Splice(e), nil)
		again, err := Parse(Chat, after)
		if err != nil || len(again.place.engine) > 0 {
			t.Fatalf("%s became %s: %v", body, after, err)
		}
		var kept strings.Builder
		for line := range strings.Lines(otherMembers(t, []byte(body))) {
			if name, _, _ := strings.Cut(line, ":"); engineField([]byte(name)) == "" {
				kept.WriteString(line)
			}
		}
		if now := otherMembers(t, after); now != kept.String() {
			t.Fatalf("%s became %s:\n%s\n%s", body, after, kept.String(), now)
		}
	})
}

func TestPartsOfAFormWithEngineFieldsAreRemoved(t *testing.T) {
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	body := part("vllm_xargs", `{"a":1}`) + part("model", "m") + part("vllm_xargs[a]", "1") +
		part("prompt", "vllm_xargs") + part("Kv_transfer_params", "{}") + "--b--\r\n"
	want := part("model", "n") + part("prompt", "vllm_xargs") + "--b--\r\n"
	r, err := ParseMultipart("multipart/form-data; boundary=b", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(bytes.Join(r.Splice(Edit{Model: "n"}), nil)); got != want {
		t.Errorf("became %q\nwant   %q", got, want)
	}
	if got := fmt.Sprint(len(r.Splice(Edit{AllowFields: EngineFields[:]}))); got != "1" {
		t.Errorf("all allowed: %s pieces", got)
	}
	only, err := ParseMultipart("multipart/form-data; boundary=b", []byte(part("vllm_xargs", "{}")+"--b--"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(bytes.Join(only.Splice(Edit{Model: "n"}), nil)); got != part("model", "n")+"--b--" {
		t.Errorf("the only part: %q", got)
	}
}
