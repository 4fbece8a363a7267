package telemetry

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
)

// exercised returns metrics of which every one has a series.
func exercised() *Metrics {
	m := New("1.2.3")
	m.Outside([]string{"chat"}, []string{"ok"})
	m.Limits([]string{"rpm"})
	m.KeepTenants(1)
	m.TenantEnded("a", 0, 1, 1, 1)
	m.Started.Inc()
	resolve(m, "small", "a")
	m.Reloaded(1, time.Unix(1, 0))
	Observe(m, func() []WorkerGauges { return []WorkerGauges{{Tier: "small", Worker: "a"}} })
	Observe(m, func() []QueueGauges { return []QueueGauges{oneQueue} })
	Observe(m, func() Stores {
		return Stores{Redis: &RedisGauges{}, Database: &DatabaseGauges{Directory: &DirectoryGauges{Read: time.Unix(1, 0)}}}
	})
	Observe(m, func() DecisionLog { return DecisionLog{} })
	Observe(m, func() BodyMemory { return BodyMemory{Limit: 1} })
	Observe(m, func() OldestRequest { return OldestRequest{} })
	Observe(m, func() TraceCounts { return TraceCounts{} })
	Observe(m, func() Logs { return Logs{} })
	return m
}

// scraped describes the families that a scrape shows, without their subjects.
func scraped(families []*dto.MetricFamily) map[string]MetricName {
	all := map[string]MetricName{}
	for _, f := range families {
		n := MetricName{Name: f.GetName(), Type: strings.ToLower(f.GetType().String()), Help: f.GetHelp(), Labels: labelsOf(f)}
		slices.Sort(n.Labels)
		all[n.Name] = n
	}
	return all
}

// TestNamesAreWhatAScrapeShows: nothing more and nothing less, by name, type, help
// and labels.
func TestNamesAreWhatAScrapeShows(t *testing.T) {
	m := exercised()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]MetricName{}
	for _, n := range m.Names() {
		if _, twice := named[n.Name]; twice || n.Subject == "" {
			t.Errorf("%s is there twice or about nothing", n.Name)
		}
		n.Subject, n.Labels = "", slices.Sorted(slices.Values(n.Labels))
		named[n.Name] = n
	}
	if diff := cmp.Diff(scraped(families), named); diff != "" {
		t.Errorf("a scrape and Names differ (-scrape +Names):\n%s", diff)
	}
}

// units are those that a name can end with, before _total.
var units = []string{"seconds", "bytes", "tokens", "rows", "lines", "ratio"}

// unitOf reads the unit off a metric's name.
func unitOf(name string) string {
	if strings.HasSuffix(name, "_tokens_per_second") {
		return "tokens/second"
	}
	words := strings.Split(strings.TrimSuffix(name, "_total"), "_")
	if last := words[len(words)-1]; slices.Contains(units, last) {
		return last
	}
	return ""
}

// TestNamesKeepTheRules of Prometheus: counters end with _total and nothing else
// does, and what is measured has its unit in its name.
func TestNamesKeepTheRules(t *testing.T) {
	for _, n := range New("test").Names() {
		if !strings.HasPrefix(n.Name, prefix) {
			continue
		}
		if total := strings.HasSuffix(n.Name, "_total"); total != (n.Type == "counter") {
			t.Errorf("%s is a %s", n.Name, n.Type)
		}
		if n.Type == "histogram" && unitOf(n.Name) != "seconds" {
			t.Errorf("%s is a histogram of %q", n.Name, unitOf(n.Name))
		}
		if n.Help == "" || !strings.HasSuffix(n.Help, ".") {
			t.Errorf("%s: the help %q is no sentence", n.Name, n.Help)
		}
		for _, l := range n.Labels {
			if !slices.Contains(boundedLabels(), l) {
				t.Errorf("%s: nothing says that the label %s is bounded", n.Name, l)
			}
		}
	}
}

