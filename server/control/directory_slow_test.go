package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/memnet"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
)

// rowTime is the time that a slow database takes for a row. It is virtual.
const rowTime = 200 * time.Millisecond

// newLargeDatabase returns the URL of a SQLite file with 100 tenants, and the key of one.
func newLargeDatabase(t *testing.T) (url, secret string, key tenants.Key) {
	t.Helper()
	url = "sqlite://" + filepath.Join(t.TempDir(), "t.db")
	s, err := store.OpenSQL(store.SQLConfig{URL: url})
	if err == nil {
		defer s.Close()
		_, err = s.Migrate(t.Context())
	}
	for i := 0; i < 100 && err == nil; i++ {
		_, err = s.CreateTenant(t.Context(), store.Actor{}, tenants.Tenant{Name: fmt.Sprint("t", i)})
	}
	if err == nil {
		secret, key, err = tenants.Mint(rand.Reader, "t7")
	}
	if err == nil {
		key, err = s.CreateKey(t.Context(), store.Actor{}, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return url, secret, key
}

// newControlWithRows returns a Control with a database, with the directory if it is read within startTimeout, and its
// log. onRow is called before each row of the directory is read.
func newControlWithRows(t *testing.T, url string, onRow func()) (*Control, *bytes.Buffer) {
	t.Helper()
	f, err := config.Parse("test.yaml", []byte("classifier: { preset: none }\nstore: { sql: \""+url+"\" }\n"+
		strings.Replace(small, "auth: { required: false }", "", 1)), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	text := &bytes.Buffer{}
	log, metrics := slog.New(slog.NewJSONHandler(text, nil)), telemetry.New("test")
	c, err := New(Options{Config: f, Log: log, Metrics: metrics, Rand: func() uint64 { return 1 },
		Recover: NewRecoverer(log, metrics), Dial: memnet.New().Dial})
	if err != nil {
		t.Fatal(err)
	}
	slow, err := store.OpenSQL(store.SQLConfig{URL: url, OnRow: onRow})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stores.SQL.Close()
	c.Stores.SQL = slow
	if err := c.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, text
}

// followInBackground makes the control follow its database until the test ends, in a bubble.
func followInBackground(t *testing.T, c *Control) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { c.followDatabase(ctx) })
	t.Cleanup(func() {
		stop()
		run.Wait()
	})
}

// runSlow runs a control whose reading of each row is slow, in a bubble, and returns it with its log.
func runSlow(t *testing.T, url string) (*Control, *bytes.Buffer) {
	t.Helper()
	c, log := newControlWithRows(t, url, func() { time.Sleep(rowTime) })
	followInBackground(t, c)
	return c, log
}

// TestDirectoryThatTakesLongToReadIsReadAtTheStart: the gateway becomes ready, and the log does not call the database
// unavailable.
func TestDirectoryThatTakesLongToReadIsReadAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url, secret, _ := newLargeDatabase(t)
		c, log := runSlow(t, url)
		if c.HasCallers() || c.Database.State() != DatabaseOK {
			t.Errorf("at the start: has callers: %v, state %v", c.HasCallers(), c.Database.State())
		}
		until(t, "the directory", c.HasCallers)
		if _, err := c.Snapshot().Identity.Directory.Authenticate(secret, time.Now()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if text := log.String(); strings.Contains(text, "unavailable") || strings.Count(text, "takes longer") != 1 ||
			!strings.Contains(text, `"waited":"3s"`) {
			t.Errorf("the log is %s", text)
		}
	})
}

// TestRevocationDoesNotWaitForAWholeReading of a directory that takes 20 s to read, whether it is under way or not.
func TestRevocationDoesNotWaitForAWholeReading(t *testing.T) {
	for name, isTime := range map[string]func(*Control, string) bool{
		"after it": func(c *Control, _ string) bool { return c.HasCallers() },
		"during it": func(c *Control, secret string) bool {
			_, err := c.Snapshot().Identity.Directory.Authenticate(secret, time.Now())
			return err == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				url, secret, key := newLargeDatabase(t)
				c, log := runSlow(t, url)
				other, err := store.OpenSQL(store.SQLConfig{URL: url})
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				until(t, name, func() bool { return isTime(c, secret) })
				if _, err := other.RevokeKey(t.Context(), store.Actor{}, key.ID, "leaked", time.Now()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * PollInterval)
				valid := func() bool {
					_, err := c.Snapshot().Identity.Directory.Authenticate(secret, time.Now())
					return err == nil
				}
				if valid() {
					t.Error("the key is valid after two polls")
				}
				for range 60 { // no reading that began before the revocation makes the key valid again
					if time.Sleep(time.Second); valid() {
						t.Fatal("the key is valid again")
					}
				}
				if strings.Contains(log.String(), "unavailable") || c.Database.State() != DatabaseOK {
					t.Errorf("the log is %s", log)
				}
			})
		})
	}
}
