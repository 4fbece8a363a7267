package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// AD-11: the key is shown once; the database contains only its digest and hint.
func TestKeyIsShownOnceAndNotStored(t *testing.T) {
	for name, more := range map[string][]string{"text": nil, "json": {"--json"}, "quiet": {"--quiet"}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, "")
			s := must(t, append([]string{"keys", "create", "-c", h.config, "--tenant", "acme", "--name", "ci"}, more...)...)
			keys := keysIn(s.out)
			if len(keys) != 1 || len(keysIn(s.messages)) != 0 {
				t.Fatalf("%d keys on standard output, %d beside it:\n%s\n%s", len(keys), len(keysIn(s.messages)), s.out, s.messages)
			}
			if !tenants.WellFormed(keys[0]) || !h.accepted(t, keys[0], time.Now()) {
				t.Error("the key does not work")
			}
			if !strings.Contains(s.messages, "created the tenant acme") {
				t.Errorf("the new tenant is not told: %s", s.messages)
			}
			if made := h.contents(t).Tenants; len(made) != 1 || made[0].Weight != 1 {
				t.Errorf("the tenants are %+v", made)
			}
			h.noSecret(t, keys[0])
			for _, again := range [][]string{{"keys", "list", "-c", h.config}, {"keys", "list", "-c", h.config, "--json"}} {
				if got := must(t, again...); len(keysIn(got.out+got.messages)) != 0 {
					t.Errorf("%v shows the key again", again)
				}
			}
			audit := query(t, h, func(ctx context.Context, s *store.SQL) ([]store.AuditEntry, error) {
				return s.Audit(ctx, store.AuditQuery{})
			})
			if text, _ := json.Marshal(audit); len(audit) == 0 || len(keysIn(string(text))) != 0 || audit[0].Via != "cli" ||
				audit[0].Actor == "" {
				t.Errorf("the audit log says %s", text)
			}
		})
	}
}

func TestQuietPrintsOnlyTheKey(t *testing.T) {
	h := newHouse(t, "")
	made := must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--quiet")
	if keys := keysIn(made.out); len(keys) != 1 || made.out != keys[0]+"\n" {
		t.Errorf("keys create --quiet wrote %q", made.out)
	}
	rotated := must(t, "keys", "rotate", "-c", h.config, "--quiet", h.contents(t).Keys[0].ID)
	if keys := keysIn(rotated.out); len(keys) != 1 || rotated.out != keys[0]+"\n" || rotated.out == made.out {
		t.Errorf("keys rotate --quiet wrote %q", rotated.out)
	}
}

func TestCreatedKeyHasTheRightsAndLimitsOfTheFlags(t *testing.T) {
	h := newHouse(t, "")
	s := must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--name", "night jobs", "--rpm", "60", "--rps", "2",
		"--burst", "5",
		"--tpm", "1000", "--concurrent", "3", "--tiers", "small,medium", "--models", "gpt-4*,small", "--priority",
		"background", "--expires", "720h", "--json")
	var got struct {
		Tenant string
		Key    struct {
			ID, Name, Hint, State string
			Tiers, Models         []string
			Priority              string
			Default               string `json:"default_priority"`
			Limits                tenants.Limits
			ExpiresAt             time.Time `json:"expires_at"`
		}
		Secret string
	}
	if err := json.Unmarshal([]byte(s.out), &got); err != nil {
		t.Fatalf("%v in %s", err, s.out)
	}
	want := tenants.Limits{RPM: 60, RPS: 2, Burst: 5, TPM: 1000, Concurrent: 3}
	if got.Tenant != "acme" || got.Key.Name != "night jobs" || got.Key.State != "active" || got.Key.Limits != want ||
		got.Key.Priority != "background" || got.Key.Default != "background" ||
		strings.Join(got.Key.Tiers, " ") != "small medium" || strings.Join(got.Key.Models, " ") != "gpt-4* small" {
		t.Errorf("the key is %+v", got.Key)
	}
	if got.Key.Hint != tenants.Hint(got.Secret) {
		t.Errorf("the hint is %q", got.Key.Hint)
	}
	if in := time.Until(got.Key.ExpiresAt); in < 719*time.Hour || in > 720*time.Hour {
		t.Errorf("it ends in %v", in)
	}
	c := h.contents(t)
	if len(c.Tenants) != 1 || c.Tenants[0].Limits.Any() || c.Tenants[0].Tiers != nil {
		t.Errorf("the flags changed the tenant: %+v", c.Tenants)
	}
	if len(c.Keys) != 1 || c.Keys[0].ID != got.Key.ID || c.Keys[0].CreatedBy != operator().Name ||
		c.Keys[0].Limits != want {
		t.Errorf("the database has %+v", c.Keys)
	}
}

