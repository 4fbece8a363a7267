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

// exercised returns metrics that all have a series.
func exercised() *Metrics {
	m := New("1.2.3")
	m.SetRequestLabels([]string{"chat"}, []string{"ok"})
	m.SetLimitNames([]string{"rpm"})
	m.SetCacheLabels([]string{"tools"}, []string{"kept"})
	Observe(m, func() CacheMemory { return CacheMemory{} })
	m.KeepTenants(1)
	m.TenantEnded("a", 0, 1, 1, 1)
	m.Started.Inc()
	resolve(m, "small", "a")
	m.Reloaded(1, time.Unix(1, 0))
	Observe(m, func() []WorkerGauges {
		return []WorkerGauges{{Tier: "small", Worker: "a", Events: &EventGauges{},
			Handovers: &HandoverGauges{}}}
	})
	m.Handover("small").Ended(HandoverRemote)
	m.HookCalled("pii", "allowed", 0, 1)
	Observe(m, func() IndexMemory { return IndexMemory{} })
	Observe(m, func() []QueueGauges { return []QueueGauges{oneQueue} })
	Observe(m, func() []PredictionGauges { return []PredictionGauges{onePrediction} })
	Observe(m, func() []TokenGauges { return []TokenGauges{{Tier: "small"}} })
	Observe(m, func() []LMCacheGauges { return []LMCacheGauges{{Tier: "small"}} })
	m.LMCache("small").Observe(0.01)
	Observe(m, func() Stores {
		return Stores{Redis: &RedisGauges{}, Database: &DatabaseGauges{Directory: &DirectoryGauges{Read: time.Unix(1, 0)}}}
	})
	Observe(m, func() DecisionLog { return DecisionLog{} })
	Observe(m, func() LearningFiles { return LearningFiles{} })
	Observe(m, func() BodyMemory { return BodyMemory{Limit: 1} })
	Observe(m, func() OldestRequest { return OldestRequest{} })
	Observe(m, func() TraceCounts { return TraceCounts{} })
	Observe(m, func() Logs { return Logs{} })
	return m
}

// scraped describes the families of a scrape, without their subjects.
func scraped(families []*dto.MetricFamily) map[string]MetricName {
	all := map[string]MetricName{}
	for _, f := range families {
		n := MetricName{Name: f.GetName(), Type: strings.ToLower(f.GetType().String()), Help: f.GetHelp(),
			Labels: labelNames(f)}
		slices.Sort(n.Labels)
		all[n.Name] = n
	}
	return all
}

// TestNamesMatchAScrape compares names, types, help texts and labels.
func TestNamesMatchAScrape(t *testing.T) {
	m := exercised()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]MetricName{}
	for _, n := range m.Names() {
		if _, twice := named[n.Name]; twice || n.Subject == "" {
			t.Errorf("%s is listed twice or has no subject", n.Name)
		}
		n.Subject, n.Labels = "", slices.Sorted(slices.Values(n.Labels))
		named[n.Name] = n
	}
	if diff := cmp.Diff(scraped(families), named); diff != "" {
		t.Errorf("a scrape and Names differ (-scrape +Names):\n%s", diff)
	}
}

// units are the units that end a name, before _total.
var units = []string{"seconds", "bytes", "tokens", "rows", "lines", "ratio"}

// unitOf returns the unit in a metric's name; "" if there is none.
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

// TestNamesFollowPrometheus: counters and only counters end in _total, histograms have their
// unit in their names, and help texts are sentences.
func TestNamesFollowPrometheus(t *testing.T) {
	for _, n := range New("test").Names() {
		if !strings.HasPrefix(n.Name, prefix) {
			continue
		}
		if total := strings.HasSuffix(n.Name, "_total"); total != (n.Type == "counter") {
			t.Errorf("%s is a %s", n.Name, n.Type)
		}
		if unit := unitOf(n.Name); n.Type == "histogram" && unit != "seconds" && unit != "ratio" {
			t.Errorf("%s is a histogram of %q", n.Name, unitOf(n.Name))
		}
		if n.Help == "" || !strings.HasSuffix(n.Help, ".") {
			t.Errorf("%s: the help %q is not a sentence", n.Name, n.Help)
		}
		for _, l := range n.Labels {
			if !slices.Contains(boundedLabels(), l) {
				t.Errorf("%s: the label %s is not in boundedLabels", n.Name, l)
			}
		}
	}
}

