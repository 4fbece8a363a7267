package state

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// newKey makes a key of a tenant in a database, as its owner does before the
// first gateway starts, and returns it. Flags may say more of it.
func newKey(t *testing.T, sql, tenant string, flags ...string) string {
	t.Helper()
	return strings.TrimSpace(gateway.RunCommand(t,
		append([]string{"keys", "create", "-c", commandFile(t, sql), "--tenant", tenant, "--quiet"}, flags...)...))
}

// only asks a PostgreSQL database for one value.
func only[T any](t *testing.T, sql, question string, args ...any) (value T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, sql)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if err := c.QueryRow(ctx, question, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// inLedger waits until the ledger has exactly so many rows of a tenant.
func inLedger(t *testing.T, sql, tenant string, want int) {
	t.Helper()
	rig.Within(t, rig.Patience, func() error {
		if n := only[int64](t, sql, "SELECT count(*) FROM ledger WHERE tenant = $1", tenant); n != int64(want) {
			return errorf("the ledger has %d rows of %d requests", n, want)
		}
		return nil
	})
}

// TestTheDatabaseAwayCostsNobodyAnything takes PostgreSQL away under 200 requests
// a second, by SIGKILL and by SIGSTOP, and brings it back: no answer is anything
// but 200, and afterwards the ledger has a row for each.
//
// RS-11.
func TestTheDatabaseAwayCostsNobodyAnything(t *testing.T) {
	for name, way := range map[string]struct {
		away, back func(*backends.PostgresServer)
	}{
		"killed": {(*backends.PostgresServer).Kill, (*backends.PostgresServer).Restart},
		"hung":   {(*backends.PostgresServer).Hang, (*backends.PostgresServer).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 2, engines.Config{PerToken: 10 * time.Millisecond})
			sql := backends.Postgres(t)
			key := newKey(t, sql.URL, "fox")
			p := r.serve(rig.Settings{"store": stores(sql.URL, "")})
			metric(t, p, "tierway_database_up", 1, rig.Patience)
			before := len(about(p, "available"))
			l := r.newLoad(key, p.BaseURL)
			l.answers(200)
			l.open(20)
			begin := time.Now()
			pause(time.Second)

			gone := time.Now()
			way.away(sql)
			lists(t, p, "database")
			noticed := time.Since(gone)
			metric(t, p, "tierway_database_up", 0, rig.Patience)
			if status := p.GetStatus("/livez"); status != http.StatusOK {
				t.Errorf("without the database /livez is %d", status)
			}
			pause(soak(t))
			back := time.Now()
			way.back(sql)
			up := time.Now()
			metric(t, p, "tierway_database_up", 1, rig.Patience)
			recovered := time.Since(up)
			pause(time.Second)
			l.end()
			inLedger(t, sql.URL, "fox", l.asked())
			if lines := about(p, "available")[before:]; len(lines) != 2 {
				t.Errorf("there are %d log lines about one absence: %q", len(lines), lines)
			}
			t.Logf("with the database: %v", l.times(begin, gone))
			t.Logf("without it: %v; noticed after %v", l.times(gone, back), noticed)
			t.Logf("after it: %v; used again after %v; %d requests, each with its row", l.times(back, time.Now()), recovered,
				l.asked())
		})
	}
}

// TestAColdStartWithoutTheDatabaseRefusesNoGoodKeyForGood: while keys cannot be
// checked, a key that may be good is told to come again, and the gateway gets no
// traffic; it recovers by itself.
//
// RS-10.
func TestAColdStartWithoutTheDatabaseRefusesNoGoodKeyForGood(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Postgres(t)
	key := newKey(t, sql.URL, "fox")
	sql.Kill()
	p := r.start(rig.Settings{"store": stores(sql.URL, ""), "auth": "{ keys: [] }"})
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
		t.Errorf("a good key is told %d, Retry-After %q: %s", got.Status, got.Header.Get("Retry-After"), got.Body)
	}
	if got := ask(key[:len(key)-1]); got.Status != http.StatusUnauthorized {
		t.Errorf("a mistyped key is told %d: %s", got.Status, got.Body)
	}
	if ready, alive := p.GetStatus("/readyz"), p.GetStatus("/livez"); ready != http.StatusServiceUnavailable ||
		alive != http.StatusOK {
		t.Errorf("without any directory /readyz is %d and /livez %d", ready, alive)
	}
	sql.Restart()
	took := rig.Within(t, rig.Patience, func() error {
		if got := ask(key); got.Status != http.StatusOK {
			if got.Status == http.StatusUnauthorized {
				t.Error("a good key was told 401")
			}
			return errorf("the key is told %d: %s", got.Status, got.Body)
		}
		return nil
	})
	if status := p.GetStatus("/readyz"); status != http.StatusOK {
		t.Errorf("with the database /readyz is %d", status)
	}
	t.Logf("served %v after the database was there", took)
}

// TestAStartWithNeitherServesWhomItKnows: without database and Redis the tenants
// of the configuration are served, and what they used is in the ledger later.
//
// RS-08, RS-10.
func TestAStartWithNeitherServesWhomItKnows(t *testing.T) {
	t.Parallel()
	const asked = 30
	r := newRig(t, 1, engines.Config{})
	sql, redis := backends.Postgres(t), backends.Redis(t)
	sql.Kill()
	redis.Kill()
	p := r.serve(rig.Settings{"store": stores(sql.URL, redis.URL),
		"auth": auth("app", "rpm: 100000, day_tokens: 1000000")})
	for range asked {
		if got := r.ask(p.BaseURL); got.Status != http.StatusOK {
			t.Fatalf("without both an answer is %d: %s", got.Status, got.Body)
		}
	}
	lists(t, p, "redis")
	lists(t, p, "database")
	sql.Restart()
	redis.Restart()
	metric(t, p, "tierway_redis_up", 1, rig.Patience)
	metric(t, p, "tierway_database_up", 1, rig.Patience)
	inLedger(t, sql.URL, "app", asked)
}
