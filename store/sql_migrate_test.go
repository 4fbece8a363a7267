package store_test

import (
	"bytes"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/migrations"
	"tierway/store"
)

func TestConcurrentMigrationsRunOnce(t *testing.T) {
	onDatabases(t, sharedDatabases(), func(t *testing.T, d database) {
		address := d.url(t)
		var all sync.WaitGroup
		results := make([]store.Migrated, 6)
		for i := range results {
			s := open(t, address)
			all.Go(func() {
				var err error
				if results[i], err = s.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_, latest, err := open(t, address).Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range results {
			if m.To != latest {
				t.Errorf("one came to version %d", m.To)
			}
		}
		var times int64
		if err := raw(t, address).QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM goose_db_version WHERE version_id = 1").Scan(&times); err != nil || times != 1 {
			t.Errorf("the first migration ran %d times, %v", times, err)
		}
	})
}

func TestOlderProgramReportsANewerSchema(t *testing.T) {
	onDatabases(t, sharedDatabases(), func(t *testing.T, d database) {
		address := d.url(t)
		s := open(t, address)
		if applied, latest, err := s.Schema(t.Context()); applied != 0 || latest < 1 || err != nil {
			t.Errorf("an empty database is at %d of %d, %v", applied, latest, err)
		}
		migrate(t, s)
		if m := must(s.Migrate(t.Context()))(t); m.From != m.To || m.To < 1 {
			t.Errorf("migrating again went from %d to %d", m.From, m.To)
		}
		if _, err := raw(t, address).ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) "+
			"VALUES (99, true)"); err != nil {
			t.Fatal(err)
		}
		m, err := s.Migrate(t.Context())
		wants(t, err, store.ErrNewer)
		_, latest, _ := s.Schema(t.Context())
		for _, word := range []string{"version 99", "up to " + string(rune('0'+latest)), "later one"} {
			if err != nil && !strings.Contains(err.Error(), word) {
				t.Errorf("%q is not in: %v", word, err)
			}
		}
		if m.From != 99 || store.Unreachable(err) {
			t.Errorf("from %d, unreachable %v", m.From, store.Unreachable(err))
		}
		createTenant(t, s, "acme") // migrations only add: it works on
	})
}

// usageBefore adds a request to the usage of a day as the release before this one does.
const usageBefore = `INSERT INTO usage (day, tenant, key_id, tier, model, outcome, requests, estimated, prompt, cached, output, money)
	VALUES (20778, 'old', 'k', 'small', 'm', 'ok', 1, 0, 10, 0, 5, 7)
	ON CONFLICT (day, tenant, key_id, tier, model, outcome) DO UPDATE SET requests = usage.requests + excluded.requests,
	estimated = usage.estimated + excluded.estimated, prompt = usage.prompt + excluded.prompt,
	cached = usage.cached + excluded.cached, output = usage.output + excluded.output, money = usage.money + excluded.money`

