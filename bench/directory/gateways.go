package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tierway/bench/processes"
	"tierway/tenants"
)

const (
	gateways     = 3
	startTimeout = 3 * time.Minute // of a gateway; the limit of the report is far below
	callTimeout  = 3 * time.Minute // of a call of the admin API
	maxWorkers   = 60_000          // addresses of deadWorker
)

// gateway is a running gateway.
type gateway struct {
	addr, admin string
	config      string // path of its configuration
	pid         int
	start       start
}

// start is what the start of a gateway cost, until /readyz returned 200.
type start struct {
	wall, cpu time.Duration
}

// gatewayConfig returns the configuration of a gateway. Its workers do not exist and count as up. weight is that of the
// first one. adminDigest is the SHA-256 of an admin's key in hex; empty: none.
func gatewayConfig(sql, redis string, workers, weight int, adminDigest string) string {
	var b strings.Builder
	if adminDigest != "" {
		fmt.Fprintf(&b, "admin: { keys: [{ name: bench, sha256: %q }] }\n", adminDigest)
	}
	fmt.Fprintf(&b, `store: { sql: %q, redis: %q }
policy: { name: least_load }
health: { path: "off" }
log: { access: false }
drain: { accept_grace: 0s, timeout: 1s }
tiers:
  - name: bench
    model: bench-model
    workers:
`, sql, redis)
	for i := range workers {
		fmt.Fprintf(&b, "      - { name: w%d, url: %q, weight: %d }\n", i, deadWorker(i), weight)
		weight = 1
	}
	return b.String()
}

// deadWorker returns a URL on which no server listens, each on its own loopback address.
func deadWorker(i int) string { return fmt.Sprintf("http://127.77.%d.%d:9", i/250, i%250+1) }

// fleet is gateways that share a database, and what is needed to call them.
type fleet struct {
	processes.Group
	client http.Client
	key    string // of an admin
	digest string // SHA-256 of key in hex
	list   []*gateway
}

// newFleet makes a fleet without gateways, with its files in dir. Gateways end with the context of their start; the
// caller must end it and call Wait.
func newFleet(dir string, random io.Reader) (*fleet, error) {
	key, err := tenants.NewKey(random, tenants.AdminPrefix)
	if err != nil {
		return nil, err
	}
	digest := tenants.Digest(key)
	return &fleet{Group: processes.Group{Dir: dir}, key: key, digest: hex.EncodeToString(digest[:]),
		client: http.Client{Timeout: callTimeout}}, nil
}

// checkMemory returns an error if the machine has too little memory for all further gateways and for the work of a
// change in one, by the memory of the last one: a machine without memory would end other processes too.
func (f *fleet) checkMemory() error {
	if len(f.list) == 0 {
		return nil
	}
	last, err := processes.ReadMemory(f.list[len(f.list)-1].pid)
	if err != nil {
		return err
	}
	available, err := processes.AvailableMemory()
	if err != nil {
		return err
	}
	if need := last.Peak * (gateways - len(f.list) + 1); available < need {
		return fmt.Errorf("the machine has %s of memory for more gateways, which need %s: use fewer -sizes", mib(available),
			mib(need))
	}
	return nil
}

// add starts a gateway and waits until it is ready.
func (f *fleet) add(ctx context.Context, binary, sql, redis string, workers int) error {
	g := &gateway{}
	name := fmt.Sprint("gateway", len(f.list))
	var err error
	if g.addr, err = processes.FreeAddr(); err != nil {
		return err
	}
	if g.admin, err = processes.FreeAddr(); err != nil {
		return err
	}
	g.config = filepath.Join(f.Dir, name+".yaml")
	if err := f.configure(g, gatewayConfig(sql, redis, workers, 1, f.digest)); err != nil {
		return err
	}
	began := time.Now()
	cmd, err := f.Start(ctx, name, binary, "serve", "-c", g.config, "--listen", g.addr, "--admin-listen", g.admin)
	if err != nil {
		return err
	}
	g.pid = cmd.Process.Pid
	if err := f.WaitUntilUp(ctx, name, "http://"+g.addr+"/readyz", startTimeout); err != nil {
		return err
	}
	g.start.wall = time.Since(began)
	if g.start.cpu, err = processes.CPUTime(os.DirFS("/proc"), g.pid); err != nil {
		return err
	}
	f.list = append(f.list, g)
	return nil
}

// configure writes the configuration of a gateway.
func (f *fleet) configure(g *gateway, text string) error {
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	return nil
}

// call sends a request to the admin API of a gateway and decodes the answer into to, unless to is nil.
func (f *fleet) call(ctx context.Context, g *gateway, method, path, body string, to any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.admin+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: status %s: %s", method, path, resp.Status, bytes.TrimSpace(answer))
	}
	if to == nil {
		return nil
	}
	if err := json.Unmarshal(answer, to); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// accepts reports whether a gateway accepts a key of a tenant. A gateway that gets many unknown keys returns 429
// instead of 401, to unknown keys only.
func (f *fleet) accepts(ctx context.Context, g *gateway, secret string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr+"/v1/models", nil)
	if err != nil {
		return false, fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := f.client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return false, fmt.Errorf("reading the models: %w", err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusUnauthorized, http.StatusTooManyRequests:
		return false, nil
	}
	return false, fmt.Errorf("GET /v1/models: status %s", resp.Status)
}
