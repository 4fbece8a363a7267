package comparison

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"tierway/decisions"
	"tierway/routing"
	"tierway/sim"
)

// small returns a comparison of two short loads under two policies.
func small(t *testing.T) Config {
	t.Helper()
	var arrivals []sim.Arrival
	for i := range 40 {
		chain := sim.Extend(sim.Extend(nil, uint64(i%4), 1280), uint64(i), 640)
		arrivals = append(arrivals, sim.Arrival{At: time.Duration(i) * 100 * time.Millisecond,
			Request: sim.Request{Chain: chain, PromptTokens: 1920, OutputTokens: 20}})
	}
	c := Config{
		Engines: make([]sim.Engine, 3), Seeds: []uint64{1, 2, 3},
		Cells: append(TraceCells("short", arrivals[:20], sim.BlockTokens, []float64{1, 4}),
			TraceCells("long", arrivals, sim.BlockTokens, []float64{2})...),
	}
	var err error
	if c.Policies, err = ParsePolicies([]string{"least_load", "chwbl+events+queue", " lmetric"}); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAReportHasARowForEachPolicyOfEachCell, in the order of the config, whatever the order in which
// the runs end. The rows of each cell are reported while later runs have not ended.
func TestAReportHasARowForEachPolicyOfEachCell(t *testing.T) {
	c := small(t)
	var last, total, calls int
	c.Progress = func(done, of int) { last, total, calls = done, of, calls+1 }
	var reported []Row
	begun := make(chan struct{})
	c.Finished = func(rows []Row) error {
		if len(reported) == 0 {
			close(begun)
		}
		reported = append(reported, rows...)
		return nil
	}
	simulate := c.Cells[2].run
	c.Cells[2].run = func(s sim.Config) (sim.Figures, error) {
		<-begun
		return simulate(s)
	}
	first, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if last != 27 || total != 27 || calls != 28 {
		t.Errorf("%d calls of Progress, the last one with %d of %d", calls, last, total)
	}
	if !reflect.DeepEqual(reported, first.Rows) {
		t.Errorf("%+v were reported before %+v", reported, first.Rows)
	}
	for i, want := range []struct {
		load   string
		rate   float64
		policy string
	}{
		{"short", 1, "least_load"}, {"short", 1, "chwbl+events+queue"}, {"short", 1, "lmetric"},
		{"short", 4, "least_load"}, {"short", 4, "chwbl+events+queue"}, {"short", 4, "lmetric"},
		{"long", 2, "least_load"}, {"long", 2, "chwbl+events+queue"}, {"long", 2, "lmetric"},
	} {
		row := first.Rows[i]
		requests := map[string]float64{"short": 20, "long": 40}[want.load]
		if row.Load != want.load || row.Rate != want.rate || row.Policy != want.policy || row.Unfinished != 0 ||
			row.TTFT.Mean <= 0 || row.E2E.P99 < row.TTFT.P99 || row.Requests != requests {
			t.Errorf("row %d is %+v, want %+v", i, row, want)
		}
	}
	c.Finished = nil
	second, err := Run(t.Context(), c)
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("the same comparison gave %+v, and then %+v, %v", first, second, err)
	}
}

// TestRolesAreComparedWithTheirOptions: the figures of stages are means over the seeds, and one policy can run without
// roles.
func TestRolesAreComparedWithTheirOptions(t *testing.T) {
	c := small(t)
	c.Handover, c.Cells, c.Seeds = &sim.Handover{}, c.Cells[:1], []uint64{1, 2}
	prefills := routing.StagePrefill
	for i, s := range []routing.Stages{prefills, routing.StageWhole | routing.StageDecode, prefills} {
		c.Engines[i].Stages = s
	}
	var err error
	if c.Policies, err = ParsePolicies([]string{"chwbl+threshold=1+prefill=random", "chwbl+threshold=0", "kv_aware",
		"chwbl+whole"}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		remote   float64
		roles    string
		prefills bool
	}{{1, "prefill 2 decode 1", true}, {0, "prefill 2 decode 1", false}, {-1, "prefill 2 decode 1", true},
		{0, "whole 3", false}} {
		s, roles := r.Rows[i].Stages, []string{}
		for _, role := range s.Roles {
			roles = append(roles, fmt.Sprint(role.Role, " ", role.Engines))
			if role.Busy > 1 || role.Role == "prefill" && (role.Busy > 0) != want.prefills {
				t.Errorf("%s: %+v", r.Rows[i].Policy, role)
			}
		}
		if want.remote >= 0 && s.Remote != want.remote || strings.Join(roles, " ") != want.roles || s.Token.Mean < 0.02 ||
			(s.Prefill.Mean > 0) != want.prefills {
			t.Errorf("%s: %+v", r.Rows[i].Policy, s)
		}
	}
	alone := c
	alone.Policies, alone.Seeds = c.Policies[:1], c.Seeds[1:]
	second, err := Run(t.Context(), alone)
	alone.Seeds = c.Seeds[:1]
	first, err2 := Run(t.Context(), alone)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	mean := (first.Rows[0].Stages.Prefill.P99 + second.Rows[0].Stages.Prefill.P99) / 2
	if got := r.Rows[0].Stages.Prefill.P99; math.Abs(got-mean) > 1e-9 || first.Rows[0].Stages.Prefill.P99 == mean {
		t.Errorf("the prefill stage takes %v, want the mean %v of %v and %v", got, mean, first.Rows[0].Stages.Prefill.P99,
			second.Rows[0].Stages.Prefill.P99)
	}
}

func TestACancelledComparisonReturnsItsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := small(t)
	c.Progress = func(int, int) { cancel() }
	if r, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAnErrorOfOneRunNamesTheRun(t *testing.T) {
	same := small(t)
	same.Engines = []sim.Engine{{Name: "a"}, {Name: "a"}}
	same.Policies, same.Cells, same.Seeds = same.Policies[:1], same.Cells[:1], same.Seeds[:1]
	if _, err := Run(t.Context(), same); err == nil ||
		!strings.Contains(err.Error(), "short 1 under least_load with seed 1") {
		t.Error(err)
	}
	c, full := small(t), errors.New("the disk is full")
	c.Finished = func([]Row) error { return full }
	if _, err := Run(t.Context(), c); !errors.Is(err, full) {
		t.Errorf("%v, want the error of Finished", err)
	}
	if _, err := Run(t.Context(), Config{}); err == nil {
		t.Error("a comparison of nothing has a report")
	}
}

func TestPoliciesAreReadWithTheirOptions(t *testing.T) {
	if all, err := ParsePolicies([]string{" all "}); err != nil || len(all) != len(routing.Names())-1 {
		t.Errorf("all are %d policies (%v), want %d: all but lmcache_aware", len(all), err, len(routing.Names())-1)
	}
	p, err := parsePolicy("chwbl+queue+events")
	if err != nil || !p.Queue || !p.events || p.peer != nil {
		t.Errorf("%+v, %v", p, err)
	}
	for text, want := range map[string]string{
		"lmcache_aware":           `policy "lmcache_aware" is not simulated, because there is no LMCache: write kv_aware+events`,
		"fastest":                 `policy "fastest" is unknown: write one of cache_aware, `,
		"chwbl+warp":              `policy "chwbl+warp": option "warp" is unknown: write events, queue, threshold=N, prefill=POLICY or whole`,
		"chwbl+threshold=-1":      `policy "chwbl+threshold=-1": option "threshold=-1": write uncached tokens, such as threshold=512`,
		"chwbl+prefill=llm_d":     `option "prefill=llm_d": write a policy of the gateway: one of cache_aware`,
		"chwbl+whole+threshold=1": `policy "chwbl+whole+threshold=1": whole gives the engines no roles`,
		"llm_d+events":            `policy "llm_d+events": "llm_d" has no options`,
		"":                        `policy "" is unknown`,
	} {
		if _, err := parsePolicy(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for _, name := range PolicyNames() {
		if _, err := parsePolicy(name); err != nil {
			t.Error(err)
		}
	}
	for want, texts := range map[string][]string{
		"write one or more of cache_aware, ":                 nil,
		`policy "chwbl+queue+events" is given twice: remove`: {"chwbl+events+queue", "chwbl", "chwbl+queue+events"},
	} {
		if _, err := ParsePolicies(texts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", texts, err, want)
		}
	}
	if _, err := ModeCells("fast", nil); err == nil || !strings.Contains(err.Error(), "base, hot, hetero") {
		t.Error(err)
	}
}

// report is one load at two rates with two policies.
func report() *Report {
	row := func(rate float64, policy string, mean, p99 float64) Row {
		return Row{Load: "base", Rate: rate, Unit: "chats/s", Policy: policy, Requests: 100, Hits: 0.5, Uneven: 1.25,
			TTFT: Seconds{Mean: mean, P50: mean / 2, P99: p99}, E2E: Seconds{P99: 10 * p99}}
	}
	return &Report{Seeds: []uint64{1}, Rows: []Row{row(3, "a", 0.25, 1.5), row(3, "b<c>", 0.5, 1.2),
		row(10, "a", 12.345, 60), row(10, "b<c>", 0, 30)}}
}

func TestTheTableMarksTimesNearTheLowest(t *testing.T) {
	r := report()
	r.Rows[3].TTFT.P50 = 6.32 // 2.4 % above the other
	r.Rows[3].E2E.P99 = 584   // 2.6 % below the other
	var b strings.Builder
	table := NewTable(&b, []Cell{{Load: "base", Rate: 3}, {Load: "base", Rate: 10}}, []Policy{{Name: "a"}, {Name: "b<c>"}})
	for _, rows := range [][]Row{r.Rows[:2], r.Rows[2:]} {
		if err := table.Print(rows); err != nil {
			t.Fatal(err)
		}
	}
	const want = `
  load  rate  policy  requests  TTFT mean s   p50 s   p99 s  duration p99 s  hit rate  max/mean tokens
  base     3       a       100       0.250*  0.125*   1.50            15.0     50.0 %             1.25
  base     3    b<c>       100       0.500   0.250    1.20*           12.0*    50.0 %             1.25

  base    10       a       100        12.3    6.17*   60.0             600     50.0 %             1.25
  base    10    b<c>       100       0.000*   6.32*   30.0*            584*    50.0 %             1.25
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestTheTableComparesMeansWithPerfect(t *testing.T) {
	r := report()
	r.Rows[1].Policy = "perfect"
	rows := append(r.Rows[:2:2], Row{Load: "base", Policy: "b", TTFT: Seconds{Mean: 0.49999}})
	var b strings.Builder
	table := NewTable(&b, []Cell{{Load: "base", Rate: 3}}, []Policy{{Name: "a"}, {Name: "perfect"}, {Name: "b"}})
	if err := table.Print(rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for i, end := range []string{"vs perfect", "-50.0 %", "+0.0 %", "+0.0 %"} {
		if !strings.HasSuffix(lines[i], "  "+end) {
			t.Errorf("%q does not end with %q", lines[i], end)
		}
	}
}

// TestTheChartIsAnImage: XML with a line for each policy in each of two panels, and no NaN or infinity.
func TestTheChartIsAnImage(t *testing.T) {
	r := report()
	r.Rows = append(r.Rows, Row{Load: "alone", Rate: 1, Unit: "times", Policy: "a", TTFT: Seconds{Mean: 1, P99: 1}})
	var b strings.Builder
	if err := r.SVG(&b); err != nil {
		t.Fatal(err)
	}
	d, lines, texts := xml.NewDecoder(strings.NewReader(b.String())), 0, ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if a.Name.Local == "d" && strings.Contains(a.Value, "L") {
					lines++
				}
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			texts += string(e) + "\n"
		}
	}
	if lines != 4 {
		t.Errorf("%d lines, want 4", lines)
	}
	for _, want := range []string{"base: time to first token, mean, seconds\n", "chats/s\n", "\nb<c>\n", "\n10\n",
		"\n0.5\n"} {
		if !strings.Contains(texts, want) {
			t.Errorf("the chart has no text %q", want)
		}
	}
}

func TestAReportIsJSON(t *testing.T) {
	text, err := json.Marshal(report())
	if err != nil || !strings.Contains(string(text), `"policy":"a","requests":100,"unfinished":0,"hit_rate":0.5,`+
		`"max_mean_tokens":1.25,"ttft_seconds":{"mean":0.25,"p50":0.125,"p90":0,"p99":1.5}`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestDecisionsAreReplayedWithTheirPrefixes: two prompts of 3 characters a token share the recorded
// block up to character 1,500, which are 500 tokens.
func TestDecisionsAreReplayedWithTheirPrefixes(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	record := func(after time.Duration, links ...routing.Link) *decisions.Decision {
		return &decisions.Decision{Time: at.Add(after), Worker: "w", Tenant: "t",
			Usage:    decisions.Usage{Prompt: 1000, Output: 20},
			Features: decisions.Features{Prefix: 7, Chain: links}}
	}
	shared := []routing.Link{{Hash: 1, End: 300}, {Hash: 2, End: 1500}}
	all, err := DecisionArrivals([]*decisions.Decision{
		record(2*time.Second, append(shared[:2:2], routing.Link{Hash: 4, End: 3000})...),
		{Time: at, PromptTokens: 5}, // refused
		record(time.Second, append(shared[:2:2], routing.Link{Hash: 3, End: 3000})...),
	})
	if err != nil || len(all) != 2 || all[0].At != 0 || all[1].At != time.Second {
		t.Fatalf("%+v, %v", all, err)
	}
	first, second := all[0].Request, all[1].Request
	if first.PromptTokens != 1000 || first.OutputTokens != 20 || first.Prefix != 7 || len(first.Chain) != 15 {
		t.Errorf("%+v", first)
	}
	same := 0
	for same < len(first.Chain) && first.Chain[same].Hash == second.Chain[same].Hash {
		same++
	}
	if same != 500/sim.BlockTokens {
		t.Errorf("the prompts share %d blocks, want %d", same, 500/sim.BlockTokens)
	}
	if _, err := DecisionArrivals(nil); err == nil {
		t.Error("no records have arrivals")
	}
}
