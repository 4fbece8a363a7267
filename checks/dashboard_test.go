package checks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tierway/hooks"
	"tierway/telemetry"
)

// scraped returns the labels that Prometheus adds to every series of a gateway.
func scraped() []string { return []string{"instance", "job"} }

// exported returns all metrics that a scrape of a gateway can have, histograms by their three series
// names, and up, which Prometheus adds.
func exported(t *testing.T) map[string]family {
	t.Helper()
	all := map[string]family{"up": {labels: scraped()}}
	add := func(name string, counts bool, labels ...string) {
		labels = slices.Concat(scraped(), labels)
		slices.Sort(labels)
		all[name] = family{counts: counts, labels: labels}
	}
	for _, n := range telemetry.New("test").Names() {
		if n.Type != "histogram" {
			add(n.Name, n.Type == "counter", n.Labels...)
			continue
		}
		add(n.Name+"_bucket", true, slices.Concat(n.Labels, []string{"le"})...)
		add(n.Name+"_sum", true, n.Labels...)
		add(n.Name+"_count", true, n.Labels...)
	}
	if len(all) < 60 {
		t.Fatalf("only %d metrics are known", len(all))
	}
	return all
}

// query checks an expression and returns the labels of its result. A counter must be read through a
// function such as rate.
func query(metrics map[string]family, text string) ([]string, error) {
	v, err := checkPromQL(metrics, text)
	switch {
	case err != nil:
		return nil, err
	case v.shape != 'i':
		return nil, fmt.Errorf("%s does not return series", text)
	case v.counts:
		return nil, fmt.Errorf("a counter is read without rate or increase in %s", text)
	}
	return v.labels, nil
}

// dashboard is the content of deploy/grafana/tierway.json, in Grafana's format. All other fields have
// their defaults.
type dashboard struct {
	Title, UID, Description, Refresh, Timezone string
	Tags                                       []string
	SchemaVersion, Version, GraphTooltip       int
	Editable                                   bool
	Time                                       struct{ From, To string }
	Links                                      []struct{}
	Annotations                                struct {
		List []struct {
			Name, IconColor, Expr, TitleFormat string
			Datasource                         source
			Enable                             bool
		}
	}
	Templating struct {
		List []struct {
			Name, Label, Type, AllValue string
			Datasource                  source
			Query                       json.RawMessage
			Refresh, Sort               int
			Multi, IncludeAll           bool
			Current                     struct{ Text, Value string }
		}
	}
	Panels []panel
}

// source is the reference to a datasource.
type source struct{ Type, UID string }

// panel is one panel, or, with the type row, the heading of the following panels.
type panel struct {
	ID                       int
	Type, Title, Description string
	Collapsed                bool
	Panels                   []struct{}
	Datasource               source
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
	FieldConfig              struct {
		Defaults struct {
			Unit                         string
			Min, Max                     *float64
			Custom, Thresholds, Mappings json.RawMessage
		}
		Overrides []struct{}
	}
	Options json.RawMessage
}

// decodeStrictJSON decodes a JSON document into v. It returns an error for fields that v does not have.
func decodeStrictJSON(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("unexpected text after the document")
	}
	return nil
}

// replaceVariables replaces Grafana's variables. It returns an error for an unknown variable.
func replaceVariables(expression string, variables []string) (string, error) {
	var unknown error
	text := regexp.MustCompile(`\$\w+|\$\{\w+\}`).ReplaceAllStringFunc(expression, func(v string) string {
		switch name := strings.Trim(v, "${}"); {
		case name == "__rate_interval":
			return "5m"
		case !slices.Contains(variables, name):
			unknown = fmt.Errorf("unknown variable %s in %s", v, expression)
		}
		return "any"
	})
	return text, unknown
}

// checkLegend returns an error for a {{label}} that the series of a query do not have.
func checkLegend(text string, labels []string) error {
	for _, m := range regexp.MustCompile(`\{\{\s*(.*?)\s*\}\}`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains(labels, m[1]) {
			return fmt.Errorf("the legend %q names the label %s of series that have %q", text, m[1], labels)
		}
	}
	return nil
}

func TestTheDashboardQueriesExportedMetrics(t *testing.T) {
	metrics := exported(t)
	var d dashboard
	if err := decodeStrictJSON(read(t, "deploy/grafana/tierway.json"), &d); err != nil {
		t.Fatalf("reading the dashboard: %v", err)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		var q struct{ Query, RefID string }
		if v.Type != "query" {
			continue
		} else if err := decodeStrictJSON(v.Query, &q); err != nil {
			t.Errorf("the variable %s: %v", v.Name, err)
		}
		if err := checkVariable(metrics, q.Query, variables); err != nil {
			t.Errorf("the variable %s: %v", v.Name, err)
		}
	}
	for _, a := range d.Annotations.List {
		if err := checkQuery(metrics, a.Expr, a.TitleFormat, variables); err != nil {
			t.Errorf("the annotation %s: %v", a.Name, err)
		}
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			if err := checkQuery(metrics, q.Expr, q.LegendFormat, variables); err != nil {
				t.Errorf("the panel %s: %v", p.Title, err)
			}
		}
	}
}

// checkQuery checks an expression of the dashboard and the legend of its series.
func checkQuery(metrics map[string]family, expression, text string, variables []string) error {
	expression, err := replaceVariables(expression, variables)
	if err != nil {
		return err
	}
	labels, err := query(metrics, expression)
	if err != nil {
		return err
	}
	return checkLegend(text, labels)
}

