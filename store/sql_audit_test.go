package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// mutations are all changes of the database that an admin can make, each of which
// works once.
func mutations(t *testing.T, s *store.SQL) map[string]func() error {
	ctx := t.Context()
	createTenant(t, s, "acme")
	createTenant(t, s, "old")
	rotated, revoked, changed := createKey(t, s, "acme"), createKey(t, s, "acme"), createKey(t, s, "acme")
	_, made := mint(t, "acme")
	_, next := mint(t, "acme")
	must(s.CreateAdmin(ctx, actor,
		store.Admin{ID: "1", Name: "eve", Role: store.RoleViewer, Digest: tenants.Digest("1")}))(t)
	if err := s.SetOverride(ctx, actor, store.Override{Worker: "w9", Drain: true}); err != nil {
		t.Fatal(err)
	}
	return map[string]func() error{
		"tenant.create": func() error { _, err := s.CreateTenant(ctx, actor, tenants.Tenant{Name: "new"}); return err },
		"tenant.update": func() error { _, err := s.UpdateTenant(ctx, actor, everything("acme"), 0); return err },
		"tenant.delete": func() error { return s.DeleteTenant(ctx, actor, "old", 0) },
		"key.create":    func() error { _, err := s.CreateKey(ctx, actor, made); return err },
		"key.update":    func() error { _, err := s.UpdateKey(ctx, actor, changed, 0); return err },
		"key.rotate":    func() error { _, _, err := s.RotateKey(ctx, actor, rotated.ID, next, time.Hour, noon); return err },
		"key.revoke":    func() error { _, err := s.RevokeKey(ctx, actor, revoked.ID, "", noon); return err },
		"admin.bootstrap": func() error {
			_, err := s.Bootstrap(ctx, actor,
				store.Admin{ID: "2", Name: "root", Role: store.RoleAdmin, Digest: tenants.Digest("2")})
			return err
		},
		"admin.create": func() error {
			_, err := s.CreateAdmin(ctx, actor,
				store.Admin{ID: "3", Name: "ann", Role: store.RoleViewer, Digest: tenants.Digest("3")})
			return err
		},
		"admin.delete":          func() error { return s.DeleteAdmin(ctx, actor, "1", false) },
		"worker.override":       func() error { return s.SetOverride(ctx, actor, store.Override{Worker: "w1", Drain: true}) },
		"worker.override.clear": func() error { return s.ClearOverride(ctx, actor, "w9") },
	}
}

// AD-13: each change has an entry in the audit log with actor, address, before and after. If the
// entry cannot be written, the change does not happen.
func TestEachChangeHasAnAuditEntry(t *testing.T) {
	onDatabases(t, sharedDatabases(), func(t *testing.T, d database) {
		address := d.url(t)
		s, db := open(t, address), raw(t, address)
		migrate(t, s)
		exec := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for action, change := range mutations(t, s) {
			before, began := contents(t, s), time.Now().Truncate(time.Microsecond)
			exec("ALTER TABLE audit RENAME TO hidden")
			if err := change(); err == nil {
				t.Errorf("%s: it went through without the audit log", action)
			}
			exec("ALTER TABLE hidden RENAME TO audit")
			same(t, action+": after a failure", contents(t, s), before)
			if err := change(); err != nil {
				t.Errorf("%s: %v", action, err)
				continue
			}
			e := audit(t, s, store.AuditQuery{Limit: 1})[0]
			if e.Action != action || e.Target == "" || e.Outcome != "ok" || e.At.Before(began) || e.At.After(time.Now()) ||
				e.Actor != actor.Name || e.Role != actor.Role || e.Via != actor.Via || e.IP != actor.IP ||
				e.RequestID != actor.RequestID {
				t.Errorf("%s: the line is %+v", action, e)
			}
			sided(t, &e)
			if newest := s.NewestAudit(); newest != e.ID {
				t.Errorf("%s: the newest entry is %d, want %d", action, newest, e.ID)
			}
		}
		if _, broken, err := s.VerifyAudit(t.Context()); broken != 0 || err != nil {
			t.Errorf("the log is broken at %d, %v", broken, err)
		}
	})
}

// sided checks that an entry has the JSON of before and after that its action requires.
func sided(t *testing.T, e *store.AuditEntry) {
	t.Helper()
	verb := e.Action[strings.LastIndex(e.Action, ".")+1:]
	none := map[string][2]bool{"create": {true, false}, "bootstrap": {true, false}, "override": {true, false},
		"delete": {false, true}, "clear": {false, true}}[verb]
	for i, text := range []string{e.Before, e.After} {
		if (text == "") != none[i] || text != "" && !json.Valid([]byte(text)) {
			t.Errorf("%s: before and after are %q and %q", e.Action, e.Before, e.After)
		}
	}
}

// AD-13: the database itself rejects changes of audit entries.
func TestTheAuditLogIsAppendOnly(t *testing.T) {
	onDatabases(t, sharedDatabases(), func(t *testing.T, d database) {
		address := d.url(t)
		s := open(t, address)
		migrate(t, s)
		createTenant(t, s, "acme")
		db := raw(t, address)
		for _, statement := range []string{"UPDATE audit SET actor = 'nobody'", "DELETE FROM audit",
			"DELETE FROM audit WHERE id = 1"} {
			if _, err := db.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "append-only") {
				t.Errorf("%s: %v", statement, err)
			}
		}
		if n := len(audit(t, s, store.AuditQuery{})); n != 1 {
			t.Errorf("%d entries are left", n)
		}
	})
}

