package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestHooksReportHasAllFigures(t *testing.T) {
	rounds := [][]result{{{CPU: 100, P99: 1}, {CPU: 150, P99: 2}, {CPU: 180, P99: 3}}}
	r := hooksReport{setup: setup{Tierway: "tierway x", Cores: 2, Rounds: 1, Rate: 300},
		Loads: []hooksLoad{hooksLoadOf("400 B", rounds)}}
	text := r.String()
	for _, want := range []string{"100 (100–100)", "http       CPU × 1.50", "ext_proc   CPU × 1.80", "p99 × 3.00"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

func TestTheMeasuredHookAllows(t *testing.T) {
	parent, end := io.Pipe()
	defer end.Close()
	from, to := io.Pipe()
	go func() { _ = serveHook("http", parent, to) }()
	var addr string
	if err := json.NewDecoder(from).Decode(&addr); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post("http://"+addr, "application/json", bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != `{"action":"allow"}` {
		t.Errorf("%q %v", text, err)
	}
}