// boundedLabels returns the labels that a metric may have. Their values come from the
// configuration or from a fixed set.
func boundedLabels() []string {
	return []string{
		// the configuration; tenants the busiest only
		"tier", "worker", "policy", "rule", "class", "tenant", "hook",
		"dialect", "outcome", "result", "reason", "source", "kind", "limit", "to", "operation", "log", // fixed
		"version", "goversion", "revision"} // one each
}

// metricsIntro begins docs/metrics.md. quoted replaces its marks.
const metricsIntro = `# Metrics

<!-- Generated from telemetry/ by ~UPDATE_DOCS=1 go test ./telemetry -run TestMetricsDoc~. -->

The reference of all metrics, for authors of queries, dashboards and alerts. The dashboard and the alerts that
come with Tierway are described in [observability.md](observability.md).

- The admin plane serves ~/metrics~ in the Prometheus text format, without a key. If ~metrics.listen~ is set, that
  address serves them instead. The metrics of the Go runtime (~go_…~) and of the process (~process_…~) are included.
- Each gateway counts its own requests. Counters and histograms start at 0 when the process starts.
- In every scrape, ~tierway_requests_started_total~ is the sum of ~tierway_requests_total~ plus
  ~tierway_inflight~.
- A reload that removes a tier, a worker or a policy removes its series.

## Labels

**No client can add a series.** Label values come from the configuration or from fixed sets.

| label | values |
|---|---|
| ~tier~ | name of a tier or of an entry of ~pools~; ~none~: the request ended before a tier was resolved, for example because its model or key is unknown; ~removed~: a reload removed the tier |
| ~worker~, ~policy~, ~rule~, ~class~, ~hook~ | names of the configuration |
| ~tenant~ | one of the busiest tenants; ~other~: all other tenants; ~none~: the tenant is unknown |
| ~dialect~, ~outcome~, ~result~, ~reason~, ~kind~, ~limit~, ~to~, ~operation~, ~log~ | fixed sets |
| ~version~, ~goversion~, ~revision~ | one value each |

The ~telemetry.tenants~ busiest tenants have series of their own. They are compared once a minute by their requests;
requests of ten minutes ago count half. A tenant takes over the series of another one when it is 1.5 times as busy.
Its series start at 0, so ~rate~ is right through every change. The counts of a series that was removed are no longer
shown. For totals over all tenants, use ~tierway_requests_total~, ~tierway_tokens_total~ and
~tierway_limit_refusals_total~.
`

// metricsQueries ends docs/metrics.md.
const metricsQueries = `
## Common queries

~~~promql
# requests per second by outcome
sum by (outcome) (rate(tierway_requests_total[5m]))
# 95th percentile of the time to first token, by tier
histogram_quantile(0.95, sum by (tier, le) (rate(tierway_time_to_first_token_seconds_bucket[5m])))
# share of the prompt tokens that engines found in their caches, by tier
sum by (tier) (rate(tierway_tokens_total{kind="cached"}[5m])) / sum by (tier) (rate(tierway_tokens_total{kind="prompt"}[5m]))
# 99th percentile of the queue time of requests that reached a worker, by tier and class
histogram_quantile(0.99, sum by (tier, class, le) (rate(tierway_queue_wait_seconds_bucket[5m])))
# tokens per second by tenant
sum by (tenant) (rate(tierway_tenant_tokens_total{kind=§"prompt|output"}[5m]))
~~~
`

// quoted returns text with ~ replaced by backquotes, and § by ~.
func quoted(text string) string { return strings.NewReplacer("~", "`", "§", "~").Replace(text) }

// metricsDoc returns docs/metrics.md, generated from Names.
func metricsDoc() string {
	var b strings.Builder
	b.WriteString(quoted(metricsIntro))
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
			b.WriteString("\n## " + subject + "\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
		}
		labels := ""
		if len(n.Labels) > 0 {
			labels = "`" + strings.Join(n.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", n.Name, n.Type, unitOf(n.Name), labels, n.Help)
	}
	b.WriteString(quoted(metricsQueries))
	return b.String()
}

func TestMetricsDocIsGeneratedFromNames(t *testing.T) {
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
		t.Errorf(
			"%s differs from Names; UPDATE_DOCS=1 go test ./telemetry -run TestMetricsDoc writes it anew (-want +got):\n%s",
			path, diff)
	}
}
