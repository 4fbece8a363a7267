package store_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

func TestKeyRoundTrips(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		createTenant(t, s, "acme")
		_, k := mint(t, "acme")
		all := everything("")
		k.Name, k.Rights, k.Limits, k.ExpiresAt = "ci", all.Rights, all.Limits, noon.Add(1234567*time.Nanosecond)
		made := must(s.CreateKey(t.Context(), actor, k))(t)
		k.CreatedBy, k.CreatedAt, k.Version, k.ExpiresAt = "ops", made.CreatedAt, 1, noon.Add(1234*time.Microsecond)
		same(t, "the key", made, k)
		same(t, "what is stored", contents(t, s).Keys, []tenants.Key{k})
		_, err := s.CreateKey(t.Context(), actor, k)
		wants(t, err, store.ErrExists)
		_, other := mint(t, "nobody")
		_, err = s.CreateKey(t.Context(), actor, other)
		wants(t, err, store.ErrNotFound)
		k.Rights, k.Name, k.ExpiresAt = tenants.Rights{Tiers: []string{}}, "cd", time.Time{}
		next := must(s.UpdateKey(t.Context(), actor, k, 1))(t)
		k.Version = 2
		same(t, "the changed key", next, k)
		_, err = s.UpdateKey(t.Context(), actor, k, 1)
		wants(t, err, store.ErrConflict)
	})
}

// AU-10: a key is not found under another tenant's name, and a tenant's usage has no rows of other
// tenants, whatever else is queried.
func TestTenantsAreIsolated(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		createTenant(t, s, "a")
		createTenant(t, s, "b")
		theirs := createKey(t, s, "b")
		write(t, s, store.Row{ID: "1", At: noon, Tenant: "b", Key: theirs.ID, Outcome: "ok", Prompt: 9})
		stolen := theirs
		stolen.Tenant = "a"
		_, err := s.UpdateKey(t.Context(), actor, stolen, 0)
		wants(t, err, store.ErrNotFound)
		_, next := mint(t, "a")
		_, _, err = s.RotateKey(t.Context(), actor, theirs.ID, next, time.Hour, noon)
		wants(t, err, store.ErrNotFound)
		same(t, "the keys", contents(t, s).Keys, []tenants.Key{theirs})
		for _, q := range []store.UsageQuery{{Tenant: "a"}, {Tenant: "a", Key: theirs.ID}, {Tenant: "a' OR '1'='1"},
			{Tenant: "%"}, {Tenant: "a", GroupBy: "key"}} {
			if got := must(s.Usage(t.Context(), q))(t); len(got) > 0 {
				t.Errorf("%+v finds %+v", q, got)
			}
		}
		if _, err := s.Usage(t.Context(), store.UsageQuery{Key: theirs.ID}); err == nil {
			t.Error("usage is read without a tenant")
		}
	})
}

func TestRotatedKeyWorksUntilItsOverlapEnds(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		ctx := t.Context()
		createTenant(t, s, "acme")
		for name, c := range map[string]struct{ expires, want time.Time }{
			"never":   {time.Time{}, noon.Add(time.Hour)},
			"later":   {noon.Add(48 * time.Hour), noon.Add(time.Hour)},
			"earlier": {noon.Add(time.Minute), noon.Add(time.Minute)},
		} {
			_, k := mint(t, "acme")
			k.Name, k.Rights, k.Limits, k.ExpiresAt = name, everything("").Rights, everything("").Limits, c.expires
			k = must(s.CreateKey(ctx, actor, k))(t)
			_, next := mint(t, "acme")
			old, made, err := s.RotateKey(ctx, actor, k.ID, next, time.Hour, noon)
			if err != nil {
				t.Fatal(err)
			}
			want := k
			want.ExpiresAt, want.ReplacedBy, want.Version = c.want, next.ID, 2
			same(t, name+": the old key", old, want)
			want = k
			want.ID, want.Digest, want.Hint, want.ExpiresAt, want.CreatedAt =
				next.ID, next.Digest, next.Hint, k.SuccessorExpiry(noon),
				noon
			same(t, name+": the new key", made, want)
			_, again := mint(t, "acme")
			_, _, err = s.RotateKey(ctx, actor, k.ID, again, time.Hour, noon)
			wants(t, err, store.ErrConflict)
		}
		_, next := mint(t, "acme")
		_, _, err := s.RotateKey(ctx, actor, "nobody", next, 0, noon)
		wants(t, err, store.ErrNotFound)
		if n := len(contents(t, s).Keys); n != 6 {
			t.Errorf("%d keys are there", n)
		}
	})
}

