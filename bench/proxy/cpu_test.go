package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
)

func TestProcessorTimeIsComparedWithinARound(t *testing.T) {
	// The machine was half as fast in the second round: ratios stay what they are.
	rounds := [][]result{{{CPU: 20}, {CPU: 100}, {CPU: 80}}, {{CPU: 40}, {CPU: 200}, {CPU: 160}}}
	targets := []target{{name: "nginx"}, {name: "tierway"}, {name: "before"}}
	load := cpuLoadOf(job{Shape: "400 B", Rate: 500}, targets, rounds)
	now, old := load.Targets[1], load.Targets[2]
	if now.PerRequest != (spread{150, 100, 200}) || now.ByNginx != (spread{5, 5, 5}) {
		t.Errorf("the gateway: %+v", now)
	}
	if old.ByNginx != (spread{4, 4, 4}) || old.TierwayBy != (spread{1.25, 1.25, 1.25}) {
		t.Errorf("the older one: %+v", old)
	}
	table := cpuReport{Loads: []cpuLoad{load}}.String()
	for _, want := range []string{"400 B at 500/s", "150 (100–200)", "before   120 (80–160)"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// TestEveryProxyIsMeasuredUnderEveryLoad uses this process as every proxy.
func TestEveryProxyIsMeasuredUnderEveryLoad(t *testing.T) {
	addr := serveInTest(t, newFixedWorker().serve)
	jobs, send := io.Pipe()
	receive, results := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serveJobs(jobs, results) }()
	b := &bench{load: &load{in: json.NewEncoder(send), out: json.NewDecoder(receive)}}
	for _, name := range []string{"direct", "nginx", "tierway", "older", "oldest"} {
		b.targets = append(b.targets, target{name: name, addr: addr, pid: os.Getpid()})
	}
	o := options{cpu: true, rounds: 1, connections: 2, seconds: 0.03, rate: 400, asJSON: true}
	var out strings.Builder
	if err := b.cpu(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	var rep cpuReport
	if err := json.Unmarshal([]byte(out.String()), &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Loads) != 5 || rep.Loads[0].Rate != 400 || rep.Loads[2].Rate != 100 {
		t.Fatalf("got the loads %+v", rep.Loads)
	}
	for _, l := range rep.Loads {
		if len(l.Targets) != 4 || l.Targets[3].Name != "oldest" {
			t.Errorf("%s has the targets %+v", l.Shape, l.Targets)
		}
		for _, p := range l.Targets {
			if p.PerRequest.Min <= 0 {
				t.Errorf("%s took %+v µs for %s", p.Name, p.PerRequest, l.Shape)
			}
		}
	}
	send.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
