package store_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/store"
)

// TestSmokePostgres verifies on PostgreSQL what the other tests verify on SQLite, and what happens when the server is
// lost.
func TestSmokePostgres(t *testing.T) {
	t.Setenv(realPostgres, backends.Postgres(t).URL)
	for name, law := range map[string]func(*testing.T){
		"tenant round trips":                                     TestTenantRoundTrips,
		"update of an old version conflicts":                     TestUpdateOfAnOldVersionConflicts,
		"deleted tenant loses its keys and keeps its ledger":     TestDeletedTenantLosesItsKeysAndKeepsItsLedger,
		"revision grows only with changes":                       TestRevisionGrowsOnlyWithChanges,
		"each change has an audit entry":                         TestEachChangeHasAnAuditEntry,
		"the audit log is append only":                           TestTheAuditLogIsAppendOnly,
		"verify audit detects tampering":                         TestVerifyAuditDetectsTampering,
		"audit search matches literally":                         TestAuditSearchMatchesLiterally,
		"concurrent writes make one chain":                       TestConcurrentWritesMakeOneChain,
		"key round trips":                                        TestKeyRoundTrips,
		"tenants are isolated":                                   TestTenantsAreIsolated,
		"rotated key works until its overlap ends":               TestRotatedKeyWorksUntilItsOverlapEnds,
		"revoked key stays revoked":                              TestRevokedKeyStaysRevoked,
		"last use is accurate to the minute and never decreases": TestLastUseIsAccurateToTheMinuteAndNeverDecreases,
		"the database holds only digest and hint":                TestTheDatabaseHoldsOnlyDigestAndHint,
		"the last admin cannot be deleted":                       TestTheLastAdminCannotBeDeleted,
		"concurrent bootstraps create one admin":                 TestConcurrentBootstrapsCreateOneAdmin,
		"override replaces the earlier one":                      TestOverrideReplacesTheEarlierOne,
		"keys of a tenant are listed in pages":                   TestKeysOfATenantAreListedInPages,
		"keys are counted by state":                              TestKeysAreCountedByState,
		"changes lead to the contents of a whole read":           TestChangesLeadToTheContentsOfAWholeRead,
		"changes of another database begin again":                TestChangesOfAnotherDatabaseBeginAgain,
		"many changes are read in pages":                         TestManyChangesAreReadInPages,
		"contents are read at one moment":                        TestContentsAreReadAtOneMoment,
		"repeated batch counts once":                             TestRepeatedBatchCountsOnce,
		"usage is grouped by day and group":                      TestUsageIsGroupedByDayAndGroup,
		"budgets are rebuilt from the roll up":                   TestBudgetsAreRebuiltFromTheRollUp,
		"prune deletes only old rows":                            TestPruneDeletesOnlyOldRows,
		"reported usage is bounded":                              TestReportedUsageIsBounded,
		"concurrent migrations run once":                         TestConcurrentMigrationsRunOnce,
		"older program reports a newer schema":                   TestOlderProgramReportsANewerSchema,
		"adjacent releases share a database":                     TestAdjacentReleasesShareADatabase,
		"concurrent override edits are all kept":                 TestConcurrentOverrideEditsAreAllKept,
		"override edit is audited and numbered":                  TestOverrideEditIsAuditedAndNumbered,
		"ledger rows reach the database":                         TestLedgerRowsReachTheDatabase,
		"close ends all goroutines":                              TestCloseEndsAllGoroutines,
		"errors do not contain the password":                     TestErrorsDoNotContainThePassword,
		"rows survive an outage":                                 rowsSurviveAnOutage,
		"unreachable at first":                                   isUsedLater,
	} {
		t.Run(name, law)
	}
}

// isUsedLater verifies RS-10: a database that a gateway cannot reach at first works once it is back.
func isUsedLater(t *testing.T) {
	wire := &wire{}
	wire.cut()
	s := wire.open(t, schema(t), nil)
	checkUnreachable(t, s)
	wire.mend()
	migrate(t, s)
	createTenant(t, s, "acme")
	wire.cut()
	if _, err := s.Contents(t.Context()); !store.Unreachable(err) {
		t.Errorf("after a crash: %v", err)
	}
	wire.mend()
	if got := contents(t, s).Tenants; len(got) != 1 {
		t.Errorf("after the restart there are %d tenants", len(got))
	}
}

// RL-11: PostgreSQL is lost during writes. Every row arrives once, and the log has one line for the outage and one for
// its end. The ledger's own tests have the times.
func rowsSurviveAnOutage(t *testing.T) {
	wire := &wire{}
	checkRowsSurvive(t, schema(t), wire, [2]func(){wire.cut, wire.mend}, [2]func(){wire.cut, wire.mend})
}

// TestRealRowsSurviveACrashOfTheDatabase is the same with a server that is killed, and one that hangs.
func TestRealRowsSurviveACrashOfTheDatabase(t *testing.T) {
	backends.RequireSoak(t)
	server := backends.Postgres(t)
	checkRowsSurvive(t, server.URL, &wire{}, [2]func(){server.Kill, server.Restart}, [2]func(){server.Hang, server.Resume})
}

// checkRowsSurvive writes rows through outages, each of which has a begin and an end.
func checkRowsSurvive(t *testing.T, url string, wire *wire, outages ...[2]func()) {
	t.Helper()
	s := wire.open(t, url, nil)
	migrate(t, s)
	var mu sync.Mutex
	var log bytes.Buffer
	l := store.NewLedger(store.LedgerConfig{SQL: s,
		Log: slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	stop := running(t, l)
	added := int64(0)
	add := func(n int) {
		for range n {
			l.Add(store.Row{ID: fmt.Sprint(added), At: noon, Tenant: "acme", Outcome: "ok"})
			added++
		}
	}
	for _, outage := range outages {
		add(1200)
		outage[0]()
		add(1200)
		eventually(t, "the outage is not detected", func() bool { return l.Stats().Err != nil })
		outage[1]()
		eventually(t, "the rows still wait", func() bool { return l.Stats().Waiting == 0 })
	}
	stop()
	used := must(s.Usage(t.Context(), store.UsageQuery{Tenant: "acme"}))(t)
	if len(used) != 1 || used[0].Requests != added || l.Stats().Written != added || l.Stats().Dropped != 0 {
		t.Errorf("of %d rows the database has %+v, the ledger says %+v", added, used, l.Stats())
	}
	mu.Lock()
	defer mu.Unlock()
	// A slow database is an outage too.
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, line := range lines {
		if begins := strings.Contains(line, "ledger rows wait in memory"); begins != (i%2 == 0) {
			t.Errorf("line %d does not alternate", i)
		}
	}
	if len(lines) < 2*len(outages) || len(lines)%2 != 0 {
		t.Errorf("%d lines tell of %d outages:\n%s", len(lines), len(outages), log.String())
	}
}

// locked is a buffer that several goroutines write to.
type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// eventually waits until a condition holds, a minute at most.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("after a minute: %s", what)
		case <-tick.C:
		}
	}
}
