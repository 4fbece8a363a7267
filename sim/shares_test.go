package sim

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// granted sums the tokens of the requests that were dispatched in an interval, by kind.
func granted(r *Result, from, to time.Duration) (byKind map[string]float64, all float64) {
	byKind = map[string]float64{}
	for _, rec := range r.Records {
		if rec.Dispatched() && rec.DispatchedAt >= from && rec.DispatchedAt < to {
			byKind[rec.Request.Kind] += float64(rec.Tokens())
			all += float64(rec.Tokens())
		}
	}
	return byKind, all
}

// varied returns requests of one kind with different sizes: usually half to twice the plain
// size.
func varied(kind string, class int) func(*RNG, int) Request {
	return func(d *RNG, n int) Request {
		r := plain(kind, class)
		r.PromptTokens = RoundUp(int64(d.Lognormal(batchPrompt, 0.5)))
		r.OutputTokens = 1 + int64(d.Lognormal(batchOutput, 0.5))
		return always(r)(d, n)
	}
}

// QU-04: for ten minutes, interactive requests arrive at one and a half times the pool's
// capacity. The lower classes, with more waiting than their share, get exactly that share of
// the dispatched tokens, whichever class waits.
func TestLowerClassesGetTheirShareUnderOverload(t *testing.T) {
	const warm, span = time.Minute, 10 * time.Minute
	background, batch := varied("background", 1), varied("batch", 2)
	var b table
	b.row("waiting", "aged_share", "lower classes", "background", "batch", "interactive shed", "its wait p50")
	for _, lower := range []struct {
		name  string
		loads []Load
		share []float64
	}{
		{"both", []Load{Burst{Count: 2000, Make: background}, Burst{Count: 2000, Make: batch}}, []float64{0.05, 0.2, 0.4}},
		{"background", []Load{Burst{Count: 4000, Make: background}}, []float64{0.2}},
		{"batch", []Load{Burst{Count: 4000, Make: batch}}, []float64{0.2}},
		{"batch, and 3 % background", []Load{Poisson{Rate: 0.03 * capacity(2), Until: span, Make: background},
			Burst{Count: 4000, Make: batch}}, []float64{0.2}},
	} {
		for _, share := range lower.share {
			q := defaults()
			q.AgedShare, q.MaxDepth = share, 4000
			q.MaxWait[1], q.MaxWait[2] = time.Hour, time.Hour
			r := play(t, Config{
				Seed: 2, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(), Queue: q, Until: span,
				Loads: append([]Load{Poisson{Rate: 1.5 * capacity(2), Until: span, Make: varied("interactive", 0)}},
					lower.loads...),
			})
			tokens, all := granted(r, warm, span)
			got := (tokens["background"] + tokens["batch"]) / all
			s := r.Stats(ofKind("interactive", warm, span))
			b.row(lower.name, share, got, tokens["background"]/all, tokens["batch"]/all, float64(s.Shed)/float64(s.Submitted),
				s.Wait.Quantile(0.5))
			if math.Abs(got-share) > 0.02 {
				t.Errorf("waiting %s: the lower classes got %.3f of the tokens, want %.2f", lower.name, got, share)
			}
		}
	}
	for _, a := range []Admission{FIFO, Direct} {
		r := play(t, Config{
			Seed: 2, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(), Admission: a, Queue: patient(),
			Until: span,
			Loads: []Load{Poisson{Rate: 1.5 * capacity(2), Until: span, Make: varied("interactive", 0)},
				Burst{Count: 2000, Make: background}, Burst{Count: 2000, Make: batch}},
		})
		tokens, all := answered(r, warm, span)
		s := r.Stats(ofKind("interactive", warm, span))
		b.row(a, "-", (tokens["background"]+tokens["batch"])/all, tokens["background"]/all, tokens["batch"]/all,
			float64(s.Shed)/float64(s.Submitted), s.TTFT.Quantile(0.5))
	}
	b.log(t, "interactive at 1.5 times the capacity, lower classes waiting all the time: shares of the granted tokens; "+
		"without the queue, of the answered ones, and times to first token in place of waits")
}

