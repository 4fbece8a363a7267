package telemetry

import "github.com/prometheus/client_golang/prometheus"

// SampleOutcome is how a sample of learning.replay ended.
type SampleOutcome uint8

// The outcomes.
const (
	SampleLabelled    SampleOutcome = iota // two labels were written
	SampleRefused                          // a repeated request was refused, or answered by another tier
	SampleFailed                           // a repeated request failed, or its answer has no text
	SampleJudgeFailed                      // the judge gave no verdict
	SampleNotJudged                        // the judge cannot judge the request
	SampleDropped                          // not repeated or not written, for another reason than its age
	SampleExpired                          // too old before both tiers had room
)

// sampleOutcomes are the values of the label outcome, by SampleOutcome.
var sampleOutcomes = [...]string{"labelled", "refused", "failed", "judge_failed", "not_judged", "dropped",
	"expired"}

// String returns the value of the label outcome.
func (o SampleOutcome) String() string { return sampleOutcomes[o] }

type sampleCounters [len(sampleOutcomes)]prometheus.Counter

func newSampleCounters(d *definer) (c sampleCounters) {
	samples := d.counters("tierway_learning_samples_total", "Samples of answered requests, by outcome. "+
		"labelled: two labels were written. refused: a repeated request was refused, or answered by another tier. failed: "+
		"a repeated request failed, or its answer has no text. judge_failed: the judge gave no verdict. "+
		"not_judged: the command of the judge ended with status 3, because it cannot judge the request. dropped: newer "+
		"samples took the place, the body is too large, the tenant, its key or the configuration has changed, the gateway "+
		"stops, or a label could not be written. expired: the sample was an hour old before both tiers had room.",
		"outcome")
	for i, outcome := range sampleOutcomes {
		c[i] = samples.WithLabelValues(outcome)
	}
	return c
}

// SamplesEnded counts n samples with one outcome.
func (m *Metrics) SamplesEnded(o SampleOutcome, n int) { m.samples[o].Add(float64(n)) }
