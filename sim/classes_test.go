package sim

import (
	"testing"
	"time"
)

const (
	// batchPrompt and batchOutput are the tokens of one request in the scenarios
	// about order alone. An engine with sixteen of them has enough prefill
	// capacity, so that its slots are the bottleneck.
	batchPrompt, batchOutput = 1024, 192
	places                   = 16
)

// batchService is the time of one such request on an engine without a free slot.
func batchService() time.Duration { return Engine{}.Service(batchPrompt, batchOutput, places) }

// capacity returns how many such requests n engines answer per second.
func capacity(n int) float64 { return float64(n) * places / batchService().Seconds() }

func plain(kind string, class int) Request {
	return Request{Kind: kind, Tenant: kind, Class: class, PromptTokens: batchPrompt, OutputTokens: batchOutput}
}

// TestInteractiveIsNotDelayedByABatchBacklog: two engines are full of batch requests, and more
// are waiting. Interactive requests are dispatched within the time until one slot is freed, and
// take no more from the batch class than they need.
func TestInteractiveIsNotDelayedByABatchBacklog(t *testing.T) {
	const begin, span = 10 * time.Second, 60 * time.Second
	batch := Burst{Count: 500, Make: always(plain("batch", 2))}
	urgent := Poisson{Rate: capacity(2) / 10, From: begin, Until: begin + span, Make: always(plain("interactive", 0))}
	var b table
	b.row("", "interactive wait p99", "ttft p50", "ttft p99", "batch tokens/s", "of alone", "batch over after")
	alone := map[Admission]float64{}
	for _, a := range []Admission{Queued, FIFO, Direct} {
		for _, loads := range [][]Load{{batch}, {batch, urgent}} {
			r := play(t, Config{
				Seed: 1, Engines: identical(2, Engine{MaxInflight: places}), Policy: leastLoad(),
				Admission: a, Queue: patient(), Loads: loads,
			})
			tokens, over := 0.0, time.Duration(0)
			for _, rec := range r.Records {
				if rec.Request.Kind == "batch" {
					over = max(over, rec.Done)
					tokens += part(rec, begin, begin+span) * float64(rec.Tokens())
				}
			}
			tokens /= span.Seconds()
			if len(loads) == 1 {
				alone[a] = tokens
			}
			s := r.Stats(ofKind("interactive", 0, r.End))
			if len(loads) == 1 {
				b.row(a, "-", "-", "-", tokens, 1.0, over)
			} else {
				b.row(a, s.Wait.Quantile(0.99), s.TTFT.Quantile(0.5), s.TTFT.Quantile(0.99), tokens, tokens/alone[a], over)
			}
			if a != Queued || len(loads) == 1 {
				continue
			}
			if s.Answered < 20 {
				t.Fatalf("only %d interactive requests were answered", s.Answered)
			}
			if wait := s.Wait.Quantile(0.99); wait > batchService() {
				t.Errorf("interactive p99 wait %s, which is more than the %s of one batch request", wait, batchService())
			}
			if tokens < 0.85*alone[a] {
				t.Errorf("%.0f batch tokens/s, which is %.2f of the %.0f alone", tokens, tokens/alone[a], alone[a])
			}
		}
	}
	b.log(t,
		"500 batch requests on two engines of 16 places, a tenth of the capacity interactive (the second line of each)")
}

// part returns the share of a request's service time that lies between two moments.
func part(r *Record, from, to time.Duration) float64 {
	if !r.Answered() {
		return 0
	}
	return max(0, (min(r.Done, to)-max(r.DispatchedAt, from)).Seconds()) / max(1e-9, r.Service().Seconds())
}
