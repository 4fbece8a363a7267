package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/store"
)

// AU-07: a change is published over Redis, so that gateways apply it at once.
func TestKeyChangesArePublishedOverRedis(t *testing.T) {
	m := runRedis(t)
	h := newHouse(t, fmt.Sprintf(`, redis: "redis://%s", redis_timeout: 1m`, m.Addr()))
	gateway, err := store.OpenRedis(store.RedisConfig{URL: "redis://" + m.Addr(), Gateway: "g1", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	gateway.OnChange(func() {
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { gateway.Run(ctx) })
	defer func() {
		cancel()
		wg.Wait()
		if err := gateway.Close(); err != nil {
			t.Error(err)
		}
	}()
	until(t, "the gateway listens", func() bool { return len(m.PubSubChannels("*")) > 0 })
	for _, args := range [][]string{
		{"keys", "create", "--tenant", "acme"},
		{"keys", "create", "--tenant", "acme"},
		{"keys", "rotate", "ID"},
		{"keys", "revoke", "ID", "--yes"},
		{"keys", "create", "--admin", "--name", "jane"},
	} {
		for i, arg := range args {
			if arg == "ID" {
				args[i] = h.contents(t).Keys[0].ID
			}
		}
		s := must(t, append(args, "-c", h.config)...)
		if strings.Contains(s.messages, "over Redis") {
			t.Errorf("%v: %s", args, s.messages)
		}
		select {
		case <-heard:
		case <-time.After(time.Minute):
			t.Fatalf("%v: the gateway was not notified", args)
		}
	}
}

// If Redis is unavailable, the change is made and a warning is printed.
func TestUnavailableRedisIsAWarning(t *testing.T) {
	h := newHouse(t, `, redis: "redis://:hunter2@127.0.0.1:1"`)
	s := must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--quiet")
	if strings.Count(s.messages, "tierway: warning: gateways could not be notified over Redis") != 1 ||
		!strings.Contains(s.messages, "within 2 s") {
		t.Errorf("it says %s", s.messages)
	}
	if strings.Contains(s.messages, "hunter2") || strings.Contains(s.messages, s.out[:20]) {
		t.Errorf("a secret is in %s", s.messages)
	}
	if !h.accepted(t, strings.TrimSpace(s.out), time.Now()) {
		t.Error("the key was not made")
	}
}

// The error for an unreachable database does not contain its password, and no key is printed.
func TestUnreachableDatabaseIsReportedWithoutItsPassword(t *testing.T) {
	h := newHouse(t, "")
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.config, strings.Replace(string(text), "sqlite://"+h.database, "postgres://me:hunter2@127.0.0.1:1/tierway",
		1))
	for _, args := range [][]string{{"keys", "create", "--tenant", "acme"}, {"keys", "list"},
		{"keys", "revoke", "x", "--yes"}, {"migrate", "up"}, {"migrate", "status"}} {
		s := tierway(t, append(args, "-c", h.config)...)
		if s.status != 2 || s.out != "" ||
			!strings.Contains(s.messages, "the PostgreSQL database of "+h.config+" is unreachable") ||
			strings.Contains(s.messages, "hunter2") {
			t.Errorf("%v: status %d, %q, %s", args, s.status, s.out, s.messages)
		}
	}
}

// A key in a database in this command's memory would never work.
func TestInMemoryDatabaseIsRejected(t *testing.T) {
	h := newHouse(t, "")
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.config, strings.Replace(string(text), h.database, ":memory:", 1))
	if s := tierway(t, "keys", "create", "-c", h.config, "--tenant", "acme"); s.status != 2 ||
		!strings.Contains(s.messages, "use the admin API") || s.out != "" {
		t.Errorf("status %d, %s%s", s.status, s.out, s.messages)
	}
}

// Commands that only read create no file, so that a wrong folder is noticed.
func TestReadingCommandsCreateNoDatabase(t *testing.T) {
	h := newHouse(t, "")
	for _, args := range [][]string{{"keys", "list"}, {"keys", "rotate", "x"}, {"keys", "revoke", "x", "--yes"},
		{"migrate", "status"}} {
		if s := tierway(t, append(args, "-c", h.config)...); !strings.Contains(s.messages, h.database+" does not exist yet") {
			t.Errorf("%v: %s", args, s.messages)
		}
		if files, _ := filepath.Glob(filepath.Join(h.dir, "*.db*")); len(files) > 0 {
			t.Errorf("%v made %v", args, files)
		}
	}
	if s := must(t, "keys", "create", "-c", h.config, "--tenant", "acme"); !strings.Contains(s.messages,
		h.database+" was empty; created schema ") {
		t.Errorf("the new database is not told: %s", s.messages)
	}
}

func TestMissingFolderIsReported(t *testing.T) {
	h := newHouse(t, "")
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.config, strings.Replace(string(text), h.database, h.dir+"/no/such.db", 1))
	for _, args := range [][]string{{"keys", "create", "--tenant", "acme"}, {"migrate", "up"}} {
		if s := tierway(t, append(args, "-c", h.config)...); s.status != 2 ||
			!strings.Contains(s.messages, h.dir+"/no/such.db: its directory does not exist: create it") {
			t.Errorf("%v: status %d, %s", args, s.status, s.messages)
		}
	}
}

// A command finds the gateway's database wherever both are started.
func TestRelativeDatabaseIsTheSameFromEveryFolder(t *testing.T) {
	h := newHouse(t, "")
	write(t, h.config, fmt.Sprintf(houseConfig, "tierway.db", ""))
	elsewhere := filepath.Join(h.dir, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(elsewhere)
	must(t, "migrate", "up", "-c", "../config.yaml")
	must(t, "keys", "create", "-c", "../config.yaml", "--tenant", "acme")
	t.Chdir(h.dir)
	must(t, "keys", "create", "--tenant", "acme")
	f, err := serveFlags{config: "config.yaml"}.reloadConfig()
	if err != nil || f.Store.SQL != "sqlite://tierway.db" {
		t.Fatalf("a gateway that is started here uses %v, %v", f, err)
	}
	if keys := h.contents(t).Keys; len(keys) != 2 {
		t.Errorf("%d keys", len(keys))
	}
	if made, err := filepath.Glob(elsewhere + "/*"); err != nil || len(made) != 0 {
		t.Errorf("elsewhere there is %q, %v", made, err)
	}
}
