package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func digestOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// TestHostsAreChecked: a host has no scheme, port or capital letters.
func TestHostsAreChecked(t *testing.T) {
	const hint = "(write a name in lower case without scheme and port, such as tierway.example.com; IP addresses need no entry)"
	want := []string{}
	for i, text := range []string{"http://a", "a:80", "A", "*.a", "", "10.0.0.1", "::1", ".a"} {
		want = append(want, fmt.Sprintf("hosts[%d]: %q is not a host name %s", i, text, hint))
	}
	want = append(want, `hosts[12]: "a" is listed twice (remove one of them)`)
	got := []string{}
	for _, p := range problemsOf(t,
		keys+small+
			`hosts: ["http://a", "a:80", A, "*.a", "", 10.0.0.1, "::1", .a, a, tier-way.example.com, vllm_1, host.docker.internal, a]`+"\n", nil) {
		_, rest, _ := strings.Cut(p, ": ")
		got = append(got, rest)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	_, err := FromFlags([]string{"m"}, []string{"http://h:1"}, []string{"a:80"}, "", "")
	if err == nil || !strings.Contains(err.Error(), `--hosts[0]: "a:80" is not a host name`) {
		t.Errorf("of the flag: %v", err)
	}
	if f, err := FromFlags([]string{"m"}, []string{"http://h:1"}, []string{"host.docker.internal"}, "", ""); err != nil ||
		len(f.Hosts) != 1 {
		t.Errorf("of the flag: %v", err)
	}
}

// TestOriginStarNeedsKeys: listed origins are allowed without keys.
func TestOriginStarNeedsKeys(t *testing.T) {
	const src = "auth: {required: %v, keys: [{name: a, sha256: " + digestA + "}]}\n" + small + "cors: {origins: [%q]}\n"
	for _, c := range []struct {
		required bool
		origin   string
		problems int
	}{{true, "*", 0}, {false, "https://app.example.com", 0}, {false, "*", 1}} {
		if got := problemsOf(t, fmt.Sprintf(src, c.required, c.origin), nil); len(got) != c.problems {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestDigestOfAWeakKeyIsRejected: on both planes, in upper and lower case.
func TestDigestOfAWeakKeyIsRejected(t *testing.T) {
	for _, key := range []string{"changeme", "sk-1234", "password", "EMPTY", "sk-no-key-required"} {
		got := problemsOf(t, "auth: {keys: [{name: a, sha256: "+strings.ToUpper(digestOf(key))+"}]}\n"+small, nil)
		if len(got) != 1 || !strings.Contains(got[0], "auth.keys[0].sha256: is the digest of a well-known key") {
			t.Errorf("%q: %q", key, got)
		}
		got = problemsOf(t, keys+small+"admin: {keys: [{name: a, sha256: "+digestOf(key)+"}]}\n", nil)
		if len(got) != 1 || !strings.Contains(got[0], "admin.keys[0].sha256: is the digest of a well-known key") {
			t.Errorf("%q: %q", key, got)
		}
	}
}

// TestWorkerKeyWithControlCharactersIsRejected: a header cannot contain it. The problem does
// not show it.
func TestWorkerKeyWithControlCharactersIsRejected(t *testing.T) {
	src := keys + `tiers: [{name: a, model: m, workers: [{name: w, url: "http://h:1", api_key_env: KEY}]}]` + "\n"
	for _, key := range []string{"hunter2\n", "hunter2\r\nX-Admin: 1", "hun\x00ter2", "hunter2\x7f", "\thunter2"} {
		got := problemsOf(t, src, map[string]string{"KEY": key})
		if len(got) != 1 || !strings.Contains(got[0], "workers[0].api_key_env: the key in the environment variable KEY "+
			"contains a line break or another control character") ||
			strings.Contains(got[0], "ter2") {
			t.Errorf("%q: %q", key, got)
		}
	}
}
