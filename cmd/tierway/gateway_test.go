package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"tierway/config"
	"tierway/server"
)

// running is a gateway of a house, with an admin key in the environment.
type running struct {
	house
	data, admin string // base URLs
}

// runGateway serves a house with the real server until the test ends.
func runGateway(t *testing.T) running {
	t.Helper()
	h := newHouse(t, "")
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.config,
		string(text)+"listen: 127.0.0.1:0\nadmin: { listen: \"127.0.0.1:0\" }\ndrain: { accept_grace: 0s, timeout: 1s }\n")
	t.Setenv(adminKeyVariable,
		strings.TrimSpace(must(t, "keys", "create", "-c", h.config, "--admin", "--name", "ops", "--quiet").out))
	source := func() (*config.File, error) { return config.Load(h.config, os.LookupEnv) }
	file, err := source()
	if err != nil {
		t.Fatal(err)
	}
	o := options(file, slog.New(slog.DiscardHandler), io.Discard)
	o.Source = source
	s, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return running{h, "http://" + s.Addr("data"), "http://" + s.Addr("admin")}
}

// status returns the status of a models request with a key.
func (g running) status(t *testing.T, key string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.data+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// AU-07: a gateway applies changes of its database also without Redis.
func TestGatewayAppliesChangesOfItsDatabase(t *testing.T) {
	g := runGateway(t)
	key := strings.TrimSpace(must(t, "keys", "create", "-c", g.config, "--tenant", "acme", "--quiet").out)
	until(t, "the key works", func() bool { return g.status(t, key) == 200 })
	must(t, "keys", "revoke", "-c", g.config, g.contents(t).Keys[0].ID, "--yes")
	// After many rejected requests in a row, the gateway may return 429.
	until(t, "the key is refused", func() bool { return g.status(t, key) != 200 })
}

// CF-02: a reload of an invalid configuration prints all problems. A reload makes the changes that its
// dry run prints.
func TestReloadCommandReportsProblemsAndChanges(t *testing.T) {
	g := runGateway(t)
	good, err := os.ReadFile(g.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, g.config, string(good)+"listn: x\nretry: { attempts: -1 }\n")
	s := tierway(t, "reload", "--api", g.admin)
	if s.status != 1 || !strings.Contains(s.messages, "listn") || !strings.Contains(s.messages, "retry.attempts") ||
		!strings.Contains(s.messages, ":10:1: listn: unknown key") {
		t.Errorf("status %d, %s%s", s.status, s.out, s.messages)
	}
	write(t, g.config, strings.Replace(string(good), `url: "http://127.0.0.1:1"`, `url: "http://127.0.0.1:1", weight: 2`,
		1))
	dry := must(t, "reload", "--api", g.admin, "--dry-run")
	done := must(t, "reload", "--api", g.admin)
	what, _, _ := strings.Cut(dry.out, "1 change, not applied")
	if !strings.Contains(what, "tiers[small].workers[s0].weight") ||
		!strings.HasPrefix(done.out, what+"1 change, applied as generation ") {
		t.Errorf("the dry run says\n%s\nthe reload\n%s", dry.out, done.out)
	}
	if s := must(t, "reload", "--api", g.admin); !strings.HasPrefix(s.out, "0 changes, applied as generation ") {
		t.Errorf("again: %s", s.out)
	}
	if took := must(t, "reload", "--api", g.admin, "--json"); !strings.Contains(took.out, `"changes": []`) {
		t.Errorf("as JSON: %s", took.out)
	}
}
