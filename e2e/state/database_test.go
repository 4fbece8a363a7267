package state

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// newKey creates a key of a tenant in a database with the command `tierway keys create` and returns
// it.
func newKey(t *testing.T, sql, tenant string, flags ...string) string {
	t.Helper()
	return strings.TrimSpace(gateway.RunCommand(t,
		append([]string{"keys", "create", "-c", commandFile(t, sql), "--tenant", tenant, "--quiet"}, flags...)...))
}

// queryValue runs a query that returns one value on a PostgreSQL database.
func queryValue[T any](t *testing.T, sql, question string, args ...any) (value T) {
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

// waitForLedgerRows waits until the ledger has exactly want rows of a tenant.
func waitForLedgerRows(t *testing.T, sql, tenant string, want int) {
	t.Helper()
	rig.Within(t, rig.Patience, func() error {
		if n := queryValue[int64](t, sql, "SELECT count(*) FROM ledger WHERE tenant = $1", tenant); n != int64(want) {
			return errorf("the ledger has %d rows of %d requests", n, want)
		}
		return nil
	})
}

// TestSmokeAKilledDatabaseFailsNoRequest kills PostgreSQL under a load and starts it again. All requests succeed, and
// afterwards the ledger has a row for each.
//
// RS-11.
func TestSmokeAKilledDatabaseFailsNoRequest(t *testing.T) {
	t.Parallel()
	loseDatabase(t, (*backends.PostgresServer).Kill, (*backends.PostgresServer).Restart)
}

// TestAHungDatabaseFailsNoRequest suspends PostgreSQL under a load and resumes it.
//
// RS-11.
func TestAHungDatabaseFailsNoRequest(t *testing.T) {
	t.Parallel()
	loseDatabase(t, (*backends.PostgresServer).Hang, (*backends.PostgresServer).Resume)
}

// loseDatabase checks that a load survives what away does to PostgreSQL until back undoes it.
func loseDatabase(t *testing.T, away, back func(*backends.PostgresServer)) {
	t.Helper()
	const clients = 8
	r := newRig(t, 2, engines.Config{PerToken: 10 * time.Millisecond})
	sql := backends.Postgres(t)
	key := newKey(t, sql.URL, "fox")
	p := r.serve(rig.Settings{"store": stores(sql.URL, "")})
	waitForMetric(t, p, "tierway_database_up", 1, rig.Patience)
	before := len(linesWith(p, "available"))
	l := r.newLoad(key, p.BaseURL)
	l.startChats(clients)
	l.startStreams(clients)
	begin := time.Now()
	l.waitForMore(2 * clients)

	gone := time.Now()
	away(sql)
	waitForDegraded(t, p, "database")
	noticed := time.Since(gone)
	waitForMetric(t, p, "tierway_database_up", 0, rig.Patience)
	if status := p.GetStatus("/livez"); status != http.StatusOK {
		t.Errorf("without the database /livez is %d", status)
	}
	pause(fullSoak(t))
	l.waitForMore(2 * clients)
	came := time.Now()
	back(sql)
	waitForMetric(t, p, "tierway_database_up", 1, rig.Patience)
	l.waitForMore(2 * clients)
	l.end()
	waitForLedgerRows(t, sql.URL, "fox", l.count())
	checkDatabaseOutagesAreLoggedOnce(t, p, before)
	t.Logf("with the database: %v", l.times(begin, gone))
	t.Logf("without it: %v; noticed after %v", l.times(gone, came), noticed)
	t.Logf("after it: %v; %d requests, each with its row", l.times(came, time.Now()), l.count())
}

// checkDatabaseOutagesAreLoggedOnce waits until the database is used and reports lines after the first ones beyond one
// for the begin of each outage and one for its end. A slow machine can make the database late, which is an outage too.
func checkDatabaseOutagesAreLoggedOnce(t *testing.T, p *gateway.Process, first int) {
	t.Helper()
	rig.Eventually(t, func() error {
		lines := linesWith(p, "available")[first:]
		all := strings.Join(lines, "\n")
		begins, ends := strings.Count(all, "database unavailable; "), strings.Count(all, "database available")
		if begins == 0 || begins != ends || len(lines) != begins+ends {
			return errorf("the outage has %d begins, %d ends and %d log lines: %q", begins, ends, len(lines), lines)
		}
		return nil
	})
}

// TestStartWithoutDatabaseAndRedisServesConfiguredTenants: tenants in the configuration are served,
// and their usage is in the ledger later.
//
// RS-08, RS-10.
func TestStartWithoutDatabaseAndRedisServesConfiguredTenants(t *testing.T) {
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
			t.Fatalf("without both, a request gets %d: %s", got.Status, got.Body)
		}
	}
	waitForDegraded(t, p, "redis")
	waitForDegraded(t, p, "database")
	sql.Restart()
	redis.Restart()
	waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
	waitForMetric(t, p, "tierway_database_up", 1, rig.Patience)
	waitForLedgerRows(t, sql.URL, "app", asked)
}

// TestASecondSignalEndsBesideAHungDatabase: a file keeps the rows that cannot be written, and the log names it.
func TestASecondSignalEndsBesideAHungDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Postgres(t)
	p := gateway.Start(t, r.Settings(rig.Settings{"store": stores(sql.URL, ""),
		"drain": `{ accept_grace: 30m, timeout: 30m }`}).String())
	p.WaitUntilReady()
	sql.Hang()
	defer sql.Resume()
	if got := r.ask(p.BaseURL); got.Status != http.StatusOK {
		t.Fatalf("the request gets %d: %s", got.Status, got.Body)
	}
	p.Signal(syscall.SIGTERM)
	p.WaitFor("the drain", func() bool { return len(linesWith(p, `"draining"`)) > 0 })
	p.Signal(syscall.SIGTERM)
	if status := p.ExitStatus(); status != 130 || len(linesWith(p, "the ledger rows of this file")) != 1 {
		t.Errorf("the status is %d, want 130: %s", status, p.Log())
	}
}
