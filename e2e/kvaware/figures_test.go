package kvaware

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"tierway/e2e/gateway"
)

// figures are the results of one policy.
type figures struct {
	name      string
	mean, p99 time.Duration // time to first token at speed 1
	hits      float64       // share of prompt tokens that were cached
	failed    int

	// Of a gateway.
	sources map[string]float64 // share of choices by source of the predicted prefix
	wrong   float64            // predicted tokens that were wrong, relative to the prompt tokens
	regret  float64            // share of streams with a prediction for another worker that is 20 % lower

	// Of the rig.
	prefillLate float64       // delay of the ends of prefills, relative to their planned time
	sendLate    time.Duration // mean time by which requests were sent late, in real time
}

// figuresOf summarizes the results of a replay. g is nil if the router of the test sent the requests.
func figuresOf(t *testing.T, name string, samples []sample, f *fleet, g *gateway.Process) figures {
	t.Helper()
	speed := f.config.Prefill / engineRate
	r := figures{name: name, prefillLate: f.lateness(), sources: map[string]float64{}}
	var ttfts []time.Duration
	var prompt, cached int64
	var sum, late time.Duration
	for _, s := range samples {
		late += s.late
		if s.err != nil {
			r.failed++
			continue
		}
		ttft := time.Duration(float64(s.ttft) * speed)
		ttfts, sum = append(ttfts, ttft), sum+ttft
		prompt, cached = prompt+s.prompt, cached+s.cached
	}
	if len(ttfts) == 0 {
		t.Fatalf("%s: no request succeeded: %v", name, samples[0].err)
	}
	slices.Sort(ttfts)
	r.mean, r.p99 = sum/time.Duration(len(ttfts)), ttfts[len(ttfts)*99/100]
	r.hits, r.sendLate = float64(cached)/float64(prompt), late/time.Duration(len(samples))
	if g == nil {
		return r
	}
	m, err := g.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	const sources = "tierway_prefix_predictions_total"
	for _, source := range []string{"events", "history", "none"} {
		r.sources[source] = m.Sum(sources, fmt.Sprintf("source=%q", source)) / max(1, m.Sum(sources))
	}
	r.wrong = m.Sum("tierway_prefix_wrong_tokens_total") / float64(prompt)
	r.regret = m.Sum("tierway_routes_regretted_total") / max(1, m.Sum("tierway_routes_judged_total"))
	return r
}

// logTable logs a table of figures.
func logTable(t *testing.T, all []figures) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\tTTFT mean s\tp99 s\thit rate\tby events\tby history\twrong tokens\tregret\tfailed\t"+
		"prefills late\tsent late\t")
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%.3f\t%.2f\t%.1f %%\t%.1f %%\t%.1f %%\t%.2f %%\t%.1f %%\t%d\t%.2f %%\t%v\t\n", r.name,
			r.mean.Seconds(), r.p99.Seconds(), 100*r.hits, 100*r.sources["events"], 100*r.sources["history"], 100*r.wrong,
			100*r.regret, r.failed, 100*r.prefillLate, r.sendLate.Round(10*time.Microsecond))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}