// boundedLabels are all that a metric may have: each takes its values from the
// configuration or from a fixed set.
func boundedLabels() []string {
	return []string{"tier", "worker", "policy", "rule", "class", "tenant", // the configuration; tenants the busiest only
		"dialect", "outcome", "result", "reason", "kind", "limit", "to", "operation", "log", // fixed
		"version", "goversion", "revision"} // one each
}

// metricsDoc is docs/metrics.md, made from Names.
func metricsDoc() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n" +
		"<!-- Made from telemetry/; `UPDATE_DOCS=1 go test ./telemetry -run TestMetricsDoc` writes it anew. -->\n\n" +
		"`/metrics` on the admin plane, or on an address of its own (`metrics.listen`), serves them in the Prometheus text format, beside those of the Go runtime (`go_…`) and of the process (`process_…`). [observability.md](observability.md) shows the dashboard and the alerts that are made of them.\n\n" +
		"**No client can add a series.** `tier`, `worker`, `policy`, `rule` and `class` come from the configuration; `dialect`, `outcome`, `result`, `reason`, `kind`, `limit` and `to` from fixed sets. A model, a path or a key that nobody knows counts as `tier=\"none\"`. Of tenants, the `telemetry.tenants` busiest have series of their own, compared once a minute by their requests, of which those of ten minutes ago count half; another tenant takes a series over when it is 1.5 times as busy. All others together are `tenant=\"other\"`. A series begins at 0 when it is given, and `rate` is right over every change. What a tenant counted before it lost its series is no longer shown: for totals use `tierway_requests_total`, `tierway_limit_refusals_total` and, for tokens, `tierway_tokens_total` or the ledger. The series of a tier, a worker or a policy go when a reload takes it away.\n\n" +
		"In every scrape, `tierway_requests_started_total` is the sum of `tierway_requests_total` plus `tierway_inflight`.\n")
	subject := ""
	names := New("").Names()
	order := map[string]int{}
	for _, n := range names {
		if _, ok := order[n.Subject]; !ok {
			order[n.Subject] = len(order)
		}
	}
	slices.SortStableFunc(names, func(x, y MetricName) int { return order[x.Subject] - order[y.Subject] })
	for _, n := range names {
		if !strings.HasPrefix(n.Name, prefix) {
			continue
		}
		if n.Subject != subject {
			subject = n.Subject
			fmt.Fprintf(&b, "\n## %s\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n", subject)
		}
		labels := ""
		if len(n.Labels) > 0 {
			labels = "`" + strings.Join(n.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", n.Name, n.Type, unitOf(n.Name), labels, n.Help)
	}
	b.WriteString("\n## Five questions\n\n```promql\n" +
		"# requests a second by outcome\n" +
		"sum by (outcome) (rate(tierway_requests_total[5m]))\n" +
		"# 95 % of first tokens come within, by tier\n" +
		"histogram_quantile(0.95, sum by (tier, le) (rate(tierway_time_to_first_token_seconds_bucket[5m])))\n" +
		"# share of the prompt tokens that the engines had in their caches, by tier\n" +
		"sum by (tier) (rate(tierway_tokens_total{kind=\"cached\"}[5m])) / sum by (tier) (rate(tierway_tokens_total{kind=\"prompt\"}[5m]))\n" +
		"# 99 % of those who had a worker waited for less, by tier and class\n" +
		"histogram_quantile(0.99, sum by (tier, class, le) (rate(tierway_queue_wait_seconds_bucket[5m])))\n" +
		"# tokens a second by tenant\n" +
		"sum by (tenant) (rate(tierway_tenant_tokens_total{kind=~\"prompt|output\"}[5m]))\n" +
		"```\n")
	return b.String()
}

func TestMetricsDocIsMadeFromNames(t *testing.T) {
	const path = "../docs/metrics.md"
	want := metricsDoc()
	if os.Getenv("UPDATE_DOCS") == "1" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s differs from Names; UPDATE_DOCS=1 go test ./telemetry -run TestMetricsDoc writes it anew (-want +got):\n%s", path, diff)
	}
}
