package state

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// withoutKeys are the settings of a gateway that knows only the keys of a database.
func withoutKeys(sql string) rig.Settings {
	return rig.Settings{"store": stores(sql, ""), "auth": "{ keys: [] }"}
}

// adminStatus returns the status and the body of a path of the admin plane.
func adminStatus(p *gateway.Process, path string) (int, string) {
	return p.Admin(http.MethodGet, path, "", "")
}

// checkRefused fails unless a gateway refuses connections to its data plane.
func checkRefused(t *testing.T, p *gateway.Process) {
	t.Helper()
	c, err := net.Dial("tcp", address(p))
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to the data plane: %v, want it refused", err)
	}
}

// TestColdStartWithoutTheDatabaseRefusesConnections: while no key is known, the data plane accepts no
// connection, and the admin plane reports why. When the database is back, the data plane opens by itself.
//
// RS-10.
func TestColdStartWithoutTheDatabaseRefusesConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Postgres(t)
	key := newKey(t, sql.URL, "fox")
	sql.Kill()
	p := r.start(withoutKeys(sql.URL))
	checkRefused(t, p)
	if ready, why := adminStatus(p, "/readyz"); ready != http.StatusServiceUnavailable ||
		!strings.Contains(why, "database: unavailable since the start; no key is known") {
		t.Errorf("/readyz is %d: %s", ready, why)
	}
	for _, path := range []string{"/livez", "/metrics"} {
		if status, _ := adminStatus(p, path); status != http.StatusOK {
			t.Errorf("%s is %d", path, status)
		}
	}
	sql.Restart()
	took := rig.Within(t, rig.Patience, func() error {
		switch got, err := r.post(context.Background(), p.BaseURL, chatPath, key, chatBody); {
		case errors.Is(err, syscall.ECONNREFUSED):
			return err
		case err != nil || got.Status != http.StatusOK:
			t.Errorf("the first request that is accepted: %d %s, %v", got.Status, got.Body, err)
		}
		return nil
	})
	if status, why := adminStatus(p, "/readyz"); status != http.StatusOK {
		t.Errorf("with the database /readyz is %d: %s", status, why)
	}
	for _, line := range []string{"refuses connections until the database is read",
		"accepts connections: keys are known"} {
		if lines := linesWith(p, line); len(lines) != 1 {
			t.Errorf("the log has %d lines with %q", len(lines), line)
		}
	}
	t.Logf("served %v after the database was up", took)
}

// TestColdStartBehindAProxyFailsNoRequest: one of two gateways starts without the database. The proxy sends
// all requests to the other one, and uses both when the database is back.
func TestColdStartBehindAProxyFailsNoRequest(t *testing.T) {
	t.Parallel()
	const asked = 60
	for name, start := range map[string]func(testing.TB, string, string) *backends.ProxyServer{
		"nginx": backends.Nginx, "haproxy": backends.HAProxy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1, engines.Config{})
			sql := backends.Postgres(t)
			key := newKey(t, sql.URL, "fox")
			first := r.serve(withoutKeys(sql.URL))
			sql.Kill()
			second := r.start(withoutKeys(sql.URL))
			proxy := "http://" + start(t, address(first), address(second)).Addr + "/v1"
			send := func(n int) {
				for range n {
					got, err := r.post(t.Context(), proxy, chatPath, key, chatBody)
					if err != nil || got.Status != http.StatusOK {
						t.Fatalf("through the proxy: %d %s, %v", got.Status, got.Body, err)
					}
				}
			}
			send(asked)
			sql.Restart()
			rig.Eventually(t, func() error {
				send(1)
				if n := requestsOf(t, second); n == 0 {
					return errorf("the second gateway gets no request")
				}
				return nil
			})
		})
	}
}

// requestsOf returns how many requests a gateway has served.
func requestsOf(t *testing.T, p *gateway.Process) float64 {
	t.Helper()
	m, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	return m.Sum("tierway_requests_total")
}