func TestCreateAndRotateShowTheRestrictionsOfTheKey(t *testing.T) {
	h := newHouse(t, "")
	shown := regexp.MustCompile(
		`(?m)^tiers +only small, medium$\n^models +only gpt-4\*, small$\n^priority +at most batch$\n^limits +rpm 7$`)
	created := must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--rpm", "7", "--tiers", "small,medium",
		"--models", "gpt-4*,small", "--priority", "batch").out
	if !shown.MatchString(created) {
		t.Errorf("keys create prints\n%s", created)
	}
	if rotated := must(t, "keys", "rotate", "-c", h.config, h.contents(t).Keys[0].ID).out; !shown.MatchString(rotated) {
		t.Errorf("keys rotate prints\n%s", rotated)
	}
	for _, row := range []string{"tiers", "models", "priority"} {
		if open := must(t, "keys", "create", "-c", h.config, "--tenant", "acme").out; strings.Contains(open, "\n"+row) {
			t.Errorf("a key without restrictions has the row %s:\n%s", row, open)
		}
	}
}

func TestSecondKeyDoesNotChangeItsTenant(t *testing.T) {
	h := newHouse(t, "")
	must(t, "keys", "create", "-c", h.config, "--tenant", "acme")
	s := must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--quiet")
	if s.messages != "" {
		t.Errorf("it says %s", s.messages)
	}
	if c := h.contents(t); len(c.Tenants) != 1 || len(c.Keys) != 2 {
		t.Errorf("%d tenants, %d keys", len(c.Tenants), len(c.Keys))
	}
}

// The printed request uses a model that the key may use.
func TestPrintedFirstRequestFitsTheKey(t *testing.T) {
	h := newHouse(t, "")
	open := must(t, "keys", "create", "-c", h.config, "--tenant", "acme").out
	if !strings.Contains(open,
		`curl -s http://127.0.0.1:8080/v1/chat/completions -H "Authorization: Bearer $TIERWAY_KEY"`) {
		t.Errorf("no first request in\n%s", open)
	}
	kept := must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--models", "small").out
	if !strings.Contains(kept, `curl -s http://127.0.0.1:8080/v1/models -H`) {
		t.Errorf("no first request that this key may ask in\n%s", kept)
	}
}

// AU-08: with an overlap, both keys work until the old key expires. They belong to one tenant and have
// two IDs. Without an overlap, the old key expires at once.
func TestRotatedKeyWorksForTheOverlap(t *testing.T) {
	h := newHouse(t, "")
	before := keysIn(must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--name", "ci", "--rpm", "7",
		"--quiet").out)[0]
	id := h.contents(t).Keys[0].ID
	s := must(t, "keys", "rotate", "-c", h.config, id, "--overlap", "1h", "--json")
	var got struct {
		Tenant        string
		Secret        string
		Key, Replaced tenants.Key
	}
	if err := json.Unmarshal([]byte(s.out), &got); err != nil {
		t.Fatalf("%v in %s", err, s.out)
	}
	if len(keysIn(s.out+s.messages)) != 1 || got.Secret == before {
		t.Fatalf("the new key is not shown once:\n%s", s.out)
	}
	if got.Tenant != "acme" || got.Key.Tenant != "acme" || got.Key.Name != "ci" || got.Key.Limits.RPM != 7 ||
		got.Key.ID == id ||
		got.Replaced.ID != id || got.Replaced.ReplacedBy != got.Key.ID {
		t.Errorf("the new key is %+v, the old one %+v", got.Key, got.Replaced)
	}
	ends := got.Replaced.ExpiresAt
	if in := time.Until(ends); in < 59*time.Minute || in > time.Hour {
		t.Errorf("the old key ends in %v", in)
	}
	for _, c := range []struct {
		key  string
		at   time.Time
		want bool
	}{{before, ends.Add(-time.Second), true}, {got.Secret, ends.Add(-time.Second), true}, {before, ends, false},
		{got.Secret, ends, true}} {
		if h.accepted(t, c.key, c.at) != c.want {
			t.Errorf("%s at %v: accepted is %v", tenants.Hint(c.key), c.at, !c.want)
		}
	}
	h.noSecret(t, got.Secret)
	text := must(t, "keys", "rotate", "-c", h.config, got.Key.ID, "--overlap", "0s")
	if !strings.Contains(text.out, got.Key.ID) || len(keysIn(text.out)) != 1 {
		t.Errorf("it says\n%s", text.out)
	}
	if h.accepted(t, got.Secret, time.Now()) || !h.accepted(t, keysIn(text.out)[0], time.Now()) {
		t.Error("without an overlap the old key works on, or the new one does not")
	}
}

