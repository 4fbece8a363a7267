package store_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/store"
	"tierway/tenants"
)

// database is one kind of database that the tests of store.SQL run on.
type database struct {
	name string
	url  func(t testing.TB) string
}

// realPostgres is the environment variable with the URL of a PostgreSQL server.
const realPostgres = "TIERWAY_TEST_POSTGRES"

// databases returns both kinds of SQLite databases, or the PostgreSQL of TestSmokePostgres.
func databases() []database {
	if os.Getenv(realPostgres) != "" {
		return sharedDatabases()
	}
	return append([]database{{"memory", func(testing.TB) string { return "sqlite://:memory:" }}}, sharedDatabases()...)
}

// sharedDatabases returns the databases that several clients can use.
func sharedDatabases() []database {
	if os.Getenv(realPostgres) != "" {
		return []database{{"postgres", schema}}
	}
	return []database{{"file", file}}
}

// file returns the URL of a new SQLite file.
func file(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "tierway 100%.db") }

// schema returns the URL of a new, empty schema of the PostgreSQL of TestSmokePostgres. A schema takes a tenth of the
// time of a database, and a connection to it sees no other.
func schema(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(os.Getenv(realPostgres))
	if err != nil {
		t.Fatal(err)
	}
	server, name := u.String(), "t"+strings.ToLower(rand.Text())
	execOnce(t, server, "CREATE SCHEMA "+name)
	t.Cleanup(func() { execOnce(t, server, "DROP SCHEMA "+name+" CASCADE") }) // its own connections are closed
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// execOnce runs a statement on a connection of its own.
func execOnce(t testing.TB, url, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err == nil {
		_, err = db.ExecContext(context.Background(), statement)
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onEach runs a test on each kind of database, with an empty schema.
func onEach(t *testing.T, test func(t *testing.T, s *store.SQL)) {
	t.Helper()
	onDatabases(t, databases(), func(t *testing.T, d database) {
		s := open(t, d.url(t))
		migrate(t, s)
		test(t, s)
	})
}

// onDatabases runs a test on some databases. Those of SQLite are used in a bubble, where no call has a timeout that a
// slow machine misses.
func onDatabases(t *testing.T, all []database, test func(t *testing.T, d database)) {
	t.Helper()
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			if os.Getenv(realPostgres) != "" {
				test(t, d)
				return
			}
			synctest.Test(t, func(t *testing.T) { test(t, d) })
		})
	}
}

func open(t testing.TB, url string) *store.SQL {
	t.Helper()
	s, err := store.OpenSQL(store.SQLConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func migrate(t testing.TB, s *store.SQL) {
	t.Helper()
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// must fails the test for an error and returns the value.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wants(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || err == nil {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

var actor = store.Actor{Name: "ops", Role: store.RoleAdmin, Via: "api", IP: "192.0.2.7", RequestID: "req-1"}

func createTenant(t testing.TB, s *store.SQL, name string) tenants.Tenant {
	t.Helper()
	return must(s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: name}))(t)
}

// mint makes a key that is not stored.
func mint(t testing.TB, tenant string) (string, tenants.Key) {
	t.Helper()
	secret, k, err := tenants.Mint(rand.Reader, tenant)
	if err != nil {
		t.Fatal(err)
	}
	return secret, k
}

func createKey(t testing.TB, s *store.SQL, tenant string) tenants.Key {
	t.Helper()
	_, k := mint(t, tenant)
	return must(s.CreateKey(t.Context(), actor, k))(t)
}

func contents(t testing.TB, s *store.SQL) store.Contents {
	t.Helper()
	return must(s.Contents(t.Context()))(t)
}

func revision(t testing.TB, s *store.SQL) int64 {
	t.Helper()
	return contents(t, s).Revision
}

func audit(t testing.TB, s *store.SQL, q store.AuditQuery) []store.AuditEntry {
	t.Helper()
	return must(s.Audit(t.Context(), q))(t)
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// everything is a tenant with a value in each field.
func everything(name string) tenants.Tenant {
	return tenants.Tenant{Name: name, Disabled: true,
		Rights: tenants.Rights{Tiers: []string{"small", `qu"ote`}, Models: []string{}, Priority: tenants.Background,
			Default: tenants.Batch},
		Limits: tenants.Limits{RPM: 1, RPS: 2, Burst: 3, TPM: 4, TokenBurst: 5, Concurrent: 6, DayTokens: 7, MonthTokens: 8,
			DayMoney: 9*tenants.Unit + 1, MonthMoney: 10},
		Weight: 11, IsolateCache: true, Degrade: true, FailClosed: true}
}

func TestTenantRoundTrips(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		plain := createTenant(t, s, "plain")
		full := must(s.CreateTenant(t.Context(), actor, everything("full")))(t)
		if full.Version != 1 || full.CreatedAt.IsZero() || full.FromConfig {
			t.Errorf("a new tenant is %+v", full)
		}
		c := contents(t, s)
		same(t, "tenants", c.Tenants, []tenants.Tenant{full, plain})
		if full.Weight != 11 || plain.Weight != 1 {
			t.Errorf("the weights are %d and, where none was given, %d", full.Weight, plain.Weight)
		}
		if c.Tenants[0].Models == nil || c.Tenants[1].Models != nil {
			t.Error("none and all are not distinguished")
		}
		_, err := s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: "full"})
		wants(t, err, store.ErrExists)
		for _, bad := range []string{"", "../../x", "<script>", "Ünïcode"} {
			if _, err := s.CreateTenant(t.Context(), actor, tenants.Tenant{Name: bad}); err == nil {
				t.Errorf("a tenant may be called %q", bad)
			}
		}
	})
}