// TestSharedAddressIsOpenWithoutTheDatabase, because the admin plane needs it: a well-formed key gets 503 with
// Retry-After, and never 401.
func TestSharedAddressIsOpenWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Postgres(t)
	key := newKey(t, sql.URL, "fox")
	sql.Kill()
	shared := gateway.Address(t)
	p := r.addGateway(gateway.StartAt(t, shared, shared, r.Settings(withoutKeys(sql.URL)).String()))
	ask := func(key string) rig.Reply {
		t.Helper()
		got, err := r.post(context.Background(), p.BaseURL, chatPath, key, chatBody)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := ask(key); got.Status != http.StatusServiceUnavailable ||
		!strings.Contains(got.Body, "auth_backend_unavailable") || got.Header.Get("Retry-After") == "" {
		t.Errorf("a good key gets %d, Retry-After %q: %s", got.Status, got.Header.Get("Retry-After"), got.Body)
	}
	if got := ask(key[:len(key)-1]); got.Status != http.StatusUnauthorized {
		t.Errorf("a mistyped key gets %d: %s", got.Status, got.Body)
	}
	if ready, alive := p.GetStatus("/readyz"), p.GetStatus("/livez"); ready != http.StatusServiceUnavailable ||
		alive != http.StatusOK {
		t.Errorf("without any directory /readyz is %d and /livez %d", ready, alive)
	}
	sql.Restart()
	rig.Eventually(t, func() error {
		if got := ask(key); got.Status != http.StatusOK {
			if got.Status == http.StatusUnauthorized {
				t.Error("a good key got 401")
			}
			return errorf("the key gets %d: %s", got.Status, got.Body)
		}
		return nil
	})
}

// TestColdStartCanBeStopped by one signal or by two, while its data plane refuses connections.
func TestColdStartCanBeStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Postgres(t)
	sql.Kill()
	p := r.start(withoutKeys(sql.URL))
	checkRefused(t, p)
	p.Stop()
	own := withoutKeys(sql.URL)
	own["drain"] = `{ accept_grace: 30m, timeout: 30m }`
	p = r.start(own)
	p.Signal(syscall.SIGTERM)
	p.WaitFor("the drain", func() bool { return len(linesWith(p, `"draining"`)) > 0 })
	p.Signal(os.Interrupt)
	if status := p.ExitStatus(); status != 130 {
		t.Errorf("after two signals the status is %d, want 130", status)
	}
}

// TestColdStartReportsATakenAddress at once, although it does not listen.
func TestColdStartReportsATakenAddress(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Postgres(t)
	sql.Kill()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := r.Settings(withoutKeys(sql.URL)).Write(t)
	p := gateway.StartCommand(t, nil, "serve", "-c", file, "--listen", taken.Addr().String(), "--admin-listen",
		"127.0.0.1:0")
	if status := p.ExitStatus(); status == 0 || !strings.Contains(p.Log(), "address already in use") {
		t.Errorf("status %d: %s", status, p.Log())
	}
}

// TestReloadWithAKeyOpensTheDataPlane without the database: configured tenants are served at once, and keys of
// the database get 503.
func TestReloadWithAKeyOpensTheDataPlane(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Postgres(t)
	key := newKey(t, sql.URL, "fox")
	sql.Kill()
	p := r.start(withoutKeys(sql.URL))
	checkRefused(t, p)
	own := withoutKeys(sql.URL)
	own["auth"] = auth("app", "")
	if err := os.WriteFile(p.File, []byte(r.Settings(own).String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Signal(syscall.SIGHUP)
	rig.Eventually(t, func() error {
		got, err := r.post(context.Background(), p.BaseURL, chatPath, rig.TenantKey, chatBody)
		if err != nil || got.Status != http.StatusOK {
			return errorf("the configured tenant gets %d: %v", got.Status, err)
		}
		return nil
	})
	got, err := r.post(context.Background(), p.BaseURL, chatPath, key, chatBody)
	var answer struct{ Error struct{ Code string } }
	if err != nil || json.Unmarshal([]byte(got.Body), &answer) != nil || answer.Error.Code != "auth_backend_unavailable" {
		t.Errorf("a key of the database gets %d %s, %v", got.Status, got.Body, err)
	}
	sql.Restart() // the gateway writes its rows before its end
}
