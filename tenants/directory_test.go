package tenants

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func digestOf(key string) string {
	d := Digest(key)
	return hex.EncodeToString(d[:])
}

// ownKey returns a well-formed key, a different one for each n.
func ownKey(t *testing.T, n byte) string {
	t.Helper()
	key, err := NewKey(bytes.NewReader(bytes.Repeat([]byte{n}, secretBytes)), TenantPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustDirectory(t *testing.T, keys ...KeyConfig) *Directory {
	t.Helper()
	ts, ks, err := FromConfig(keys)
	if err != nil {
		t.Fatal(err)
	}
	return NewDirectory(ts, ks)
}

// noon is the time of these tests. Keys of config.yaml never expire.
func noon() time.Time { return time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC) }

// TestTenantsOfOneNameInSuccessionDiffer: a tenant of config.yaml is its name and the keys there, in any order.
func TestTenantsOfOneNameInSuccessionDiffer(t *testing.T) {
	since := func(with string, keys ...string) int64 {
		t.Helper()
		var configs []KeyConfig
		for _, key := range keys {
			configs = append(configs, KeyConfig{Name: "one", SHA256: digestOf(key)})
		}
		c, err := mustDirectory(t, append(configs, KeyConfig{Name: "two", SHA256: digestOf("another")})...).
			Authenticate(with, noon())
		if err != nil {
			t.Fatal(err)
		}
		return c.Since
	}
	first := since("a-key", "a-key", "b-key")
	if first == 0 || first != since("b-key", "b-key", "a-key") || first == since("a-key", "a-key") ||
		first == since("a-key", "a-key", "c-key") || first == since("another", "a-key", "b-key") {
		t.Error("the keys do not decide")
	}
}

// AU-01, AU-02: unknown and malformed keys and wrong checksums get the same error, and
// malformed ones are not looked up.
func TestOnlyTheExactKeyAuthenticates(t *testing.T) {
	own, foreign := ownKey(t, 1), "sk-from-another-house"
	badSum := own[:len(own)-1] + "!"
	d := mustDirectory(t,
		KeyConfig{Name: "one", SHA256: digestOf(own)},
		KeyConfig{Name: "two", SHA256: strings.ToUpper(digestOf(foreign))},
		KeyConfig{Name: "three", SHA256: digestOf(badSum)},
	)
	for key, want := range map[string]string{
		own: "one", foreign: "two",
		"":              "",
		badSum:          "", // its digest is there: it must not be looked up
		ownKey(t, 2):    "",
		own + " ":       "",
		own[1:]:         "",
		"sk-other":      "",
		digestOf(own):   "",
		"tw-":           "",
		"Bearer " + own: "",
	} {
		got := ""
		caller, err := d.Authenticate(key, noon())
		if err == nil {
			got = caller.Tenant
		}
		if got != want || want == "" && (!errors.Is(err, ErrUnknownKey) || caller != nil) {
			t.Errorf("%q is %q (%v), want %q", key, got, err, want)
		}
	}
}

func TestEmptyDirectoryRefusesEveryKey(t *testing.T) {
	if c, err := mustDirectory(t).Authenticate(ownKey(t, 1), noon()); c != nil || !errors.Is(err, ErrUnknownKey) {
		t.Errorf("%v got in, %v", c, err)
	}
}

func TestEachMistakeIsReportedUnderItsConfigKey(t *testing.T) {
	a, b := digestOf("a"), digestOf("b")
	for name, c := range map[string]struct {
		keys []KeyConfig
		want []string
	}{
		"short digest": {[]KeyConfig{{Name: "x", SHA256: a[1:]}}, []string{"auth.keys[0].sha256: has 63 characters"}},
		"no digest":    {[]KeyConfig{{Name: "x"}}, []string{"auth.keys[0].sha256: has 0 characters"}},
		"not hex": {[]KeyConfig{{Name: "x", SHA256: a[:63] + "g"}},
			[]string{"auth.keys[0].sha256: is not hexadecimal"}},
		"of the empty": {[]KeyConfig{{Name: "x", SHA256: digestOf("")}},
			[]string{"auth.keys[0].sha256: is the digest of an empty key"}},
		"one key twice": {[]KeyConfig{{Name: "x", SHA256: a}, {Name: "y", SHA256: strings.ToUpper(a)}},
			[]string{"auth.keys[1].sha256: is the digest of auth.keys[0] too"}},
		"bad names": {[]KeyConfig{{SHA256: a}, {Name: "../../x", SHA256: b}},
			[]string{`auth.keys[0].name: "" is not a valid name`, `auth.keys[1].name: "../../x" is not a valid name`}},
		"two tenants": {[]KeyConfig{{Name: "x", SHA256: a}, {Name: "x", SHA256: b, Tiers: []string{"small"}}},
			[]string{`auth.keys[1].name: another key of "x" has different settings`}},
		"all and nobody": {[]KeyConfig{{Name: "x", SHA256: a}, {Name: "x", SHA256: b, Models: []string{}}},
			[]string{`auth.keys[1].name: another key of "x"`}},
		"other weight": {[]KeyConfig{{Name: "x", SHA256: a}, {Name: "x", SHA256: b, Weight: 2}},
			[]string{`auth.keys[1].name: another key of "x"`}},
		"other limits": {[]KeyConfig{{Name: "x", SHA256: a}, {Name: "x", SHA256: b, Limits: Limits{RPM: 1}}},
			[]string{`auth.keys[1].name: another key of "x"`}},
		"several": {[]KeyConfig{{Name: "X", SHA256: "1"}}, []string{"auth.keys[0].name", "auth.keys[0].sha256"}},
	} {
		t.Run(name, func(t *testing.T) {
			ts, ks, err := FromConfig(c.keys)
			if err == nil || ts != nil || ks != nil {
				t.Fatalf("FromConfig found nothing wrong: %v, %v", ts, ks)
			}
			if got := strings.Count(err.Error(), "\n") + 1; got != len(c.want) {
				t.Errorf("got %d mistakes, want %d:\n%v", got, len(c.want), err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no mistake says %s:\n%v", want, err)
				}
			}
		})
	}
}

// AU-14: names become metric labels and parts of log lines.
func TestTenantNamesArePlainAndShort(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "team-7": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "Team": false, "a_b": false, "a b": false, "é": false, "<script>": false,
		"../../x": false, strings.Repeat("a", 300): false, "a\n": false, "😀": false,
	} {
		if _, _, err := FromConfig([]KeyConfig{{Name: name, SHA256: digestOf("k")}}); (err == nil) != want {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

// The default weight is 1, and no weight lets a tenant starve the others.
func TestEveryCallerHasAWeight(t *testing.T) {
	d := mustDirectory(t, KeyConfig{Name: "x", SHA256: digestOf("a"), Weight: 7},
		KeyConfig{Name: "x", SHA256: digestOf("b"), Weight: 7},
		KeyConfig{Name: "y", SHA256: digestOf("c")}, KeyConfig{Name: "z", SHA256: digestOf("d")},
		KeyConfig{Name: "z", SHA256: digestOf("e"), Weight: 1})
	for key, want := range map[string]int{"a": 7, "b": 7, "c": 1, "d": 1, "e": 1} {
		if c, err := d.Authenticate(key, noon()); err != nil || c.Weight != want {
			t.Errorf("%s weighs %d, want %d (%v)", key, c.Weight, want, err)
		}
	}
	for weight, want := range map[int]int{-5: 1, 0: 1, 1: 1, MaxWeight: MaxWeight, MaxWeight + 1: MaxWeight} {
		if c := NewCaller(Tenant{Name: "x", Weight: weight}, Key{}); c.Weight != want {
			t.Errorf("%d weighs %d, want %d", weight, c.Weight, want)
		}
	}
	if Anonymous().Weight != 1 {
		t.Errorf("anonymous weighs %d", Anonymous().Weight)
	}
}

func TestTwoKeysOfOneTenantAreOneTenant(t *testing.T) {
	old, next := KeyConfig{Name: "x", SHA256: digestOf("old"), Tiers: []string{"small"}},
		KeyConfig{Name: "x", SHA256: digestOf("next"), Tiers: []string{"small"}}
	d := mustDirectory(t, old, next)
	a, errA := d.Authenticate("old", noon())
	b, errB := d.Authenticate("next", noon())
	if errA != nil || errB != nil || a.Tenant != "x" || b.Tenant != "x" || a.Key == b.Key {
		t.Errorf("the keys are of %+v (%v) and %+v (%v)", a, errA, b, errB)
	}
	if len(slices.Collect(d.FileKeys())) != 2 || !d.Knows("x", "") || d.Knows("y", "") || d.Knows("x", "nobody") {
		t.Errorf("the directory has %v", d)
	}
}

func TestMisplacedKeyIsNotRepeatedInErrors(t *testing.T) {
	key := ownKey(t, 9)
	for _, misplaced := range []string{key, key + strings.Repeat("!", 64-len(key))} {
		if _, _, err := FromConfig([]KeyConfig{{Name: "x", SHA256: misplaced}}); err == nil ||
			strings.Contains(err.Error(), key[3:20]) || strings.Contains(err.Error(), "'t'") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestNothingSecretIsPrinted(t *testing.T) {
	key := ownKey(t, 3)
	digest := Digest(key)
	d := mustDirectory(t, KeyConfig{Name: "x", SHA256: digestOf(key), Models: []string{"m*"}})
	caller, err := d.Authenticate(key, noon())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "caller", caller, "directory", d)
	printed := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed += fmt.Sprintf(verb+verb+verb+"\n", caller, *caller, d)
	}
	for _, secret := range []string{key, digestOf(key), strings.ToUpper(digestOf(key)),
		strings.Trim(fmt.Sprint(digest), "[]")[:20], fmt.Sprintf("%#v", digest)[10:40]} {
		if strings.Contains(printed, secret) {
			t.Errorf("%q is in\n%s", secret, printed)
		}
	}
}

func TestCallerMayUseOnlyItsTiersAndModels(t *testing.T) {
	for name, c := range map[string]struct {
		key                 KeyConfig
		tiers, notTiers     []string
		models, notModels   []string
		asked, got, highest Class
	}{
		"absent lists": {KeyConfig{}, []string{"small", "x", ""}, nil, []string{"m", ""}, nil, Interactive, Interactive,
			Interactive},
		"empty lists": {KeyConfig{Tiers: []string{}, Models: []string{}, Priority: "background"}, nil, []string{"small", ""},
			nil, []string{"m", ""}, Interactive, Background, Background},
		"names": {KeyConfig{Tiers: []string{"small"}, Models: []string{"m", "n"}, Priority: "batch"},
			[]string{"small"}, []string{"large", "", "Small"}, []string{"m", "n"}, []string{"", "mn", "M"}, Background, Batch,
			Batch},
		"globs": {KeyConfig{Models: []string{"gpt-4*", "a?c", `b.\*`}}, nil, nil,
			[]string{"gpt-4", "gpt-4/x\ny", "abc", "aéc", `b.\`, `b.\c`}, []string{"gpt-3", "xgpt-4", "ac", "abbc", `bx\`, "b."},
			Batch, Batch, Interactive},
		"all by a glob": {KeyConfig{Models: []string{"*"}}, nil, nil, []string{"", "x"}, nil, Interactive, Interactive,
			Interactive},
	} {
		t.Run(name, func(t *testing.T) {
			c.key.Name, c.key.SHA256 = "x", digestOf("k")
			tenant, err := mustDirectory(t, c.key).Authenticate("k", noon())
			if err != nil {
				t.Fatal(err)
			}
			check := func(may func(string) bool, names []string, want bool) {
				for _, name := range names {
					if may(name) != want {
						t.Errorf("may use %q: %v", name, !want)
					}
				}
			}
			check(tenant.MayUseTier, c.tiers, true)
			check(tenant.MayUseTier, c.notTiers, false)
			check(tenant.MayUseModel, c.models, true)
			check(tenant.MayUseModel, c.notModels, false)
			if got := tenant.Clamp(c.asked); got != c.got || tenant.Highest != c.highest {
				t.Errorf("asking for %v gives %v, the highest is %v", c.asked, got, tenant.Highest)
			}
		})
	}
}

func TestClassIsClampedToTheHighestAllowed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		class := rapid.SampledFrom([]Class{Interactive, Background, Batch})
		tenant := Caller{Highest: class.Draw(rt, "highest")}
		asked := class.Draw(rt, "asked")
		got := tenant.Clamp(asked)
		if got < tenant.Highest || got < asked || got != asked && got != tenant.Highest {
			rt.Errorf("a tenant with %v at most that requests %v gets %v", tenant.Highest, asked, got)
		}
	})
}

func TestClassNamesRoundTrip(t *testing.T) {
	for i, name := range Classes() {
		c, ok := ParseClass(strings.ToUpper(name))
		if !ok || c != Class(i) || c.String() != name {
			t.Errorf("%q is read as %v, %v", name, c, ok)
		}
	}
	for _, name := range []string{"", "urgent", "interactive "} {
		if c, ok := ParseClass(name); ok {
			t.Errorf("%q is read as %v", name, c)
		}
	}
	if got := Class(9).String(); got != "unknown" {
		t.Errorf("a class that is none prints as %q", got)
	}
	Classes()[0] = "changed"
	if Classes()[0] != "interactive" {
		t.Error("the caller's list is the package's own")
	}
}

func TestPassThroughOfACallerRestrictedByModelNeedsThePool(t *testing.T) {
	for _, c := range []struct {
		tiers, models []string
		want          bool
	}{
		{nil, nil, true}, {[]string{"raw"}, nil, true}, {[]string{"other"}, nil, false},
		{nil, []string{"gpt-*"}, false}, {[]string{"raw"}, []string{"gpt-*"}, true},
		{[]string{"other"}, []string{"*"}, false},
	} {
		d := mustDirectory(t, KeyConfig{Name: "a", SHA256: digestOf("key"), Tiers: c.tiers, Models: c.models})
		caller, err := d.Authenticate("key", noon())
		if err != nil || caller.MayPass("raw") != c.want {
			t.Errorf("tiers %v, models %v: %v", c.tiers, c.models, !c.want)
		}
	}
}

// AU-04: keys are found by digest and compared in constant time, so that response times reveal
// nothing about a partly correct guess.
func TestDigestsAreComparedInConstantTime(t *testing.T) {
	source, err := os.ReadFile("directory.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, found := strings.Cut(string(source), "func (d *Directory) withDigest(")
	body, _, _ = strings.Cut(body, "\n}\n")
	if !found || !strings.Contains(body, "subtle.ConstantTimeCompare(row.digest[:], digest[:])") {
		t.Errorf("withDigest compares otherwise:\n%s", body)
	}
}
