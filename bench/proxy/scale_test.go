package main

import (
	"bytes"
	"strings"
	"testing"

	"tierway/config"
)

func TestScaleConfigurationsAreValid(t *testing.T) {
	for _, c := range curves() {
		for _, n := range c.sizes {
			keys, err := keysOf(2)
			if err != nil {
				t.Fatal(err)
			}
			text := scaleConf("size", keys, c.conf(n, "127.0.0.1:1", "127.0.0.1:2"))
			file, err := config.Parse("size.yaml", []byte(text), func(string) (string, bool) { return "", false })
			if err != nil {
				t.Errorf("%s, %d: %v", c.name, n, err)
				continue
			}
			if c.name == "workers of a pool" && len(file.Tiers[0].Workers) != n {
				t.Errorf("%d workers, not %d", len(file.Tiers[0].Workers), n)
			}
		}
	}
}

// TestRequestsVaryByKeyAndSession: as many requests as there are keys, or sessions, have all of them.
func TestRequestsVaryByKeyAndSession(t *testing.T) {
	const sessions = 30
	keys, err := keysOf(20)
	if err != nil {
		t.Fatal(err)
	}
	body := shapes()[0].body
	request := httpRequest("127.0.0.1:1", keys[0], body, sessionHeaders(sessions)...)
	all := map[string]bool{}
	const connections = 3
	for i := range uint64(connections) {
		v := newVaried(request, len(body), 0, keys, sessions)
		v.next, v.step = 1_000_003+i, connections
		for range 60 / connections {
			next := v.bytes()
			if len(next) != len(request) || !bytes.HasSuffix(next, body) {
				t.Fatalf("the request is %s", next)
			}
			for line := range strings.Lines(string(next)) {
				all[line] = true
			}
		}
	}
	count := func(prefix string) (n int) {
		for line := range all {
			if strings.HasPrefix(line, prefix) {
				n++
			}
		}
		return n
	}
	if k, s := count("Authorization: Bearer "), count(sessionHeader); k != len(keys) || s != sessions {
		t.Errorf("%d keys and %d sessions, want %d and %d", k, s, len(keys), sessions)
	}
}

func TestACountEndsALoad(t *testing.T) {
	addr := serveInTest(t, newFixedWorker().serve)
	r := new(loader).run(job{Addr: addr, Keys: 2, Sessions: 3, Shape: "400 B", Connections: 2, Count: 10})
	if r.Done != 10 || r.Failed != 0 {
		t.Errorf("got %+v, want 10 answers", r)
	}
}

func TestScaleReportHasAllFigures(t *testing.T) {
	c := curve{name: "tenants", sizes: []int{1, 100}}
	rounds := [][]result{{{CPU: 100, P99: 2}, {CPU: 150, P99: 3}}, {{CPU: 100, P99: 2}, {CPU: 160, P99: 3}}}
	r := scaleReport{setup: setup{Tierway: "tierway x", Cores: 2, Rounds: 2, Rate: 300},
		Curves: []scaleCurve{scaleCurveOf(c, rounds)}}
	r.Curves[0].Points[1].Resident = 77
	text := r.String()
	for _, want := range []string{"300 requests of 400 B per second", "155 (150–160)", "1.55 (1.50–1.60)",
		"1.50 (1.50–1.50)", "77\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