// checkVariable checks the query of a variable, which must list the values of a label.
func checkVariable(metrics map[string]family, text string, variables []string) error {
	m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s is not a label_values query", text)
	}
	series, err := replaceVariables(m[1], variables)
	if err != nil {
		return err
	}
	v, err := checkPromQL(metrics, series)
	if err != nil {
		return err
	}
	return checkLegend("{{"+m[2]+"}}", v.labels)
}

// knownResults returns the values of the label result of metrics, by the prefixes of the metrics' names: of hooks, and
// of the series that a gateway has from its start.
func knownResults() map[string][]string {
	all := map[string][]string{"tierway_hook_seconds": hooks.Results()}
	scrape := httptest.NewRecorder()
	telemetry.New("test").Handler().ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	series := regexp.MustCompile(`(?m)^(tierway_\w+)\{[^}]*\bresult="(\w+)"`)
	for _, m := range series.FindAllStringSubmatch(scrape.Body.String(), -1) {
		all[m[1]] = append(all[m[1]], m[2])
	}
	return all
}

// unknownResults returns the values that an expression compares with the label result and that no series has.
func unknownResults(known map[string][]string, expression string) (unknown []string) {
	selector := regexp.MustCompile(`(tierway_\w+)\{[^}]*\bresult\s*(?:=|!=|=~|!~)\s*"([^"]*)"`)
	for _, m := range selector.FindAllStringSubmatch(expression, -1) {
		for metric, results := range known {
			for word := range strings.SplitSeq(m[2], "|") {
				if strings.HasPrefix(m[1], metric) && !slices.Contains(results, word) {
					unknown = append(unknown, word)
				}
			}
		}
	}
	return unknown
}

// TestAlertsAndPanelsNameResultsThatExist: with another word, an alert could never fire.
func TestAlertsAndPanelsNameResultsThatExist(t *testing.T) {
	var d dashboard
	if err := decodeStrictJSON(read(t, "deploy/grafana/tierway.json"), &d); err != nil {
		t.Fatalf("reading the dashboard: %v", err)
	}
	var all []string
	for _, a := range alerts(t) {
		all = append(all, a.Expr)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	known := knownResults()
	for _, expression := range all {
		if unknown := unknownResults(known, expression); len(unknown) > 0 {
			t.Errorf("no series has the result %q of %s", unknown, expression)
		}
	}
	if got := unknownResults(known, `rate(tierway_hook_seconds_count{hook="a", result=~"open|opened"}[5m])`); len(got) != 1 {
		t.Errorf("a misspelt word is not reported: %q", got)
	}
}

// TestEveryPanelIsDescribed: each panel has a description, a unit and a legend for each query, and no
// panel overlaps another.
func TestEveryPanelIsDescribed(t *testing.T) {
	var d dashboard
	if err := decodeStrictJSON(read(t, "deploy/grafana/tierway.json"), &d); err != nil {
		t.Fatalf("reading the dashboard: %v", err)
	}
	var rows []string
	titles, ids, taken := map[string]bool{}, map[int]bool{}, map[[2]int]bool{}
	for _, p := range d.Panels {
		if titles[p.Title] || ids[p.ID] {
			t.Errorf("the panel %d, %s, is there twice", p.ID, p.Title)
		}
		titles[p.Title], ids[p.ID] = true, true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] || x >= 24 {
					t.Fatalf("the panel %s overlaps another one or is too wide", p.Title)
				}
				taken[[2]int{x, y}] = true
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Title == "" || len(p.Description) < 40 || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 ||
			p.Datasource != (source{"prometheus", "${datasource}"}) {
			t.Errorf("the panel %q lacks its description, unit, query or datasource", p.Title)
		}
		for i, q := range p.Targets {
			if q.LegendFormat == "" || q.RefID != string(rune('A'+i)) {
				t.Errorf("the panel %s has a query without legend or name: %s", p.Title, q.Expr)
			}
		}
	}
	want := []string{"Traffic and errors", "Latency", "Routing", "Hooks and caches", "Queues", "Workers",
		"Tokens and tenants", "Gateway"}
	if !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
}

// TestBrokenPanelsAreReported: a broken expression, variable, label of the legend, or unknown field.
func TestBrokenPanelsAreReported(t *testing.T) {
	metrics := map[string]family{"depth": {labels: []string{"tier"}},
		"asked_total": {counts: true, labels: []string{"tier"}}}
	variables := []string{"tier"}
	if err := checkQuery(metrics, `sum by (tier) (rate(asked_total{tier=~"$tier"}[$__rate_interval]))`, "{{tier}}",
		variables); err != nil {
		t.Error(err)
	}
	for _, broken := range [][2]string{
		{`sum(dpth)`, "all"},
		{`asked_total`, "{{tier}}"},
		{`vector(1) > bool`, "all"},
		{`depth{tier=~"$teir"}`, "{{tier}}"},
		{`depth`, "{{worker}}"},
		{`sum(depth)`, "{{tier}}"},
	} {
		if checkQuery(metrics, broken[0], broken[1], variables) == nil {
			t.Errorf("%q with the legend %q is not reported", broken[0], broken[1])
		}
	}
	for _, text := range []string{`label_values(dpth, tier)`, `label_values(depth, worker)`, `depth`} {
		if checkVariable(metrics, text, variables) == nil {
			t.Errorf("%q is not reported", text)
		}
	}
	for _, text := range []string{`{"titel": "x"}`, `{"panels": [{"unit": "s"}]}`, `{"title": "x"}}`} {
		if decodeStrictJSON([]byte(text), new(dashboard)) == nil {
			t.Errorf("%s is decoded without an error", text)
		}
	}
}
