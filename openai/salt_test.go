package openai

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// AU-13: two tenants never share a salt, for all values that clients send.
func TestNoTwoTenantsShareASalt(t *testing.T) {
	seen := map[string][2]string{}
	for _, tenant := range []string{"a", "ab", "b", "abc", ""} {
		for _, client := range []string{"", "a", "b", "bc", "c", "abc", CacheSalt("a", ""), CacheSalt("ab", "c")} {
			s := CacheSalt(tenant, client)
			if len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
				t.Errorf("%q is not a hexadecimal SHA-256", s)
			}
			if other, ok := seen[s]; ok {
				t.Errorf("%q and %q have one salt", other, [2]string{tenant, client})
			}
			seen[s] = [2]string{tenant, client}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		pair := func(label string) [2]string {
			return [2]string{rapid.String().Draw(t, label), rapid.String().Draw(t, label+" salt")}
		}
		a, b := pair("one"), pair("other")
		if (CacheSalt(a[0], a[1]) == CacheSalt(b[0], b[1])) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestSaltsAreStable(t *testing.T) {
	// A changed salt empties the cache of every engine for its tenants.
	if got, want := CacheSalt("acme", "mine"), "57cbb6c6a10996eb1f2f086bf9caf3fef71bcb449345225a9edd2e94264e1e6c"; got !=
		want {
		t.Errorf("%s, want %s", got, want)
	}
}

// AU-13: in every dialect, the gateway reads each salt before it reaches an engine.
func TestSaltsAreReadInEveryDialect(t *testing.T) {
	for d, body := range minimal {
		with := func(value string) string {
			return strings.TrimSuffix(strings.TrimSuffix(body, "}")+",", "{,") + map[bool]string{true: "{"}[body == "{}"] +
				`"cache_salt":` + value + "}"
		}
		for value, want := range map[string]string{`"s"`: "s", `"\u0073\u00e9"`: "sé", `""`: "", "null": "",
			`"` + strings.Repeat("x", 512) + `"`: strings.Repeat("x", 512)} {
			r, err := Parse(d, []byte(with(value)))
			if err != nil || r.CacheSalt != want {
				t.Errorf("%s %s: %+v, %v", d, with(value), r, err)
			}
		}
		for _, value := range []string{"5", "true", "{}", `["s"]`, `"` + strings.Repeat("x", 513) + `"`} {
			got := parseError(t, d, with(value))
			if diff := cmp.Diff([]string{string(CodeInvalidValue), "cache_salt"},
				[]string{string(got.Reason), got.Param}); diff != "" {
				t.Errorf("%s %s: %s", d, value, diff)
			}
		}
		if got := parseError(t, d, with(`"private"`)[:len(with(`"private"`))-1]+`,"cache_salt":"other"}`); got.Reason !=
			CodeAmbiguousJSON || strings.Contains(got.Message, "private") {
			t.Errorf("%s twice: %+v", d, got)
		}
	}
}

func TestEnginesThatTakeASalt(t *testing.T) {
	for e, want := range map[Engine]bool{EngineVLLM: true, EngineSGLang: true, EngineAuto: false, EngineLlamaCpp: false,
		EngineOllama: false, EngineOpenAI: false, "": false} {
		if got := e.TakesCacheSalt(); got != want {
			t.Errorf("%q takes a salt: %v", e, got)
		}
	}
}
