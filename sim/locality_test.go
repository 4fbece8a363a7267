package sim

import (
	"fmt"
	"testing"
	"time"

	"tierway/routing"
)

// chats is the scenario of the locality tests: eight engines of four slots each and chats of
// one tenant that need a given share of the slots' time. With several tenants, the queue's fair
// shares would distort the figures.
type chats struct {
	seed      uint64
	load      float64
	admission Admission
	age       time.Duration // of interactive requests; 0 is never
	rate      float64       // of the engines' prefill; 0 is theirs
}

const (
	chatEngines, chatPlaces = 8, 4
	chatWarm, chatSpan      = time.Minute, 5 * time.Minute
	// chatService is how long a chat's turn occupies its slot while all slots are
	// occupied: 235 output tokens on average, at 21.6 ms each, and 0.25 s of prefill.
	chatService = 235*0.0216 + 0.25
	chatTurns   = 3.87
)

func (c chats) config() Config {
	q := patient()
	q.Age[0] = c.age
	return Config{
		Seed: c.seed, Engines: identical(chatEngines, Engine{MaxInflight: chatPlaces, Rate: c.rate}),
		Policy: routing.Config{Name: "chwbl"}, Admission: c.admission, Queue: q,
		Loads: []Load{Sessions{Rate: c.load * chatEngines * chatPlaces / chatService / chatTurns, Until: chatSpan,
			Tenant: "all"}},
	}
}

// chatFigures is the sums over some seeds of the scenario.
type chatFigures struct {
	all  Stats
	busy float64 // used share of the slots' time
}

func playChats(t testing.TB, c chats, seeds int) chatFigures {
	t.Helper()
	var records []*Record
	var f chatFigures
	for seed := range seeds {
		c.seed = uint64(seed) + 1
		r := play(t, c.config())
		for _, rec := range r.Records {
			f.busy += part(rec, chatWarm, chatSpan) * rec.Service().Seconds()
		}
		records = append(records, r.Records...)
	}
	f.busy /= float64(seeds) * (chatSpan - chatWarm).Seconds() * chatEngines * chatPlaces
	f.all = (&Result{Records: records}).Stats(ofKind("chat", chatWarm, chatSpan))
	return f
}

// TestLocalitySurvivesTheQueue: with four concurrent requests per worker at most, chats find
// the same cached prefixes as without a limit. Their wait for their caches costs hardly more
// than it saves if prefill is cheap, and much less if prefill is expensive, compared with one
// queue that sends each request to any free worker.
func TestLocalitySurvivesTheQueue(t *testing.T) {
	const seeds = 3
	var b table
	b.row("prefill", "", "answered", "busy", "hits", "of no cap", "ttft mean", "ttft p50", "ttft p99", "wait p99")
	for _, rate := range []float64{10_000, 2500} {
		figures := map[Admission]chatFigures{}
		for _, a := range []Admission{Direct, Queued, FIFO} {
			f := playChats(t, chats{load: 0.8, rate: rate, admission: a}, seeds)
			figures[a] = f
			s := &f.all
			b.row(fmt.Sprint(rate, "/s"), a, s.Answered, f.busy, s.Hits(), s.Hits()/figures[Direct].all.Hits(),
				s.TTFT.Mean(), s.TTFT.Quantile(0.5), s.TTFT.Quantile(0.99), s.Wait.Quantile(0.99))
		}
		queued, direct, fifo := figures[Queued].all, figures[Direct].all, figures[FIFO].all
		if queued.Hits() < 0.9*direct.Hits() {
			t.Errorf("prefill at %.0f/s: hits of %.3f with the queue, which is %.3f of the %.3f without a cap", rate,
				queued.Hits(), queued.Hits()/direct.Hits(), direct.Hits())
		}
		if queued.TTFT.Mean() > fifo.TTFT.Mean()*11/10 {
			t.Errorf("prefill at %.0f/s: the first token after %s in the mean, and after %s from a plain line", rate,
				queued.TTFT.Mean(), fifo.TTFT.Mean())
		}
	}
	b.log(t, "chats at 80 % of the capacity, under chwbl, four requests at once a worker")
}

// BenchmarkWaitingForHome measures cost and benefit of waiting for the full home worker while
// other workers are open: not at all, for a limited time (Age of the class), or as long as the
// policy prefers. Prefill is cheap on the first kind of engine and expensive on the second.
func BenchmarkWaitingForHome(b *testing.B) {
	never, soonest := time.Duration(0), time.Nanosecond
	for _, rate := range []float64{10_000, 2500} {
		for _, load := range []float64{0.6, 0.8, 0.95} {
			c := chats{load: load, rate: rate}
			benchmarkChats(b, c, "no_cap", Direct, never)
			benchmarkChats(b, c, "fifo", FIFO, never)
			benchmarkChats(b, c, "not_at_all", Queued, soonest)
			for _, age := range []time.Duration{250 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second} {
				benchmarkChats(b, c, age.String(), Queued, age)
			}
			benchmarkChats(b, c, "policy", Queued, never)
		}
	}
}

func benchmarkChats(b *testing.B, c chats, name string, a Admission, age time.Duration) {
	b.Run(fmt.Sprintf("rate=%.0f/load=%v/%s", c.rate, c.load, name), func(b *testing.B) {
		c.admission, c.age = a, age
		var f chatFigures
		for b.Loop() {
			f = playChats(b, c, 3)
		}
		s := &f.all
		b.ReportMetric(s.Hits(), "hits")
		b.ReportMetric(s.TTFT.Mean().Seconds(), "s-ttft-mean")
		b.ReportMetric(s.TTFT.Quantile(0.99).Seconds(), "s-ttft-p99")
		b.ReportMetric(f.busy, "busy")
		b.ReportMetric(0, "ns/op")
	})
}
