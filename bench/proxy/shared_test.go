package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestVariedRequestsDifferInTheirLettersOnly, so that each one is valid and has a new second half.
func TestVariedRequestsDifferInTheirDigitsOnly(t *testing.T) {
	s := unique()
	request := httpRequest("h", "k", s.body)
	v := &varied{request: request, letters: request[len(request)-len(s.body)+s.vary:][:varyLetters], next: 7, step: 3}
	first := bytes.Clone(v.bytes())
	second := v.bytes()
	differ := 0
	for i := range first {
		if first[i] != second[i] {
			differ++
		}
	}
	if len(first) != len(second) || differ == 0 || differ > varyLetters {
		t.Errorf("two requests differ in %d bytes", differ)
	}
	if !bytes.Contains(first, []byte("aaaaaaaaaaaaaaah")) || !bytes.Contains(second, []byte("aaaaaaaaaaaaaaba")) {
		t.Error("the requests lack their numbers")
	}
}

// TestSharedReportHasAllFigures.
func TestSharedReportHasAllFigures(t *testing.T) {
	g := sharedGroup{cpu: []float64{110, 120, 130}, redisCPU: []float64{5, 6, 7}, calls: []float64{40, 41, 42},
		in: []float64{1000, 2000, 3000}, outgo: []float64{10, 20, 30}}
	alone := []float64{100, 100, 100}
	r := sharedReport{setup: setup{Tierway: "tierway x", Cores: 2, Rounds: 3}, Alone: spreadOfList(alone),
		Redis: g.costs(alone), Two: g.costs(alone), IdleOps: 2.5, Keys: [2]float64{400, 5000}}
	text := r.String()
	for _, want := range []string{"120 (110–130)", "1.20", "6 (5–7)", "41 (40–42)", "2000 (1000–3000)", "20 (10–30)",
		"2.5 calls per second", "400 bytes", "5000 bytes"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
