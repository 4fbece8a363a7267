package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// output is what a command has printed, with its exit status.
type output struct {
	out, messages string
	status        int
}

// tierway runs the program with arguments and an empty standard input.
func tierway(t *testing.T, args ...string) output {
	t.Helper()
	var out, messages bytes.Buffer
	c := root(&out, &messages)
	c.SetIn(strings.NewReader(""))
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	var quiet exit
	status := 0
	switch {
	case errors.As(err, &quiet):
		status = int(quiet)
	case err != nil:
		fmt.Fprintln(&messages, "tierway: "+err.Error())
		status = 2
	}
	return output{out.String(), messages.String(), status}
}

// must runs the program and fails the test unless its status is 0.
func must(t *testing.T, args ...string) output {
	t.Helper()
	s := tierway(t, args...)
	if s.status != 0 {
		t.Fatalf("tierway %s: status %d\n%s", strings.Join(args, " "), s.status, s.messages)
	}
	return s
}

// house is a configuration with a database of its own.
type house struct{ dir, config, database string }

const houseConfig = `
store: { sql: "sqlite://%s"%s }
tiers:
  - { name: small, model: qwen-7b, workers: [{ name: s0, url: "http://127.0.0.1:1" }] }
  - { name: medium, model: qwen-32b, workers: [{ name: m0, url: "http://127.0.0.1:2" }] }
models: { "gpt-4*": medium }
`

// newHouse writes a configuration; more goes into its store section.
func newHouse(t *testing.T, more string) house {
	t.Helper()
	dir := t.TempDir()
	h := house{dir, filepath.Join(dir, "config.yaml"), filepath.Join(dir, "tierway.db")}
	write(t, h.config, fmt.Sprintf(houseConfig, h.database, more))
	return h
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// contents reads the house's database.
func (h house) contents(t *testing.T) store.Contents {
	t.Helper()
	return query(t, h, func(ctx context.Context, s *store.SQL) (store.Contents, error) { return s.Contents(ctx) })
}

// query runs a query on the house's database.
func query[T any](t *testing.T, h house, question func(ctx context.Context, s *store.SQL) (T, error)) T {
	t.Helper()
	s, err := store.OpenSQL(store.SQLConfig{URL: "sqlite://" + h.database})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	answer, err := question(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// accepted reports whether the house's gateways would accept a key at a time.
func (h house) accepted(t *testing.T, key string, at time.Time) bool {
	t.Helper()
	c := h.contents(t)
	_, err := tenants.NewDirectory(c.Tenants, c.Keys).Authenticate(key, at)
	return err == nil
}

// keysIn finds the keys in a text.
func keysIn(text string) []string { return regexp.MustCompile(tenants.Pattern).FindAllString(text, -1) }

// noSecret fails the test if a file of the house contains the key.
func (h house) noSecret(t *testing.T, key string) {
	t.Helper()
	files, err := os.ReadDir(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	body := key[len(tenants.TenantPrefix):]
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(h.dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(body)) || bytes.Contains(text, []byte(body[:27])) {
			t.Errorf("%s holds the key", f.Name())
		}
	}
}