func TestRevokedKeyIsRefused(t *testing.T) {
	h := newHouse(t, "")
	key := keysIn(must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--quiet").out)[0]
	id := h.contents(t).Keys[0].ID
	if s := tierway(t, "keys", "revoke", "-c", h.config, id); s.status != 2 || !strings.Contains(s.messages, "--yes") {
		t.Errorf("without a terminal and --yes: status %d, %s", s.status, s.messages)
	}
	if !h.accepted(t, key, time.Now()) {
		t.Fatal("the key is revoked without a confirmation")
	}
	s := must(t, "keys", "revoke", "-c", h.config, id, "--reason", "left in a log", "--yes")
	if !strings.Contains(s.out, id) || h.accepted(t, key, time.Now()) {
		t.Errorf("the key works on after %s", s.out)
	}
	must(t, "keys", "revoke", "-c", h.config, id, "--yes") // twice is no error
	if list := must(t, "keys", "list", "-c", h.config).out; !regexp.MustCompile(id +
		`\s+acme .*revoked`).MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
	if s := tierway(t, "keys", "rotate", "-c", h.config, id); s.status != 2 ||
		!strings.Contains(s.messages, id+" is already revoked, expired or replaced; create another one") {
		t.Errorf("to rotate it: status %d, %s", s.status, s.messages)
	}
	audit := query(t, h, func(ctx context.Context, s *store.SQL) ([]store.AuditEntry, error) {
		return s.Audit(ctx, store.AuditQuery{Target: id})
	})
	if text := fmt.Sprintf("%+v", audit); !strings.Contains(text, "left in a log") {
		t.Errorf("the audit log does not say why: %s", text)
	}
}

func TestUnknownKeyIsReported(t *testing.T) {
	h := newHouse(t, "")
	for _, verb := range []string{"rotate", "revoke"} {
		for range 2 { // of an empty database, and of one with a schema
			args := []string{"keys", verb, "-c", h.config, "nosuchkey"}
			if verb == "revoke" {
				args = append(args, "--yes")
			}
			if s := tierway(t, args...); s.status != 2 ||
				!strings.Contains(s.messages, "has no key nosuchkey; `tierway keys list -c "+h.config+"` lists all keys") {
				t.Errorf("%s: status %d, %s", verb, s.status, s.messages)
			}
			must(t, "migrate", "up", "-c", h.config)
		}
	}
}

func TestKeysAreListedByTenant(t *testing.T) {
	h := newHouse(t, "")
	if s := must(t, "keys", "list", "-c", h.config); s.out != "" || !strings.Contains(s.messages, "there are no keys") {
		t.Errorf("of an empty database: %q, %s", s.out, s.messages)
	}
	if s := must(t, "keys", "list", "-c", h.config, "--json"); strings.TrimSpace(s.out) != "{\n  \"keys\": []\n}" {
		t.Errorf("of an empty database: %s", s.out)
	}
	must(t, "keys", "create", "-c", h.config, "--tenant", "zoo", "--rpm", "6", "--burst", "2")
	must(t, "keys", "create", "-c", h.config, "--tenant", "acme")
	list := must(t, "keys", "list", "-c", h.config).out
	lines := strings.Split(strings.TrimSpace(list), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "ID") || !strings.Contains(lines[1], " acme ") ||
		!strings.Contains(lines[2], " zoo ") {
		t.Fatalf("the list is\n%s", list)
	}
	if !strings.HasSuffix(lines[2], "rpm 6, burst 2") || !strings.Contains(lines[2], "never") ||
		!strings.Contains(lines[2], "active") {
		t.Errorf("the line of zoo is %q", lines[2])
	}
	one := must(t, "keys", "list", "-c", h.config, "--tenant", "zoo", "--json").out
	if !strings.Contains(one, `"zoo"`) || strings.Contains(one, `"acme"`) || !strings.Contains(one, `"state": "active"`) {
		t.Errorf("the keys of zoo are %s", one)
	}
}

// Keys of config.yaml are listed, and change only in the file.
func TestKeysOfTheFileAreListedAndReadOnly(t *testing.T) {
	h := newHouse(t, "")
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.config, string(text)+"auth: { keys: [{ name: acme, sha256: "+strings.Repeat("ab", 32)+" }] }\n")
	list := must(t, "keys", "list", "-c", h.config).out
	if !strings.Contains(list, "config-abababab  acme") {
		t.Errorf("the list is\n%s", list)
	}
	for _, args := range [][]string{{"rotate", "config-abababab"}, {"revoke", "config-abababab", "--yes"}} {
		if s := tierway(t, append([]string{"keys", args[0], "-c", h.config}, args[1:]...)...); s.status != 2 ||
			!strings.Contains(s.messages, "change it under auth.keys there") {
			t.Errorf("%v: status %d, %s", args, s.status, s.messages)
		}
	}
	if s := must(t, "keys", "create", "-c", h.config, "--tenant", "acme"); !strings.Contains(s.messages,
		"its settings there apply") {
		t.Errorf("it says %s", s.messages)
	}
}