// answered sums the tokens of the requests that were answered in an interval, by kind.
func answered(r *Result, from, to time.Duration) (byKind map[string]float64, all float64) {
	byKind = map[string]float64{}
	for _, rec := range r.Records {
		if rec.Answered() && rec.Done >= from && rec.Done < to {
			byKind[rec.Request.Kind] += float64(rec.Tokens())
			all += float64(rec.Tokens())
		}
	}
	return byKind, all
}

// QU-04: while the lower classes need less than their share, each of their requests is
// dispatched, under an overload that never ends.
func TestNoRequestStarvesUnderOverload(t *testing.T) {
	const span = 10 * time.Minute
	r := play(t, Config{
		Seed: 3, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(), Queue: defaults(),
		Loads: []Load{
			Poisson{Rate: 1.5 * capacity(2), Until: span, Make: varied("interactive", 0)},
			Poisson{Rate: 0.07 * capacity(2), Until: span, Make: varied("background", 1)},
			Poisson{Rate: 0.07 * capacity(2), Until: span, Make: varied("batch", 2)},
		},
	})
	var b table
	b.row("class", "requests", "shed", "wait p50", "wait p99", "longest")
	for i, kind := range []string{"interactive", "background", "batch"} {
		s := r.Stats(ofKind(kind, 0, r.End))
		b.row(kind, s.Submitted, s.Shed, s.Wait.Quantile(0.5), s.Wait.Quantile(0.99), s.Wait.Max())
		// An aged request is dispatched after those aged before it. Half a minute is
		// far more than their wait at this load.
		if age := defaults().Age[i]; i > 0 && (s.Shed > 0 || s.Wait.Max() > age+30*time.Second+defaults().Age[1]) {
			t.Errorf("of %d %s requests %d were shed, and one waited %s", s.Submitted, kind, s.Shed, s.Wait.Max())
		}
	}
	b.log(t, "interactive at 1.5 times the capacity, 7 % of it background and 7 % batch")
}

// TestTokensFollowTenantWeights: of two tenants, one sends ten times as many requests with
// prompts ten times as long. While both wait, their tokens are in proportion to their weights.
func TestTokensFollowTenantWeights(t *testing.T) {
	const warm, span = 20 * time.Second, 5 * time.Minute
	var b table
	b.row("weights", "small tenant's tokens", "large tenant's", "ratio", "off by")
	for _, w := range []struct{ small, large int }{{1, 1}, {1, 3}, {3, 1}} {
		small := Request{Kind: "small", Tenant: "small", Weight: w.small, PromptTokens: 512, OutputTokens: 128}
		large := Request{Kind: "large", Tenant: "large", Weight: w.large, PromptTokens: 5120, OutputTokens: 128}
		r := play(t, Config{
			Seed: 4, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(), Queue: patient(), Until: span,
			Loads: []Load{
				Closed{Clients: 100, Until: span, Make: always(small)},
				Closed{Clients: 1000, Until: span, Make: always(large)},
			},
		})
		tokens, _ := granted(r, warm, span)
		want := float64(w.large) / float64(w.small)
		off := tokens["large"]/tokens["small"]/want - 1
		b.row(w, tokens["small"], tokens["large"], tokens["large"]/tokens["small"], off)
		if math.Abs(off) > 0.05 {
			t.Errorf("weights %v: the large tenant got %.3f times the tokens, want %.2f", w, tokens["large"]/tokens["small"],
				want)
		}
	}
	b.log(t, "the large tenant sends ten times as many requests, with prompts ten times as long")
}

// QU-04: ten tenants that always have waiting requests, with twenty to two hundred clients and
// prompts of a quarter to three times the usual size, get equal shares by Jain's index (1 is
// equal, 0.1 is one tenant alone).
func TestTenantsOfAClassShareEvenly(t *testing.T) {
	const warm, span, tenants = 20 * time.Second, 10 * time.Minute, 10
	var loads []Load
	for k := range tenants {
		r := plain(fmt.Sprint("tenant ", k), 0)
		r.PromptTokens = int64(1+k*11/9) * batchPrompt / 4
		loads = append(loads, Closed{Clients: 20 * (k + 1), Until: span, Make: always(r)})
	}
	r := play(t, Config{
		Seed: 9, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(), Queue: patient(), Until: span,
		Loads: loads,
	})
	tokens, all := granted(r, warm, span)
	squares := 0.0
	for _, got := range tokens {
		squares += got * got
	}
	if jain := all * all / (tenants * squares); len(tokens) != tenants || jain < 0.99 {
		t.Errorf("Jain's index of %d tenants is %.4f: %v", len(tokens), jain, tokens)
	} else {
		t.Logf("Jain's index of %d tenants is %.4f", len(tokens), jain)
	}
}

