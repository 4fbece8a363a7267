package main

import (
	"database/sql"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/tenants"
)

// newTables returns an empty database with columns that the seeds do not have, and without some that they have.
func newTables(t *testing.T) *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1) // each connection has its own database
	for _, statement := range []string{
		`CREATE TABLE tenants (name TEXT PRIMARY KEY, priority TEXT NOT NULL, default_priority TEXT NOT NULL,
			created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, revision BIGINT NOT NULL DEFAULT 7)`,
		`CREATE TABLE keys (id TEXT PRIMARY KEY, tenant TEXT NOT NULL REFERENCES tenants (name), hint TEXT NOT NULL,
			digest TEXT NOT NULL UNIQUE, revision BIGINT NOT NULL DEFAULT 7, tiers TEXT)`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// count returns the number that a query selects.
func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSeedsFillTheColumnsThatExist(t *testing.T) {
	for _, c := range []struct {
		seeds              seeds
		tenants, firstKeys int
	}{
		{seeds{keys: 100}, 2, 50},
		{seeds{keys: 1200}, 24, 50},
		{seeds{keys: 1200, skewed: true}, 24, 625}, // 600 and a 24th of the others
	} {
		t.Run(c.seeds.String(), func(t *testing.T) {
			db := newTables(t)
			secret, err := c.seeds.fill(t.Context(), db, time.Unix(1, 0))
			if err != nil {
				t.Fatal(err)
			}
			if n := count(t, db, "SELECT count(*) FROM tenants WHERE revision = 7"); n != c.tenants {
				t.Errorf("%d tenants, want %d", n, c.tenants)
			}
			if n := count(t, db, "SELECT count(*) FROM keys WHERE revision = 7 AND tiers IS NULL"); n != c.seeds.keys {
				t.Errorf("%d keys, want %d", n, c.seeds.keys)
			}
			if n := count(t, db, "SELECT count(*) FROM keys WHERE tenant = $1", tenantName(0)); n != c.firstKeys {
				t.Errorf("%d keys of the first tenant, want %d", n, c.firstKeys)
			}
			digest := tenants.Digest(secret)
			if n := count(t, db, "SELECT count(*) FROM keys WHERE digest = $1", hex.EncodeToString(digest[:])); n != 1 {
				t.Errorf("%d keys have the digest of the returned secret", n)
			}
			again, err := c.seeds.fill(t.Context(), newTables(t), time.Unix(1, 0))
			if err != nil || again != secret {
				t.Errorf("the second run has another key (%v)", err)
			}
		})
	}
}

func TestSeedsOfARefusedRowAreNotKept(t *testing.T) {
	db := newTables(t)
	err := insertRows(t.Context(), db, "tenants", 3, func(int) (row, error) { return row{"name": "it's"}, nil })
	if err == nil || count(t, db, "SELECT count(*) FROM tenants") != 0 {
		t.Errorf("rows without a priority were inserted (%v)", err)
	}
}

func TestOptionsAreBounded(t *testing.T) {
	for _, args := range []string{"-rounds 0", "-revocations 0", "-workers 0", "-workers 60001", "-idle -1s", "-sizes 1",
		"-sizes 10,many", "-databases mysql", "more"} {
		if _, err := parseOptions(strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parseOptions(strings.Fields("-sizes 500,100,500 -databases sqlite -skewed -markdown"))
	want := []cell{{sqlite, seeds{keys: 100}}, {sqlite, seeds{keys: 500}}, {sqlite, seeds{keys: 500, skewed: true}}}
	if err != nil || !slices.Equal(o.cells(), want) || !o.markdown {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestConfigurationHasNoKey(t *testing.T) {
	f, err := newFleet(t.TempDir(), strings.NewReader(strings.Repeat("x", 20)))
	if err != nil {
		t.Fatal(err)
	}
	text := gatewayConfig("sqlite://a.db", "", 600, 5, f.digest)
	if strings.Contains(text, f.key) || strings.Count(text, "weight: 5") != 1 || strings.Count(text, "url:") != 600 {
		t.Errorf("the configuration is\n%s", text)
	}
}

// answerer answers every request.
type answerer struct {
	status int
	body   string
}

func (a answerer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func TestAnswersOfGatewaysAreChecked(t *testing.T) {
	f, err := newFleet(t.TempDir(), strings.NewReader(strings.Repeat("x", 20)))
	if err != nil {
		t.Fatal(err)
	}
	f.list = []*gateway{{addr: "data", admin: "admin"}}
	for _, c := range []struct {
		status       int
		accepted, ok bool
	}{{200, true, true}, {401, false, true}, {429, false, true}, {503, false, false}} {
		f.client.Transport = answerer{status: c.status, body: "{}"}
		if got, err := f.accepts(t.Context(), f.list[0], "key"); got != c.accepted || (err == nil) != c.ok {
			t.Errorf("status %d: accepted %t, %v", c.status, got, err)
		}
	}
	f.client.Transport = answerer{201, `{"key":{"id":"a1"},"secret":"tw-1"}`}
	if k, err := f.createKey(t.Context(), "t"); k.Key.ID != "a1" || k.Secret != "tw-1" || err != nil {
		t.Errorf("got %+v, %v", k, err)
	}
	for _, a := range []answerer{{201, "{}"}, {409, `{"detail":"no"}`}, {201, "no JSON"}} {
		f.client.Transport = a
		if _, err := f.createKey(t.Context(), "t"); err == nil {
			t.Errorf("%+v is a key", a)
		}
	}
}

func TestMediansOfCostsArePerPart(t *testing.T) {
	ms := func(n ...time.Duration) (list []time.Duration) {
		for _, x := range n {
			list = append(list, x*time.Millisecond)
		}
		return list
	}
	c := medians([]cost{{3 * time.Millisecond, ms(1, 20)}, {1 * time.Millisecond, ms(5, 60)},
		{2 * time.Millisecond, ms(3, 40)}, {8 * time.Millisecond, ms(9, 0)}})
	if c.wall != 2500*time.Microsecond || !slices.Equal(c.cpu, ms(4, 30)) || c.total() != 34*time.Millisecond {
		t.Errorf("got %+v", c)
	}
}

func TestReportComparesWithTheFewestKeysOfTheSameKind(t *testing.T) {
	small, large := cell{sqlite, seeds{keys: 100}}, cell{sqlite, seeds{keys: 1_000_000}}
	skewed := cell{sqlite, seeds{keys: 1_000_000, skewed: true}}
	other := cell{postgres, seeds{keys: 1_000_000}}
	change := func(c cell, wall, cpu time.Duration) changeResult {
		return changeResult{cell: c, change: "create a key",
			cost: cost{wall * time.Millisecond, []time.Duration{cpu * time.Millisecond, 0}}}
	}
	m := &measurement{options: options{rounds: 20, revocations: 2, workers: 2000, settle: time.Second},
		starts: []startResult{
			{small, []time.Duration{time.Second}, []time.Duration{time.Second}, 51_200, 51_200},
			{large, []time.Duration{time.Second, 21 * time.Second}, []time.Duration{time.Second}, 1_024_000, 551_200}},
		changes: []changeResult{change(small, 4, 10), change(large, 8, 20), change(skewed, 9, 10), change(other, 90, 90)},
		revokes: []revokeResult{{small, true, []time.Duration{0, 1100 * time.Millisecond}},
			{small, false, []time.Duration{0, 1100 * time.Millisecond}}},
		reloads: []reloadResult{{small, cost{time.Second, []time.Duration{20 * time.Millisecond}}}}}
	text := m.report(true)
	for _, want := range []string{
		"| sqlite | 1,000,000 | 21.00 s | 1.00 s | 1000 MiB | 538 MiB | 512 B | FAIL |",
		"| sqlite | no | create a key | 1,000,000 | 8.0 ms | 2.00 | 20.0, 0.0 ms | 20.0 ms | 2.00 | pass |",
		"| sqlite | no | create a key | 1,000,000, half in one tenant | 9.0 ms | 2.25 | 10.0, 0.0 ms | 10.0 ms | 1.00 | FAIL: answer |",
		"| postgres | no | create a key | 1,000,000 | 90.0 ms |  | 90.0, 0.0 ms | 90.0 ms |  |  |",
		"| sqlite | yes | 100 | 550.0 ms | 1100.0 ms | FAIL |", "| sqlite | no | 100 | 550.0 ms | 1100.0 ms | pass |",
		"| sqlite | 100 | 1000.0 ms | 20.0 ms | pass |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "Idle") {
		t.Error("the report has a table without figures")
	}
	if plain := m.report(false); !strings.Contains(plain, "\nsqlite    1,000,000  21.00 s  1.00 s") {
		t.Errorf("the columns are not aligned:\n%s", plain)
	}
}