func TestRevokedKeyStaysRevoked(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		ctx := t.Context()
		createTenant(t, s, "acme")
		k := createKey(t, s, "acme")
		first := must(s.RevokeKey(ctx, actor, k.ID, "it leaked", noon))(t)
		if !first.RevokedAt.Equal(noon) {
			t.Errorf("it is revoked at %v", first.RevokedAt)
		}
		again := must(s.RevokeKey(ctx, actor, k.ID, "once more", noon.Add(time.Hour)))(t)
		same(t, "revoked again", again, first)
		_, err := s.RevokeKey(ctx, actor, "nobody", "", noon)
		wants(t, err, store.ErrNotFound)
		_, next := mint(t, "acme")
		_, _, err = s.RotateKey(ctx, actor, k.ID, next, time.Hour, noon)
		wants(t, err, store.ErrConflict)
		if entries := audit(t, s, store.AuditQuery{Action: "key.revoke"}); len(entries) != 1 ||
			!strings.Contains(entries[0].After, "it leaked") {
			t.Errorf("the audit log says %+v", entries)
		}
	})
}

func TestLastUseIsAccurateToTheMinuteAndNeverDecreases(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		createTenant(t, s, "acme")
		k := createKey(t, s, "acme")
		for _, c := range []struct{ used, want time.Time }{
			{noon.Add(59 * time.Second), noon}, {noon.Add(-time.Hour), noon}, {noon.Add(time.Hour), noon.Add(time.Hour)},
		} {
			if err := s.TouchKeys(t.Context(), map[string]time.Time{k.ID: c.used, "nobody": c.used}); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, s).Keys[0].LastUsedAt; !got.Equal(c.want) {
				t.Errorf("last used at %v, want %v", got, c.want)
			}
		}
	})
}

// raw opens a database without store.SQL, to read its actual contents.
func raw(t *testing.T, address string) *sql.DB {
	t.Helper()
	driver, name := "pgx", address
	if file, ok := strings.CutPrefix(address, "sqlite://"); ok {
		driver, name = "sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// dump returns all text of all tables.
func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"tenants", "keys", "admins", "overrides", "ledger", "usage", "audit", "revision"} {
		rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			row := make([]any, len(columns))
			to := make([]any, len(columns))
			for i := range row {
				to[i] = &row[i]
			}
			if err := rows.Scan(to...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&all, table, row)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// AD-11: the database holds only a key's digest and hint; the audit log and errors do not hold the
// digest either. A SQLite file is accessible to its owner only.
func TestTheDatabaseHoldsOnlyDigestAndHint(t *testing.T) {
	onDatabases(t, sharedDatabases(), func(t *testing.T, d database) {
		ctx, address := t.Context(), d.url(t)
		s := open(t, address)
		migrate(t, s)
		createTenant(t, s, "acme")
		secret, k := mint(t, "acme")
		k = must(s.CreateKey(ctx, actor, k))(t)
		next, rotated := mint(t, "acme")
		if _, _, err := s.RotateKey(ctx, actor, k.ID, rotated, time.Hour, noon); err != nil {
			t.Fatal(err)
		}
		admin := tenants.Digest("tw-adm-…")
		must(s.CreateAdmin(ctx, actor, store.Admin{ID: "1", Name: "root", Role: store.RoleAdmin, Digest: admin}))(t)
		_, err := s.CreateKey(ctx, actor, rotated) // its digest is taken
		wants(t, err, store.ErrExists)
		text := dump(t, raw(t, address))
		for _, key := range []string{secret, next} {
			for _, part := range []string{key, key[10:30]} {
				if strings.Contains(text, part) {
					t.Errorf("%q of a key is in the database", part)
				}
			}
		}
		if !strings.Contains(text, k.Hint) {
			t.Error("the hint is not there")
		}
		for _, digest := range [][32]byte{k.Digest, rotated.Digest, admin} {
			written := hex.EncodeToString(digest[:])
			if n := strings.Count(text, written); n != 1 {
				t.Errorf("a digest is %d times in the database", n)
			}
			if strings.Contains(err.Error(), written) {
				t.Errorf("a digest is in %v", err)
			}
		}
		if file, ok := strings.CutPrefix(address, "sqlite://"); ok {
			for _, name := range []string{file, file + "-wal"} {
				if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the file %s: %v, %v", name, info, err)
				}
			}
		}
	})
}

// AD-17: the last admin stays.
func TestTheLastAdminCannotBeDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		ctx := t.Context()
		admin := func(id, name, role string, expires time.Time) store.Admin {
			t.Helper()
			return must(s.CreateAdmin(ctx, actor,
				store.Admin{ID: id, Name: name, Role: role, Hint: id, Digest: tenants.Digest(id), ExpiresAt: expires}))(t)
		}
		first := admin("1", "root", store.RoleAdmin, time.Time{})
		admin("2", "eve", store.RoleViewer, time.Time{})
		admin("3", "old", store.RoleAdmin, time.Now().Add(-time.Hour))
		wants(t, s.DeleteAdmin(ctx, actor, "1", false), store.ErrLastAdmin)
		_, err := s.CreateAdmin(ctx, actor,
			store.Admin{ID: "4", Name: "root", Role: store.RoleAdmin, Digest: tenants.Digest("4")})
		wants(t, err, store.ErrExists)
		if _, err := s.CreateAdmin(ctx, actor, store.Admin{ID: "5", Name: "x", Role: "god"}); err == nil {
			t.Error("there may be gods")
		}
		second := admin("6", "old", store.RoleAdmin, time.Time{}) // the expired one of that name makes room
		if err := s.DeleteAdmin(ctx, actor, "1", false); err != nil {
			t.Error(err)
		}
		wants(t, s.DeleteAdmin(ctx, actor, "1", false), store.ErrNotFound)
		wants(t, s.DeleteAdmin(ctx, actor, "6", false), store.ErrLastAdmin)
		if err := s.DeleteAdmin(ctx, actor, "2", false); err != nil {
			t.Error(err)
		}
		same(t, "left", contents(t, s).Admins, []store.Admin{second})
		if err := s.DeleteAdmin(ctx, actor, "6", true); err != nil {
			t.Errorf("with another admin elsewhere: %v", err)
		}
		if first.CreatedBy != "ops" || first.CreatedAt.IsZero() {
			t.Errorf("an admin is stored as %+v", first)
		}
	})
}

