package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// AD-11: an admin key is shown once; the database contains only its digest.
func TestAdminKeyIsShownOnceAndNotStored(t *testing.T) {
	h := newHouse(t, "")
	s := must(t, "keys", "create", "-c", h.config, "--admin", "--name", "jane", "--expires", "24h")
	keys := keysIn(s.out)
	if len(keys) != 1 || len(keysIn(s.messages)) != 0 || !strings.HasPrefix(keys[0], tenants.AdminPrefix) ||
		!tenants.WellFormed(keys[0]) {
		t.Fatalf("it says\n%s\n%s", s.out, s.messages)
	}
	if !strings.Contains(s.out, "curl -s http://127.0.0.1:8081/admin/tenants ") {
		t.Errorf("what to do with it is not in\n%s", s.out)
	}
	c := h.contents(t)
	if len(c.Admins) != 1 || c.Admins[0].Digest != tenants.Digest(keys[0]) || c.Admins[0].Role != store.RoleAdmin ||
		c.Admins[0].Name != "jane" ||
		time.Until(c.Admins[0].ExpiresAt) > 24*time.Hour || c.Admins[0].ExpiresAt.IsZero() {
		t.Errorf("the database has %+v", c.Admins)
	}
	h.noSecret(t, keys[0])
}

func TestAdminNeedsANameAndAValidRole(t *testing.T) {
	h := newHouse(t, "")
	s := must(t, "keys", "create", "-c", h.config, "--admin", "--name", "joe", "--role", "viewer", "--json")
	var got struct {
		Admin  store.Admin
		Secret string
	}
	if err := json.Unmarshal([]byte(s.out), &got); err != nil || got.Admin.Role != store.RoleViewer ||
		got.Admin.Name != "joe" || len(keysIn(s.out)) != 1 {
		t.Errorf("%v in %s", err, s.out)
	}
	if s := tierway(t, "keys", "create", "-c", h.config, "--admin", "--name", "joe"); s.status != 2 ||
		!strings.Contains(s.messages, `--name "joe": the database already has an admin with this name`) {
		t.Errorf("a second joe: status %d, %s", s.status, s.messages)
	}
	if s := must(t, "keys", "create", "-c", h.config, "--admin", "--name", "jim", "--quiet"); s.out != keysIn(s.out)[0]+
		"\n" {
		t.Errorf("quietly: %q", s.out)
	}
}