// releaseBefore reverts the schema to that of the release before this one, and adds a tenant without a
// weight and its usage, as that release does.
func releaseBefore(t *testing.T, address string, back bool) {
	t.Helper()
	statements := []string{"INSERT INTO tenants (name, priority, default_priority, created_at, updated_at) VALUES " +
		"('old', 'interactive', 'interactive', 1, 1)", usageBefore}
	if back {
		if strings.HasPrefix(address, "sqlite") {
			for _, trigger := range []string{"tenants_added", "tenants_changed", "tenants_deleted", "keys_added", "keys_changed",
				"keys_deleted"} {
				statements = append(statements, "DROP TRIGGER "+trigger)
			}
		} else {
			statements = append(statements, "DROP FUNCTION directory_changed, tenant_deleted, key_deleted CASCADE")
		}
		statements = append(statements, "DROP INDEX tenants_revision", "DROP INDEX keys_revision", "DROP INDEX keys_ending",
			"DROP TABLE deletions", "ALTER TABLE revision DROP COLUMN pruned", "ALTER TABLE tenants DROP COLUMN revision", "ALTER TABLE keys DROP COLUMN revision",
			"ALTER TABLE tenants DROP COLUMN weight",
			"ALTER TABLE tenants DROP COLUMN response_cache",
			"ALTER TABLE usage DROP COLUMN cached_requests", "ALTER TABLE usage DROP COLUMN saved",
			"DELETE FROM goose_db_version WHERE version_id > 1")
	}
	for _, statement := range statements {
		if _, err := raw(t, address).ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// The release before this one continues to work while both share the database. This release serves its
// tenants with the weight 1, and both add to the usage of one day.
func TestAdjacentReleasesShareADatabase(t *testing.T) {
	for _, d := range sharedDatabases() {
		for name, back := range map[string]bool{"before it is migrated": true, "after": false} {
			t.Run(d.name+" "+name, func(t *testing.T) {
				address := d.url(t)
				s := open(t, address)
				migrate(t, s)
				releaseBefore(t, address, back)
				if m := must(open(t, address).Migrate(t.Context()))(t); back != (m.From == 1) || m.To < 2 {
					t.Errorf("migrated from %d to %d", m.From, m.To)
				}
				c := contents(t, open(t, address))
				if len(c.Tenants) != 1 || c.Tenants[0].Name != "old" || c.Tenants[0].Weight != 1 {
					t.Errorf("its tenants are %+v", c.Tenants)
				}
				at := time.Unix(20778*86400, 0)
				write(t, s, store.Row{ID: "new", At: at, Tenant: "old", Key: "k", Tier: "small", Model: "m", Outcome: "ok",
					Prompt: 10, Output: 5, Money: 1, FromCache: true, Saved: 6})
				if _, err := raw(t, address).ExecContext(t.Context(), usageBefore); err != nil {
					t.Fatal(err)
				}
				same(t, "its usage", must(s.Usage(t.Context(), store.UsageQuery{Tenant: "old"}))(t), []store.UsageRow{{
					Day: "2026-11-21", Requests: 3, Prompt: 30, Output: 15, Money: 15, CachedRequests: 1, Saved: 6}})
			})
		}
	}
}

// TestChangesByTheReleaseBeforeAreFound: it has neither the revisions of rows nor the marks of deleted ones. The time
// of a last use is no change.
func TestChangesByTheReleaseBeforeAreFound(t *testing.T) {
	for _, d := range sharedDatabases() {
		t.Run(d.name, func(t *testing.T) {
			address := d.url(t)
			s := open(t, address)
			migrate(t, s)
			createTenant(t, s, "acme")
			first, second := createKey(t, s, "acme"), createKey(t, s, "acme")
			var f follower
			f.step(t, s)
			change := func(statement string) store.Changes {
				t.Helper()
				for _, text := range []string{"UPDATE revision SET number = number + 1", statement} {
					if _, err := raw(t, address).ExecContext(t.Context(), text); err != nil {
						t.Fatal(err)
					}
				}
				return f.step(t, s)
			}
			change("UPDATE keys SET revoked_at = 5, version = 2 WHERE id = '" + first.ID + "'")
			if f.has(first) || !f.has(second) {
				t.Error("a revocation is missing")
			}
			if c := change("UPDATE keys SET last_used_at = 60000000 WHERE id = '" + second.ID + "'"); len(c.Keys) > 0 {
				t.Errorf("a last use is a change of %+v", c.Keys)
			}
			change("UPDATE tenants SET weight = 9 WHERE name = 'acme'")
			if acme, _ := f.Tenant("acme"); acme.Weight != 9 {
				t.Errorf("the tenant is %+v", acme)
			}
			change("INSERT INTO tenants (name, priority, default_priority, created_at, updated_at) VALUES " +
				"('new', 'interactive', 'interactive', 1, 1)")
			if _, known := f.Tenant("new"); !known {
				t.Error("a tenant is missing")
			}
			if change("DELETE FROM keys WHERE id = '" + second.ID + "'"); f.has(second) {
				t.Error("a deleted key is valid")
			}
			change("DELETE FROM tenants WHERE name = 'new'")
			if ts, ks := f.Stored(); ts != 1 || ks != 1 || f.restart || !f.at.Whole() {
				t.Errorf("at the end: %d tenants, %d keys, %+v", ts, ks, f.at)
			}
		})
	}
}

func TestMigrationsRunOnBothDatabasesAndOnlyAdd(t *testing.T) {
	files, err := filepath.Glob("../migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	foreign :=
		regexp.MustCompile(
			`(?i)\b(SERIAL|BIGSERIAL|JSONB|BOOLEAN|TIMESTAMP|INTEGER|AUTOINCREMENT|BYTEA|BLOB|now\(\)|ALTER COLUMN|CREATE TRIGGER)\b`)
	takes := regexp.MustCompile(`(?i)\b(DROP|RENAME|DELETE|UPDATE)\b`)
	comment := regexp.MustCompile(`--.*`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if built, err := migrations.Files.ReadFile(filepath.Base(file)); err != nil || !bytes.Equal(built, text) {
			t.Errorf("%s is not in the program: %v", file, err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		up = comment.ReplaceAllString(up, "")
		if found := append(foreign.FindAllString(up, -1), takes.FindAllString(up, -1)...); len(found) > 0 {
			t.Errorf("%s: %q", file, found)
		}
	}
}

func TestMigrateWritesNoOutput(t *testing.T) {
	var spoken bytes.Buffer
	log.SetOutput(&spoken)
	defer log.SetOutput(os.Stderr)
	s := open(t, "sqlite://:memory:")
	migrate(t, s)
	if spoken.Len() > 0 {
		t.Errorf("the migration prints %q", spoken.String())
	}
}

func TestDatabaseURLsAreChecked(t *testing.T) {
	for _, url := range []string{"", "tierway.db", "mysql://x", "sqlite://", "sqlite://a?b=c", "sqlite://a#b",
		"postgres://%zz", "postgres://u:" + planted + "@h:port/d", "postgres://u:" + planted + "@h/d?sslmode=perhaps",
		planted} {
		s, err := store.OpenSQL(store.SQLConfig{URL: url})
		if err == nil {
			_ = s.Close()
			t.Errorf("%q is taken", url)
		} else if strings.Contains(err.Error(), planted) {
			t.Errorf("the password is in %v", err)
		}
	}
	for url, kind := range map[string]string{"sqlite://x/../tierway.db": "sqlite", "sqlite://:memory:": "sqlite",
		"postgres://u@h/d": "postgres", "postgresql://a:1,b:2/d": "postgres"} {
		if strings.HasPrefix(url, "sqlite://x") {
			t.Chdir(t.TempDir())
		}
		if s := open(t, url); s.Kind() != kind {
			t.Errorf("%q is %s", url, s.Kind())
		}
	}
}

func TestMissingFolderIsNotAnOutage(t *testing.T) {
	_, err := store.OpenSQL(store.SQLConfig{URL: "sqlite://" + filepath.Join(t.TempDir(), "missing", "x.db")})
	if err == nil || store.Unreachable(err) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("the error is %v", err)
	}
}