func TestConcurrentBootstrapsCreateOneAdmin(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		var all sync.WaitGroup
		results := make([]error, 6)
		for i := range results {
			all.Go(func() {
				id := fmt.Sprint(i)
				_, results[i] = s.Bootstrap(t.Context(), actor, store.Admin{ID: id, Name: "root" + id, Role: store.RoleAdmin,
					Digest: tenants.Digest(id)})
			})
		}
		all.Wait()
		made := 0
		for _, err := range results {
			if err == nil {
				made++
			} else {
				wants(t, err, store.ErrExists)
			}
		}
		if n := len(contents(t, s).Admins); made != 1 || n != 1 {
			t.Errorf("%d became the first admin, %d are there", made, n)
		}
	})
}

func TestOverrideReplacesTheEarlierOne(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		ctx, forty, zero, until := t.Context(), 40, 0, noon.AddDate(100, 0, 0)
		for _, o := range []store.Override{{Worker: "w1", Drain: true},
			{Worker: "w1", Weight: &forty, Until: until, By: "cron"}, {Worker: "w0", Weight: &zero}} {
			if err := s.SetOverride(ctx, actor, o); err != nil {
				t.Fatal(err)
			}
		}
		got := contents(t, s).Overrides
		if len(got) != 2 || got[0].At.IsZero() {
			t.Fatalf("the overrides are %+v", got)
		}
		same(t, "the overrides", got, []store.Override{{Worker: "w0", Weight: &zero, By: "ops", At: got[0].At},
			{Worker: "w1", Weight: &forty, By: "cron", At: got[1].At, Until: until}})
		if err := s.ClearOverride(ctx, actor, "w1"); err != nil {
			t.Error(err)
		}
		wants(t, s.ClearOverride(ctx, actor, "w1"), store.ErrNotFound)
		entries := audit(t, s, store.AuditQuery{Target: "w1"})
		if len(entries) != 3 || !strings.Contains(entries[0].Before, `"weight":40`) || entries[0].After != "" ||
			!strings.Contains(entries[1].Before, `"drain":true`) {
			t.Errorf("the audit log says %+v", entries)
		}
	})
}

func TestContentsAreReadAtOneMoment(t *testing.T) {
	onDatabases(t, databases(), func(t *testing.T, d database) {
		s := open(t, d.url(t))
		migrate(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 0; ctx.Err() == nil; i++ { // at an odd revision there is one tenant, at an even one none
				name := fmt.Sprintf("t%d", i)
				if _, err := s.CreateTenant(ctx, actor, tenants.Tenant{Name: name}); err == nil {
					_ = s.DeleteTenant(ctx, actor, name, 0)
				}
			}
		})
		for range 50 {
			c := contents(t, s)
			if want := int(c.Revision % 2); len(c.Tenants) != want {
				t.Errorf("at revision %d there are %d tenants", c.Revision, len(c.Tenants))
			}
		}
		cancel()
		writer.Wait()
	})
}