// QU-05: a tenant that floods the queue delays only its own requests.
func TestFloodDelaysOnlyItsTenant(t *testing.T) {
	flood, steady := plain("flood", 0), plain("steady", 0)
	r := play(t, Config{
		Seed: 5, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(), Queue: patient(),
		Until: 10 * time.Minute,
		Loads: []Load{
			Burst{At: time.Second, Count: 10_000, Make: always(flood)},
			Poisson{Rate: 1, Until: 10 * time.Minute, Make: always(steady)},
		},
	})
	unloaded := Engine{}.Service(batchPrompt, batchOutput, 1)
	var b table
	b.row("tenant", "answered", "wait p50", "wait p99", "longest", "unloaded service")
	for _, kind := range []string{"flood", "steady"} {
		s := r.Stats(ofKind(kind, 0, 10*time.Minute))
		b.row(kind, s.Answered, s.Wait.Quantile(0.5), s.Wait.Quantile(0.99), s.Wait.Max(), unloaded)
		if kind == "steady" && (s.Answered < 400 || s.Wait.Quantile(0.99) > 2*unloaded) {
			t.Errorf("of %d answered the p99 wait is %s, want at most %s", s.Answered, s.Wait.Quantile(0.99), 2*unloaded)
		}
	}
	b.log(t, "one tenant sends 10,000 requests at once, the other one sends one per second")
}

// TestNoRequestPatternGainsTokens: a tenant does not gain tokens by shorter requests, less
// concurrency, or answers that are longer than expected. Each such rival gets no more tokens
// than a tenant of the same weight with usual requests.
func TestNoRequestPatternGainsTokens(t *testing.T) {
	const warm, span = 20 * time.Second, 5 * time.Minute
	usual := Request{Kind: "usual", Tenant: "usual", PromptTokens: 2560, OutputTokens: 256}
	// A tenant's prompts are all alike, so that slots are the bottleneck,
	// and answers differ, so that they do not end together.
	alike := func(r Request) func(*RNG, int) Request {
		chain, output := Extend(nil, uint64(r.PromptTokens), r.PromptTokens), r.OutputTokens
		return func(d *RNG, n int) Request {
			r.Chain, r.OutputTokens = chain, output/2+int64(d.Below(int(output)))
			return r
		}
	}
	var b table
	b.row("the rival's requests", "tokens", "the rival's", "gain")
	for _, rival := range []struct {
		name           string
		prompt, output int64
		clients        int
	}{
		{"as long", 2560, 256, 100},
		{"a tenth as long", 256, 26, 1000},
		{"ten times as long, six at once", 25_600, 256, 6},
		{"the same prompts, answers five times as long", 2560, 1280, 100},
	} {
		r := play(t, Config{
			Seed: 6, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(), Queue: patient(), Until: span,
			Loads: []Load{
				// Planned first, so that a few are all in flight before any request waits.
				Closed{Clients: rival.clients, Until: span, Make: alike(Request{
					Kind: "rival", Tenant: "rival", PromptTokens: rival.prompt, OutputTokens: rival.output})},
				Closed{Clients: 100, Until: span, Make: alike(usual)},
			},
		})
		tokens, _ := granted(r, warm, span)
		gain := tokens["rival"]/tokens["usual"] - 1
		b.row(rival.name, tokens["usual"], tokens["rival"], gain)
		if math.Abs(gain) > 0.05 {
			t.Errorf("requests %s: %+.3f of the other tenant's tokens more", rival.name, gain)
		}
	}
	b.log(t, "two tenants of one weight, both asking all the time")
}
