package telemetry

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scrape returns the samples with one of the name prefixes, in the order of the scrape.
func scrape(t *testing.T, m *Metrics, prefixes ...string) (samples []string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("the scrape returns %d: %s", w.Code, w.Body)
	}
	for line := range strings.Lines(w.Body.String()) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) {
				samples = append(samples, strings.TrimSpace(line))
			}
		}
	}
	return samples
}

func TestRefusalsHaveNoOtherLimitNames(t *testing.T) {
	m := New("test")
	m.SetLimitNames([]string{"rpm", "day_tokens"})
	m.LimitRefused("rpm")
	m.LimitRefused("rpm")
	m.LimitRefused("a client's word")
	want := []string{`tierway_limit_refusals_total{limit="day_tokens"} 0`, `tierway_limit_refusals_total{limit="rpm"} 2`}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_limit_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRejectedReloadKeepsTheGeneration(t *testing.T) {
	m := New("test")
	m.Reloaded(1, time.UnixMilli(1_700_000_000_250))
	m.Reloaded(2, time.UnixMilli(1_700_000_060_500))
	m.ReloadRejected()
	m.ReloadRejected()
	want := []string{
		"tierway_config_generation 2",
		"tierway_config_last_reload_successful 0",
		"tierway_config_last_success_timestamp_seconds 1.7000000605e+09",
		`tierway_config_reloads_total{result="ok"} 1`,
		`tierway_config_reloads_total{result="rejected"} 2`,
		`tierway_config_reloads_total{result="unchanged"} 0`,
	}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_config_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// RS-01, RS-08: the series show that Redis is unavailable and that each gateway enforces limits
// alone.
func TestOnlyConfiguredStoresHaveSeries(t *testing.T) {
	tests := []struct {
		name   string
		stores Stores
		want   []string
	}{
		{"none", Stores{}, nil},
		{"Redis unavailable", Stores{Redis: &RedisGauges{Gateways: 3, Degraded: true}},
			[]string{"tierway_ratelimit_degraded 1", "tierway_redis_gateways 3", "tierway_redis_up 0"}},
		{"a database never reached", Stores{Database: &DatabaseGauges{Spooled: 7}},
			[]string{"tierway_database_up 0", "tierway_directory_loaded 0", "tierway_ledger_dropped_rows_total 0",
				"tierway_ledger_spooled_rows 7", "tierway_ledger_written_rows_total 0"}},
		{"both", Stores{Redis: &RedisGauges{Up: true, Gateways: 1},
			Database: &DatabaseGauges{Up: true, Written: 11, Dropped: 13, Loaded: true,
				Directory: &DirectoryGauges{Read: time.Date(1999, 12, 31, 23, 59, 30, 0, time.UTC), Tenants: 2, Keys: 5}}},
			[]string{"tierway_database_up 1", "tierway_directory_age_seconds 30", "tierway_directory_keys 5",
				"tierway_directory_loaded 1",
				"tierway_directory_tenants 2", "tierway_ledger_dropped_rows_total 13", "tierway_ledger_spooled_rows 0",
				"tierway_ledger_written_rows_total 11", "tierway_ratelimit_degraded 0", "tierway_redis_gateways 1",
				"tierway_redis_up 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its clock starts in the year 2000
				m := New("test")
				Observe(m, func() Stores { return tt.stores })
				got := scrape(t, m, "tierway_redis_", "tierway_ratelimit_", "tierway_database_", "tierway_ledger_",
					"tierway_directory_")
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
