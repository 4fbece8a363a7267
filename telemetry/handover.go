package telemetry

import "github.com/prometheus/client_golang/prometheus"

// HandoverResult is how the prompt of an attempt was computed in a tier whose workers hand prompts over.
type HandoverResult uint8

// The results.
const (
	HandoverRemote     HandoverResult = iota // another worker computed it
	HandoverLocal                            // its own worker computed it, as decided
	HandoverRecomputed                       // its own worker computed it, because the hand-over failed
	HandoverFailed                           // the attempt failed
	HandoverAbandoned                        // the client left between the stages
	HandoverRefused                          // the prefill worker refused the request
)

// handoverResults are the values of the label result, by HandoverResult.
var handoverResults = [...]string{"remote", "local", "recomputed", "failed", "abandoned", "refused"}

// String returns the value of the label result.
func (r HandoverResult) String() string { return handoverResults[r] }

type handoverVectors struct {
	results  *prometheus.CounterVec
	prefills *prometheus.HistogramVec
}

func newHandoverVectors(d *definer) (v handoverVectors) {
	d.setSubject("Hand-overs")
	v.results = d.counters("tierway_handover_total", "Attempts in a tier with handover, by result. remote: a prefill "+
		"worker computed the prompt. local: the decode worker computed it, as decided. recomputed: it did so, "+
		"because no prefill worker handed the prompt over. failed: the attempt failed after a prefill worker was booked. "+
		"abandoned: the client left between the stages. refused: the prefill worker "+
		"refused the request, as its sender's fault.", "tier", "result")
	v.prefills = d.histograms("tierway_prefill_seconds", "Duration of prefill stages that succeeded, from the request to "+
		"the prefill worker to its answer.", requestSeconds, "tier")
	return v
}

// Handover holds the resolved series of one tier or pool with a hand-over. It is safe for concurrent use.
type Handover struct {
	results [len(handoverResults)]prometheus.Counter
	Prefill prometheus.Observer // of a prefill stage, in seconds
}

// Handover resolves the series of a tier with a hand-over. RemoveTier removes them.
func (m *Metrics) Handover(tier string) *Handover {
	h := &Handover{Prefill: m.handovers.prefills.WithLabelValues(tier)}
	for i, result := range handoverResults {
		h.results[i] = m.handovers.results.WithLabelValues(tier, result)
	}
	return h
}

// Ended counts an attempt by its result.
func (h *Handover) Ended(r HandoverResult) { h.results[r].Inc() }

// HandoverGauges is the state of the hand-overs of one worker.
type HandoverGauges struct {
	Open int `metric:"tierway_handover_open" help:"Prompts that the prefill worker keeps for other workers, until they have read them or handover_lease ends; absent without handover."`
}
