package tenants

import (
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// names are the names in the rights of these tests.
func names() []string { return []string{"small", "large", "raw", ""} }

// drawRights draws random rights.
func drawRights(rt *rapid.T, label string) Rights {
	list := func(of []string, label string) []string {
		if rapid.Bool().Draw(rt, label+" all") {
			return nil
		}
		return rapid.SliceOfDistinct(rapid.SampledFrom(of), rapid.ID[string]).Draw(rt, label)
	}
	class := rapid.SampledFrom([]Class{Interactive, Background, Batch})
	r := Rights{Tiers: list(names(), label+" tiers"), Models: list([]string{"m", "m*", "*", "n?"}, label+" models"),
		Priority: class.Draw(rt, label+" priority")}
	r.Default = max(r.Priority, class.Draw(rt, label+" default"))
	return r
}

func TestKeyNarrowsItsTenantAndNeverWidensIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tenant, key := drawRights(rt, "tenant"), drawRights(rt, "key")
		c := NewCaller(Tenant{Name: "x", Rights: tenant}, Key{ID: "k", Rights: key})
		alone := func(r Rights) *Caller { return NewCaller(Tenant{Name: "x", Rights: r}, Key{}) }
		for _, name := range names() {
			if c.MayUseTier(name) != (alone(tenant).MayUseTier(name) && alone(key).MayUseTier(name)) {
				rt.Errorf("tier %q: %v", name, c.MayUseTier(name))
			}
			if c.MayPass(name) != (alone(tenant).MayPass(name) && alone(key).MayPass(name)) {
				rt.Errorf("passing to %q: %v", name, c.MayPass(name))
			}
			if c.MayPass(name) && !c.MayUseTier(name) {
				rt.Errorf("%q may be passed to and not used", name)
			}
		}
		for _, model := range []string{"m", "mm", "n", "nn", "", "other"} {
			if c.MayUseModel(model) != (alone(tenant).MayUseModel(model) && alone(key).MayUseModel(model)) {
				rt.Errorf("model %q: %v", model, c.MayUseModel(model))
			}
		}
		if c.Highest != max(tenant.Priority, key.Priority) || c.Usual < c.Highest || c.Usual < tenant.Default ||
			c.Usual < key.Default {
			rt.Errorf("the classes are %v and %v", c.Highest, c.Usual)
		}
	})
}

// AU-11: a missing model is never allowed by accident.
func TestCallerRestrictedByModelMustNameOne(t *testing.T) {
	c := NewCaller(Tenant{Name: "x"}, Key{ID: "k", Rights: Rights{Models: []string{"gpt-*"}}})
	if c.MayUseModel("") || !c.MayUseModel("gpt-4") {
		t.Error("leaving the model out is a way around the key's models")
	}
}

func TestOnlyTenantsAndKeysWithLimitsAreSubjects(t *testing.T) {
	l := Limits{RPM: 1}
	for name, c := range map[string]struct {
		tenant, key Limits
		want        []Subject
	}{
		"neither": {},
		"tenant":  {tenant: l, want: []Subject{{Tenant: "x", Limits: l}}},
		"key":     {key: l, want: []Subject{{Tenant: "x", Key: "k", Limits: l}}},
		"both": {tenant: l, key: Limits{MonthMoney: 1},
			want: []Subject{{Tenant: "x", Limits: l}, {Tenant: "x", Key: "k", Limits: Limits{MonthMoney: 1}}}},
	} {
		got := NewCaller(Tenant{Name: "x", Limits: c.tenant}, Key{ID: "k", Limits: c.key}).Subjects
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if a := Anonymous(); a.Tenant != "anonymous" || a.Key != "" || len(a.Subjects) > 0 || !a.MayUseTier("any") ||
		!a.MayPass("any") || !a.MayUseModel("") || a.Usual != Interactive {
		t.Errorf("anonymous is %+v", a)
	}
}

// AU-08, AU-11: unknown, expired and revoked keys get the same error. A disabled tenant gets
// another one, with its caller.
func TestKeyWorksOnlyWhileItIsValid(t *testing.T) {
	key := func(word string) Key { return Key{ID: "id-" + word, Tenant: "on", Digest: Digest(word)} }
	expiring, revoked, off, stray := key("expiring"), key("revoked"), key("off"), key("stray")
	expiring.ExpiresAt = noon()
	revoked.RevokedAt = noon().Add(time.Hour)
	off.Tenant, stray.Tenant = "off", "gone"
	d := NewDirectory([]Tenant{{Name: "on"}, {Name: "off", Disabled: true}},
		[]Key{key("good"), expiring, revoked, off, stray})
	for _, c := range []struct {
		word   string
		at     time.Time
		tenant string
		err    error
	}{
		{"good", noon(), "on", nil}, {"expiring", noon().Add(-1), "on", nil},
		{"expiring", noon(), "", ErrUnknownKey}, {"expiring", noon().Add(time.Hour), "", ErrUnknownKey},
		{"revoked", noon().Add(-time.Hour), "", ErrUnknownKey}, {"stray", noon(), "", ErrUnknownKey},
		{"unknown", noon(), "", ErrUnknownKey},
		{"off", noon(), "off", ErrDisabled},
	} {
		caller, err := d.Authenticate(c.word, c.at)
		if !errors.Is(err, c.err) || (c.tenant == "") != (caller == nil) ||
			caller != nil && (caller.Tenant != c.tenant || caller.Key != "id-"+c.word) {
			t.Errorf("%s at %v: %+v, %v", c.word, c.at, caller, err)
		}
		tenant := cmp.Or(c.tenant, "on")
		if byID, again := d.Caller(tenant, "id-"+c.word, c.at); byID != caller || !errors.Is(again, c.err) {
			t.Errorf("%s by its id at %v: %+v, %v", c.word, c.at, byID, again)
		}
		if other, err := d.Caller("other", "id-"+c.word, c.at); other != nil || !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s of another tenant at %v: %+v, %v", c.word, c.at, other, err)
		}
	}
}