func TestVerifyAuditDetectsTampering(t *testing.T) {
	cases := map[string]struct {
		statement string
		brokenAt  int64
	}{
		"nothing":       {"", 0},
		"who":           {"UPDATE audit SET actor = 'mallory' WHERE id = 2", 2},
		"what":          {"UPDATE audit SET after_json = '{}' WHERE id = 3", 3},
		"when":          {"UPDATE audit SET at = at + 1 WHERE id = 1", 1},
		"moved words":   {"UPDATE audit SET actor = actor || via, via = '' WHERE id = 4", 4},
		"one taken out": {"DELETE FROM audit WHERE id = 3", 3},
		"first ones":    {"DELETE FROM audit WHERE id < 3", 1},
		"the last one":  {"DELETE FROM audit WHERE id = 5", 5},
		"all":           {"DELETE FROM audit", 1},
		"one put in": {"INSERT INTO audit SELECT 6, at, actor, role, via, ip, request_id, action, target, " +
			"before_json, after_json, outcome, hash FROM audit WHERE id = 5", 6},
	}
	onDatabases(t, sharedDatabases(), func(t *testing.T, d database) {
		address := d.url(t)
		s, db := open(t, address), raw(t, address)
		migrate(t, s)
		for i := range 5 {
			createTenant(t, s, fmt.Sprintf("t%d", i))
		}
		run := func(statements ...string) {
			t.Helper()
			for _, statement := range statements {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
		}
		if d.name == "postgres" {
			run("DROP TRIGGER audit_keeps_entries ON audit")
		} else {
			run("DROP TRIGGER audit_keeps_entries", "DROP TRIGGER audit_keeps_words")
		}
		run("CREATE TABLE untouched AS SELECT * FROM audit")
		for name, c := range cases {
			run("DELETE FROM audit", "INSERT INTO audit SELECT * FROM untouched", c.statement)
			entries, broken, err := open(t, address).VerifyAudit(t.Context())
			if err != nil || broken != c.brokenAt || broken == 0 && entries != 5 || broken > 0 && entries != broken-1 {
				t.Errorf("%s: %d entries, broken at %d (%v), want %d", name, entries, broken, err, c.brokenAt)
			}
		}
	})
}

// AD-14: search terms are literal, and no result is longer than 200 entries.
func TestAuditSearchMatchesLiterally(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		ctx := t.Context()
		odd := []string{"%_%_%_%", "'; DROP TABLE audit; --", `\`, "acme", "\x00 zero", "snow\u2603\xff"}
		for i := range 210 {
			by := store.Actor{Name: odd[i%len(odd)], Via: "cli"}
			if err := s.AppendAudit(ctx, by, "reload", "config.yaml", "", "{}", "refused: no"); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range odd {
			if n := len(audit(t, s, store.AuditQuery{Actor: name, Limit: 200})); n != 35 {
				t.Errorf("%q finds %d entries", name, n)
			}
		}
		for _, c := range []struct {
			q    store.AuditQuery
			want int
		}{
			{store.AuditQuery{}, 50}, {store.AuditQuery{Limit: 1_000_000_000}, 200}, {store.AuditQuery{Limit: -1}, 50},
			{store.AuditQuery{Limit: 7}, 7},
			{store.AuditQuery{Before: 4}, 3}, {store.AuditQuery{Action: "reload", Target: "config.yaml", Actor: "acme"}, 35},
			{store.AuditQuery{Action: "%"}, 0}, {store.AuditQuery{Target: "config_yaml"}, 0}, {store.AuditQuery{Actor: "a%"}, 0},
			{store.AuditQuery{Since: time.Now().Add(time.Hour)}, 0},
			{store.AuditQuery{Since: time.Now().Add(-time.Hour), Limit: 200}, 200},
		} {
			got := audit(t, s, c.q)
			if len(got) != c.want {
				t.Errorf("%+v finds %d entries, want %d", c.q, len(got), c.want)
			}
			for i := 1; i < len(got); i++ {
				if got[i].ID >= got[i-1].ID {
					t.Errorf("%+v: entry %d follows %d", c.q, got[i].ID, got[i-1].ID)
				}
			}
		}
		if _, err := s.Usage(ctx, store.UsageQuery{Tenant: "acme", GroupBy: ";drop"}); err == nil {
			t.Error("usage is grouped by what is no column")
		}
		if n, broken, err := s.VerifyAudit(ctx); n != 210 || broken != 0 || err != nil {
			t.Errorf("%d entries, broken at %d, %v", n, broken, err)
		}
	})
}

func TestConcurrentWritesMakeOneChain(t *testing.T) {
	onDatabases(t, databases(), func(t *testing.T, d database) {
		address := d.url(t)
		a := open(t, address)
		migrate(t, a)
		b := a
		if d.name != "memory" {
			b = open(t, address) // another gateway
		}
		done := make(chan error)
		for i := range 8 {
			go func() {
				for j := range 10 {
					s := []*store.SQL{a, b}[i%2]
					if _, err := s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: fmt.Sprintf("t%d-%d", i, j)}); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n, broken, err := a.VerifyAudit(t.Context()); n != 80 || broken != 0 || err != nil || revision(t, b) != 80 {
			t.Errorf("%d entries, broken at %d, %v; revision %d", n, broken, err, revision(t, b))
		}
	})
}