func TestUpdateOfAnOldVersionConflicts(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		made := createTenant(t, s, "acme")
		changed := everything("acme")
		next := must(s.UpdateTenant(t.Context(), actor, changed, made.Version))(t)
		changed.Version, changed.CreatedAt, changed.UpdatedAt = 2, made.CreatedAt, next.UpdatedAt
		same(t, "the tenant", next, changed)
		_, err := s.UpdateTenant(t.Context(), actor, tenants.Tenant{Name: "acme"}, made.Version)
		wants(t, err, store.ErrConflict)
		same(t, "after a conflict", contents(t, s).Tenants, []tenants.Tenant{next})
		if last := must(s.UpdateTenant(t.Context(), actor, tenants.Tenant{Name: "acme"}, 0))(t); last.Version != 3 ||
			last.Weight != 1 {
			t.Errorf("the version is %d, the weight %d", last.Version, last.Weight)
		}
		_, err = s.UpdateTenant(t.Context(), actor, tenants.Tenant{Name: "nobody"}, 0)
		wants(t, err, store.ErrNotFound)
		wants(t, s.DeleteTenant(t.Context(), actor, "acme", 1), store.ErrConflict)
		wants(t, s.DeleteTenant(t.Context(), actor, "nobody", 0), store.ErrNotFound)
	})
}

func TestDeletedTenantLosesItsKeysAndKeepsItsLedger(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		for _, name := range []string{"acme", "other"} {
			createTenant(t, s, name)
			k := createKey(t, s, name)
			write(t, s, store.Row{ID: name, Tenant: name, Key: k.ID, At: noon, Outcome: "ok", Prompt: 5})
		}
		if err := s.DeleteTenant(t.Context(), actor, "acme", 0); err != nil {
			t.Fatal(err)
		}
		c := contents(t, s)
		if len(c.Tenants) != 1 || len(c.Keys) != 1 || c.Keys[0].Tenant != "other" {
			t.Errorf("left are %d tenants and the keys %v", len(c.Tenants), c.Keys)
		}
		used := must(s.Usage(t.Context(), store.UsageQuery{Tenant: "acme"}))(t)
		if len(used) != 1 || used[0].Prompt != 5 {
			t.Errorf("what it has used is %+v", used)
		}
	})
}

func TestRevisionGrowsOnlyWithChanges(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		step := func(what string, grows int64, do func() error) {
			t.Helper()
			before := revision(t, s)
			_ = do()
			if after := revision(t, s); after != before+grows || contents(t, s).Revision != after {
				t.Errorf("%s: from %d to %d, want %d more", what, before, after, grows)
			}
		}
		ctx := t.Context()
		_, k := mint(t, "acme")
		step("a tenant", 1, func() error { _, err := s.CreateTenant(ctx, actor, tenants.Tenant{Name: "acme"}); return err })
		step("the same again", 0, func() error {
			_, err := s.CreateTenant(ctx, actor, tenants.Tenant{Name: "acme"})
			return err
		})
		step("a key", 1, func() error { _, err := s.CreateKey(ctx, actor, k); return err })
		step("its use", 0, func() error { return s.TouchKeys(ctx, map[string]time.Time{k.ID: noon}) })
		step("its end", 1, func() error { _, err := s.RevokeKey(ctx, actor, k.ID, "", noon); return err })
		step("its end again", 0, func() error { _, err := s.RevokeKey(ctx, actor, k.ID, "", noon); return err })
		step("an override", 1, func() error { return s.SetOverride(ctx, actor, store.Override{Worker: "w1", Drain: true}) })
		step("no override", 0, func() error { return s.ClearOverride(ctx, actor, "w2") })
		step("a note", 0, func() error { return s.AppendAudit(ctx, actor, "reload", "config.yaml", "", "", "ok") })
		step("a row", 0, func() error {
			_, err := s.WriteRows(ctx, []store.Row{{ID: "1", At: noon, Tenant: "acme"}})
			return err
		})
	})
}

// TestInMemoryDatabaseSurvivesCancelledCalls: the only connection of :memory: contains
// the database and must survive every call.
func TestInMemoryDatabaseSurvivesCancelledCalls(t *testing.T) {
	s := open(t, "sqlite://:memory:")
	migrate(t, s)
	createTenant(t, s, "acme")
	for i := range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		_, _ = s.CreateTenant(ctx, actor, tenants.Tenant{Name: "other"})
		_, _ = s.Contents(ctx)
		cancel()
	}
	if got := contents(t, s).Tenants; len(got) == 0 || got[0].Name != "acme" {
		t.Errorf("left are %v", got)
	}
}
