package main

import (
	"strings"
	"testing"
)

func TestTabsReportHasAllFigures(t *testing.T) {
	r := tabsReport{setup: setup{Tierway: "tierway x", Cores: 2, Rounds: 3, Rate: 300}, Tabs: 20,
		None: spreadOfList([]float64{100, 110, 120}), Open: spreadOfList([]float64{130, 140, 150}),
		Ratio: spreadOfList([]float64{1.2, 1.25, 1.3}), P99: spreadOfList([]float64{0.9, 1.05, 1.1}),
		Bytes: spreadOfList([]float64{9000, 9500, 9900})}
	text := r.String()
	for _, want := range []string{"110 (100–120)", "CPU with 20 pages", "140 (130–150)", "1.25", "1.05",
		"9500 (9000–9900)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
