package sim

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// play runs a simulation and checks the invariants: no engine gets more than its bounds allow,
// and unless the simulation is cut off, all submitted requests have ended and all leases are
// released.
func play(t testing.TB, c Config) *Result {
	t.Helper()
	w, err := newSimulation(c)
	if err != nil {
		t.Fatal(err)
	}
	r := w.run()
	if c.Admission != Direct {
		for i, e := range r.Engines {
			if most := c.Engines[i].MaxInflight; most > 0 && e.Most > most {
				t.Errorf("%s had %d requests at once and may have %d", e.Name, e.Most, most)
			}
		}
	}
	if c.Until == 0 {
		allIsGivenBack(t, w, r)
	}
	return r
}

func allIsGivenBack(t testing.TB, w *Simulation, r *Result) {
	t.Helper()
	for _, rec := range r.Records {
		if !rec.Ended {
			t.Fatalf("request %d of %s never ended", rec.Number, rec.Request.Tenant)
		}
	}
	for i, g := range w.gateways {
		for _, v := range g.pool.Snapshot(w.time(w.now)) {
			if v.Inflight != 0 || v.PendingTokens != 0 || v.OutputTokens != 0 {
				t.Errorf("gateway %d has left %s with %d requests, %d and %d tokens", i, v.ID, v.Inflight, v.PendingTokens,
					v.OutputTokens)
			}
		}
	}
	for class, v := range r.Queue.Classes {
		if v.Depth != 0 || v.Entered != v.Dispatched+v.Abandoned+v.Expired {
			t.Errorf("class %d: %d wait; %d entered, %d were dispatched, %d abandoned, %d expired", class, v.Depth, v.Entered,
				v.Dispatched, v.Abandoned, v.Expired)
		}
	}
}

// identical returns n engines of one kind.
func identical(n int, e Engine) []Engine {
	all := make([]Engine, n)
	for i := range all {
		all[i] = e
	}
	return all
}

// always makes requests that are all alike but for their prompts.
func always(r Request) func(*RNG, int) Request {
	return func(d *RNG, n int) Request {
		r := r
		r.Chain = Extend(nil, d.Uint64(), r.PromptTokens)
		r.Prefix = r.Chain[len(r.Chain)-1].Hash
		return r
	}
}

// defaults returns the default configuration of a queue.
func defaults() queue.Config {
	return queue.Config{
		MaxDepth: 1000, MaxBytes: 256 << 20,
		MaxWait:   [queue.Classes]time.Duration{10 * time.Second, time.Minute, 10 * time.Minute},
		Age:       [queue.Classes]time.Duration{0, 10 * time.Second, 30 * time.Second},
		AgedShare: 0.2,
	}
}

// patient returns a queue configuration that sheds no request.
func patient() queue.Config {
	c := defaults()
	c.MaxDepth, c.MaxBytes = 1<<20, 0
	c.MaxWait = [queue.Classes]time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour}
	return c
}

func leastLoad() routing.Config { return routing.Config{Name: "least_load"} }

// ofKind selects the requests of a kind that were submitted in an interval.
func ofKind(kind string, from, to time.Duration) func(*Record) bool {
	return func(r *Record) bool { return r.Request.Kind == kind && r.SubmittedAt >= from && r.SubmittedAt < to }
}

// table is lines of cells, printed by go test -v.
type table struct{ lines []string }

func (b *table) row(cells ...any) {
	words := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case float64:
			if c >= 1000 {
				words[i] = fmt.Sprintf("%.0f", c)
				continue
			}
			words[i] = fmt.Sprintf("%.3f", c)
		case time.Duration:
			words[i] = fmt.Sprintf("%.2fs", c.Seconds())
		default:
			words[i] = fmt.Sprint(c)
		}
	}
	b.lines = append(b.lines, strings.Join(words, "\t"))
}

func (b *table) log(t testing.TB, title string) {
	t.Helper()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range b.lines {
		fmt.Fprintln(w, line+"\t")
	}
	w.Flush()
	t.Logf("%s\n%s", title, text.String())
}
