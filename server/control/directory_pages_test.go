package control

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// executeSQL runs statements in one transaction of the SQLite file at url.
func executeSQL(t *testing.T, url string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite://"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// nextRevision begins a change by SQL statements.
const nextRevision = "UPDATE revision SET number = number + 1"

// insertKeys returns the statement that inserts n keys of the tenant t0, with ids from first100000 on.
func insertKeys(n int, first string) string {
	return fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 100000 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO keys (id, tenant, hint, digest, priority, default_priority, created_at)
		SELECT '%s' || i, 't0', '', printf('%%064x', i), 'batch', 'batch', 1 FROM n`, 100000+n-1, first)
}

// keysInForce returns the number of keys of the database that are in force.
func keysInForce(c *Control) int {
	_, n := c.Snapshot().Identity.Directory.Stored()
	return n
}

// isValid reports whether a request with the key is authenticated.
func isValid(c *Control, secret string) bool {
	_, err := c.Snapshot().Identity.Directory.Authenticate(secret, time.Now())
	return err == nil
}

// readAll reads changes until nothing is missing, and calls after behind each step.
func readAll(t *testing.T, c *Control, after func(step int)) {
	t.Helper()
	for step := 1; ; step++ {
		whole, err := c.readChanges(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		after(step)
		if whole {
			return
		}
	}
}

// TestRevocationDoesNotWaitForABacklog that takes many pages: a database sends a row per millisecond.
func TestRevocationDoesNotWaitForABacklog(t *testing.T) {
	const many = 12_000
	for name, isTime := range map[string]func(*Control) bool{
		"before its first page": func(*Control) bool { return true },
		"between two pages":     func(c *Control) bool { return keysInForce(c) > 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				url, secret, key := newLargeDatabase(t)
				c, log := newControlWithRows(t, url, func() { time.Sleep(time.Millisecond) })
				followInBackground(t, c)
				other, err := store.OpenSQL(store.SQLConfig{URL: url})
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				executeSQL(t, url, nextRevision, insertKeys(many, "k"))
				until(t, name, func() bool { return isTime(c) })
				if !isValid(c, secret) {
					t.Fatal("the key is not valid before")
				}
				if _, err := other.RevokeKey(t.Context(), store.Actor{}, key.ID, "leaked", time.Now()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * PollInterval)
				if n := keysInForce(c); isValid(c, secret) || n > many {
					t.Errorf("after two polls the key is valid: %v; %d of %d keys are read", isValid(c, secret), n, many+1)
				}
				until(t, "the whole backlog", func() bool { return isValid(c, secret) || keysInForce(c) == many+1 })
				if isValid(c, secret) || c.Database.State() != DatabaseOK {
					t.Errorf("the key is valid again: %v; the log is %s", isValid(c, secret), log)
				}
			})
		})
	}
}

// TestErrorInAPageLosesNothingAndReadsNothingTwice, in a first reading and in a backlog.
func TestErrorInAPageLosesNothingAndReadsNothingTwice(t *testing.T) {
	const many = 15_000
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("first reading: ", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				url, secret, _ := newLargeDatabase(t)
				if first {
					executeSQL(t, url, nextRevision, insertKeys(many, "k"))
				}
				rows, failAt := 0, 0
				var fail context.CancelFunc
				c, _ := newControlWithRows(t, url, func() {
					if rows++; rows == failAt {
						fail()
						synctest.Wait() // the database ends the transaction
					}
				})
				if first {
					c.Database.beginAgain()
				} else {
					executeSQL(t, url, nextRevision, insertKeys(many, "k"))
				}
				read := 0 // rows of the pages that were read
				step := func(ctx context.Context) (bool, error) {
					rows = 0
					whole, err := c.readChanges(ctx)
					if err == nil {
						read += rows
					}
					return whole, err
				}
				if whole, err := step(t.Context()); whole || err != nil {
					t.Fatalf("after the first page: whole %v, %v", whole, err)
				}
				var ctx context.Context
				ctx, fail = context.WithCancel(t.Context())
				defer fail()
				position := c.Database.position
				failAt = 3_000
				if whole, err := step(ctx); whole || err == nil || rows != failAt || c.Database.position != position {
					t.Fatalf("a page that fails after %d rows: whole %v, %v", rows, whole, err)
				}
				failAt = 0
				for {
					whole, err := step(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if whole {
						break
					}
				}
				want := many + 101 // with the first tenants and key
				if !first {
					want = many + 10_001 // the reading that finds that there are more than a page
				}
				if keysInForce(c) != many+1 || !isValid(c, secret) || read != want {
					t.Errorf("%d keys, the first is valid: %v; %d rows were read instead of %d", keysInForce(c), isValid(c, secret),
						read, want)
				}
			})
		})
	}
}

// TestTenantThatIsMadeAgainIsTheNewOne, whether its deletion comes between two readings or within a backlog that has
// all tenants and keys: no step has its old keys after the deletion was read.
func TestTenantThatIsMadeAgainIsTheNewOne(t *testing.T) {
	const name = "t7"
	for when, c := range map[string]struct {
		page   int    // after which the tenant is made again
		others string // first letter of the ids of other keys in the backlog
	}{
		"between two readings":         {0, ""},
		"before the page with its key": {1, "!"},
		"after the page with its key":  {1, "~"},
	} {
		t.Run(when, func(t *testing.T) {
			at, others := c.page, c.others
			url, secret, _ := newLargeDatabase(t)
			c, _ := newControlWithRows(t, url, nil)
			newSecret := ""
			replace := func() {
				var key tenants.Key
				err := c.Stores.SQL.DeleteTenant(t.Context(), store.Actor{}, name, 0)
				if err == nil {
					_, err = c.Stores.SQL.CreateTenant(t.Context(), store.Actor{}, tenants.Tenant{Name: name, Weight: 3})
				}
				if err == nil {
					newSecret, key, err = tenants.Mint(rand.Reader, name)
				}
				if err == nil {
					_, err = c.Stores.SQL.CreateKey(t.Context(), store.Actor{}, key)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if at == 0 {
				replace()
			} else {
				executeSQL(t, url, nextRevision, insertKeys(11_000, others), "UPDATE keys SET name = 'changed'",
					"UPDATE tenants SET weight = 2")
			}
			readAll(t, c, func(step int) {
				if step == at {
					replace()
					return
				}
				if isValid(c, secret) != (step < at) {
					t.Errorf("after step %d the old key is valid: %v", step, isValid(c, secret))
				}
				if tenant, known := c.Snapshot().Identity.Directory.Tenant(name); step > at && known && tenant.Weight != 3 {
					t.Errorf("after step %d the tenant has weight %d", step, tenant.Weight)
				}
			})
			tenant, _ := c.Snapshot().Identity.Directory.Tenant(name)
			if tenant.Weight != 3 || !isValid(c, newSecret) || isValid(c, secret) {
				t.Errorf("weight %d; the new key is valid: %v; the old one: %v", tenant.Weight, isValid(c, newSecret),
					isValid(c, secret))
			}
		})
	}
}

// TestFailingWriteOfLastUsesLosesNoneAndDisturbsNoChange.
func TestFailingWriteOfLastUsesLosesNoneAndDisturbsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 2*usesChunk + 1
		url, secret, key := newLargeDatabase(t)
		executeSQL(t, url, nextRevision, insertKeys(many, "k"),
			`CREATE TRIGGER refuses BEFORE UPDATE OF last_used_at ON keys WHEN NEW.id = 'k100250'
				BEGIN SELECT RAISE(ABORT, 'refused'); END`)
		c, log := newControlWithRows(t, url, nil)
		used := time.Now()
		for i := range many {
			c.Database.LastUsed.RecordUse(fmt.Sprint("k", 100_000+i), used)
		}
		followInBackground(t, c) // which writes them in chunks
		written := func() (n int) {
			for i := range many {
				id := fmt.Sprint("k", 100_000+i)
				at, err := c.Stores.SQL.KeyLastUsed(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				switch kept := c.Database.LastUsed.At(id); {
				case at.Equal(used.Truncate(time.Minute)):
					n++
				case !kept.Equal(used):
					t.Fatalf("the last use of %s is lost: written %v, kept %v", id, at, kept)
				}
			}
			return n
		}
		time.Sleep(3 * spentInterval)
		if n := written(); n != usesChunk || strings.Count(log.String(), "refused") != 1 {
			t.Errorf("%d times are written; the log is %s", n, log)
		}
		other, err := store.OpenSQL(store.SQLConfig{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := other.RevokeKey(t.Context(), store.Actor{}, key.ID, "leaked", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * PollInterval)
		if isValid(c, secret) || c.Database.State() != DatabaseOK {
			t.Errorf("the revoked key is valid: %v; the database is %v", isValid(c, secret), c.Database.State())
		}
		executeSQL(t, url, "DROP TRIGGER refuses")
		time.Sleep(2 * spentInterval)
		if n := written(); n != many || len(c.Database.LastUsed.all()) != 0 {
			t.Errorf("%d times are written, %d are kept", n, len(c.Database.LastUsed.all()))
		}
	})
}

// TestRevocationDoesNotWaitForAnotherWholeReading: marks were pruned that the gateway has not read. Until it has read
// everything again, its tenants and keys stay in force.
func TestRevocationDoesNotWaitForAnotherWholeReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url, secret, key := newLargeDatabase(t)
		c, _ := runSlow(t, url)
		until(t, "the directory", c.HasCallers)
		executeSQL(t, url, nextRevision, "UPDATE revision SET pruned = number")
		reading := func() bool {
			if err := c.Database.updating.lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer c.Database.updating.unlock()
			return c.Database.first.directory != nil
		}
		until(t, "the whole reading to begin", reading)
		other, err := store.OpenSQL(store.SQLConfig{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		_, err = other.RevokeKey(t.Context(), store.Actor{}, key.ID, "leaked", time.Now())
		if err == nil {
			_, err = other.UpdateTenant(t.Context(), store.Actor{}, tenants.Tenant{Name: "t9", Disabled: true}, 0)
		}
		if err == nil {
			err = other.DeleteTenant(t.Context(), store.Actor{}, "t8", 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * PollInterval)
		check := func(when string) {
			directory := c.Snapshot().Identity.Directory
			if closed, _ := directory.Tenant("t9"); isValid(c, secret) || !closed.Disabled || directory.Knows("t8", "") {
				t.Errorf("%s the key is valid: %v; t9 is %+v; t8 is known: %v", when, isValid(c, secret), closed,
					directory.Knows("t8", ""))
			}
			if n, _ := directory.Stored(); n != 99 {
				t.Errorf("%s %d tenants are in force", when, n)
			}
		}
		if !reading() {
			t.Error("the whole reading has ended")
		}
		check("after two polls")
		until(t, "the whole reading", func() bool { return !reading() })
		check("after the whole reading")
	})
}
