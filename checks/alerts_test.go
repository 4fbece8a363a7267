package checks

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"
)

// rules is the content of deploy/prometheus/alerts.yml.
type rules struct {
	Groups []struct {
		Name  string  `yaml:"name"`
		Rules []alert `yaml:"rules"`
	} `yaml:"groups"`
}

// alert is one alerting rule.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         time.Duration     `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// decodeStrictYAML decodes a document into v. It returns an error for fields that v does not have.
func decodeStrictYAML(text []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(v)
}

// alerts returns the rules of all groups.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var r rules
	if err := decodeStrictYAML(read(t, "deploy/prometheus/alerts.yml"), &r); err != nil {
		t.Fatalf("reading the rules: %v", err)
	}
	for _, g := range r.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// anchors returns the anchors of a document's headings.
func anchors(text []byte) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#{1,6} (.+)$`).FindAllSubmatch(text, -1) {
		slug := strings.ReplaceAll(strings.ToLower(string(m[1])), " ", "-")
		all = append(all, regexp.MustCompile(`[^a-z0-9_-]`).ReplaceAllString(slug, ""))
	}
	return all
}

// TestEveryAlertIsValidAndHasARunbook: its expression uses exported metrics, its text uses labels of
// the result, and docs/observability.md has a section for it.
func TestEveryAlertIsValidAndHasARunbook(t *testing.T) {
	metrics := exported(t)
	const runbook = "docs/observability.md"
	places := anchors(read(t, runbook))
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		if err := checkAlert(metrics, a); err != nil {
			t.Errorf("the alert %s: %v", a.Alert, err)
		}
		if file, anchor, _ := strings.Cut(a.Annotations["runbook"], "#"); file != runbook ||
			!slices.Contains(places, anchor) {
			t.Errorf("the alert %s: the runbook %q does not exist", a.Alert, a.Annotations["runbook"])
		}
		if seen[a.Alert] {
			t.Errorf("there are two alerts %s", a.Alert)
		}
		seen[a.Alert] = true
		if want := "#### " + a.Alert + "\n"; !bytes.Contains(read(t, runbook), []byte(want)) {
			t.Errorf("%s has no heading for %s", runbook, a.Alert)
		}
	}
	if len(seen) < 10 {
		t.Errorf("there are only %d alerts", len(seen))
	}
}

// checkAlert returns the first problem of a rule.
func checkAlert(metrics map[string]family, a alert) error {
	labels, err := query(metrics, a.Expr)
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`^Tierway[A-Z]\w+$`).MatchString(a.Alert) {
		return fmt.Errorf("%q is not a valid name of an alert", a.Alert)
	}
	if s := a.Labels["severity"]; len(a.Labels) != 1 || s != "critical" && s != "warning" {
		return fmt.Errorf("labels are %q: want only severity, critical or warning", a.Labels)
	}
	if got := slices.Sorted(maps.Keys(a.Annotations)); !slices.Equal(got, []string{"description", "runbook", "summary"}) {
		return fmt.Errorf("its annotations are %q", got)
	}
	values := map[string]string{}
	for _, l := range labels {
		values[l] = "x"
	}
	human := func(float64) string { return "x" }
	for name, text := range a.Annotations {
		t, err := template.New(name).Option("missingkey=error").
			Funcs(template.FuncMap{"humanize": human, "humanizeDuration": human, "humanizePercentage": human}).
			Parse(`{{$labels := .Labels}}{{$value := .Value}}` + text)
		if err != nil {
			return err
		}
		if err := t.Execute(new(strings.Builder), map[string]any{"Labels": values, "Value": 1.5}); err != nil {
			return err
		}
	}
	return nil
}

// TestBrokenAlertsAreReported breaks one property of a valid rule at a time.
func TestBrokenAlertsAreReported(t *testing.T) {
	metrics := map[string]family{"up": {labels: scraped()}, "asked_total": {counts: true, labels: scraped()}}
	good := alert{Alert: "TierwayDown", Expr: "up == 0", Labels: map[string]string{"severity": "critical"},
		Annotations: map[string]string{"summary": "{{ $labels.instance }} is away", "description": "{{ $value | humanize }}",
			"runbook": "r"}}
	if err := checkAlert(metrics, good); err != nil {
		t.Fatal(err)
	}
	for what, breaks := range map[string]func(a *alert){
		"metric":          func(a *alert) { a.Expr = "upp == 0" },
		"counter":         func(a *alert) { a.Expr = "asked_total > 5" },
		"number":          func(a *alert) { a.Expr = "1" },
		"name":            func(a *alert) { a.Alert = "down" },
		"severity":        func(a *alert) { a.Labels = map[string]string{"severity": "bad"} },
		"missing summary": func(a *alert) { delete(a.Annotations, "summary") },
		"label of a text": func(a *alert) { a.Annotations["summary"] = "{{ $labels.worker }} is away" },
		"text":            func(a *alert) { a.Annotations["summary"] = "{{ $labels.instance is away" },
	} {
		broken := good
		broken.Annotations = maps.Clone(good.Annotations)
		breaks(&broken)
		if checkAlert(metrics, broken) == nil {
			t.Errorf("a broken %s is not reported", what)
		}
	}
}

// prometheusConfig is the content of deploy/prometheus/prometheus.yml.
type prometheusConfig struct {
	Global struct {
		Scrape   time.Duration `yaml:"scrape_interval"`
		Evaluate time.Duration `yaml:"evaluation_interval"`
	} `yaml:"global"`
	Rules []string `yaml:"rule_files"`
	Jobs  []struct {
		Name    string `yaml:"job_name"`
		Targets []struct {
			Targets []string `yaml:"targets"`
		} `yaml:"static_configs"`
	} `yaml:"scrape_configs"`
}

// TestPrometheusConfigurationMatchesTheRules verifies that prometheus.yml loads the rules and scrapes the job that they
// name.
func TestPrometheusConfigurationMatchesTheRules(t *testing.T) {
	var s prometheusConfig
	if err := decodeStrictYAML(read(t, "deploy/prometheus/prometheus.yml"), &s); err != nil {
		t.Fatalf("reading prometheus.yml: %v", err)
	}
	for _, name := range s.Rules {
		read(t, filepath.Join("deploy/prometheus", name))
	}
	if len(s.Rules) != 1 || len(s.Jobs) != 1 || s.Jobs[0].Name != "tierway" || len(s.Jobs[0].Targets) == 0 {
		t.Errorf("prometheus.yml has %+v: want one rule file and the job tierway", s)
	}
	for _, a := range alerts(t) {
		for _, m := range regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(a.Expr, -1) {
			if m[1] != s.Jobs[0].Name {
				t.Errorf("the alert %s queries the job %s", a.Alert, m[1])
			}
		}
	}
}