func TestKeyStateNamesItsPhase(t *testing.T) {
	later, earlier := noon().Add(time.Second), noon()
	for _, c := range []struct {
		key   Key
		state string
		valid bool
	}{
		{Key{}, "active", true}, {Key{ExpiresAt: later}, "active", true},
		{Key{ExpiresAt: later, ReplacedBy: "k"}, "grace", true}, {Key{ReplacedBy: "k"}, "grace", true},
		{Key{ExpiresAt: earlier}, "expired", false}, {Key{ExpiresAt: earlier, ReplacedBy: "k"}, "expired", false},
		{Key{RevokedAt: later}, "revoked", false}, {Key{RevokedAt: earlier, ExpiresAt: earlier}, "revoked", false},
	} {
		if c.key.State(noon()) != c.state || c.key.Valid(noon()) != c.valid {
			t.Errorf("%+v: %s, %v", c.key, c.key.State(noon()), c.key.Valid(noon()))
		}
	}
}

func TestMintedKeyAuthenticatesAndIsNeverPrinted(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	seen := map[string]bool{}
	for range 50 {
		secret, k, err := Mint(random, "x")
		if err != nil || !WellFormed(secret) || k.Tenant != "x" || k.Digest != Digest(secret) || len(k.ID) != 12 ||
			strings.Trim(k.ID, alphabet) != "" || seen[k.ID] {
			t.Fatalf("minted %+v, %v", k, err)
		}
		seen[k.ID] = true
		if shown := strings.Split(k.Hint, "…"); len(shown) != 2 || len(shown[0]) != 7 || len(shown[1]) != 4 ||
			!strings.HasPrefix(secret, shown[0]) || !strings.HasSuffix(secret, shown[1]) {
			t.Errorf("the hint of %s is %s", secret, k.Hint)
		}
		printed, err := json.Marshal(k)
		if err != nil || strings.Contains(string(printed), secret[7:20]) || strings.Contains(string(printed), "igest") {
			t.Errorf("the key is printed as %s, %v", printed, err)
		}
		if c, err := NewDirectory([]Tenant{{Name: "x"}}, []Key{k}).Authenticate(secret, noon()); err != nil || c.Key != k.ID {
			t.Errorf("%s is %+v, %v", secret, c, err)
		}
	}
	for _, n := range []int{0, 19, 20, 28} { // too little for the key, then for the id
		if _, _, err := Mint(strings.NewReader(strings.Repeat("r", n)), "x"); err == nil {
			t.Errorf("a key was minted from %d random bytes", n)
		}
	}
	for _, short := range []string{"", "tw-", "tw-0123456789"} {
		if Hint(short) != "…" {
			t.Errorf("the hint of %q is %q", short, Hint(short))
		}
	}
}

func TestClassIsEncodedAsItsName(t *testing.T) {
	type row struct {
		C Class `json:"c"`
	}
	for i, name := range Classes() {
		text, err := json.Marshal(row{Class(i)})
		if err != nil || string(text) != `{"c":"`+name+`"}` {
			t.Errorf("%v is written as %s, %v", Class(i), text, err)
		}
		var back row
		if err := json.Unmarshal(text, &back); err != nil || back.C != Class(i) {
			t.Errorf("%s is read as %v, %v", text, back.C, err)
		}
	}
	empty, wrong := Batch, Batch
	if err := empty.UnmarshalText(nil); err != nil || empty != Interactive {
		t.Errorf("the empty text is %v, %v", empty, err)
	}
	if err := wrong.UnmarshalText([]byte("urgent")); err == nil || wrong != Batch ||
		!strings.Contains(err.Error(), "interactive, background, batch") {
		t.Errorf("a wrong text is %v, %v", wrong, err)
	}
}

// AU-08: a key that replaces another has the same lifetime as that one had.
func TestSuccessorHasTheSameLifetime(t *testing.T) {
	made := time.Unix(1000, 0)
	k := Key{CreatedAt: made, ExpiresAt: made.Add(time.Hour)}
	if got := k.SuccessorExpiry(made.Add(50 * time.Minute)); !got.Equal(made.Add(110 * time.Minute)) {
		t.Errorf("it expires at %v", got)
	}
	if got := (&Key{CreatedAt: made}).SuccessorExpiry(made); !got.IsZero() {
		t.Errorf("one without an end expires at %v", got)
	}
}
