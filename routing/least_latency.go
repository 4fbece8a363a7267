package routing

import (
	"math"
	"time"
)

const (
	// minLatencySamples is the number of streams from which a worker's average counts.
	minLatencySamples = 10
	// latencyDecay is the weight of a new sample, so that the average covers about the last twenty.
	latencyDecay = 0.05
	// latencyMemory is the time after which an average has lost two thirds of its weight against a new sample: the
	// first answers of a worker that got no streams for long count most.
	latencyMemory = 30 * time.Second
	// probeAfter is how long a worker gets no stream before it is probed with one.
	probeAfter = 10 * time.Second

	// probeShare is the share of the streams that may be probes, so that they cost little with few requests too.
	probeShare = 0.05

	latencyTerm = "seconds"
)

// latency is the moving average of a worker's time to first event.
type latency struct {
	mean    float64 // seconds
	samples int
	at      time.Time // of the last sample
	last    time.Time // when a stream was last sent or answered
}

// learn adds the time to first event of a stream, at most outlier times the mean. One stream that waited for the end
// of a hang then hardly changes the mean.
func (l *latency) learn(took time.Duration, at time.Time) {
	if took < 0 {
		return
	}
	sample := took.Seconds()
	if l.mean > 0 {
		sample = min(sample, outlier*l.mean)
	}
	l.samples++
	aged := 1 - math.Exp(-max(0, at.Sub(l.at).Seconds())/latencyMemory.Seconds())
	l.mean += (sample - l.mean) * max(latencyDecay, 1/float64(l.samples), aged)
	l.at = at
	l.touch(at)
}

// touch records that a stream was sent or answered.
func (l *latency) touch(at time.Time) {
	if at.After(l.last) {
		l.last = at
	}
}

// LatencyFacts is what a pool knows of the times to first event of a worker's streams.
type LatencyFacts struct {
	Mean    float64 `json:"mean_s"`
	Samples int     `json:"samples"`
	Idle    float64 `json:"idle_s"` // seconds since a stream was last sent or answered
}

func (l *latency) facts(now time.Time) LatencyFacts {
	f := LatencyFacts{Mean: l.mean, Samples: l.samples}
	if !l.last.IsZero() {
		f.Idle = max(0, now.Sub(l.last).Seconds())
	}
	return f
}

// leastLatency picks the worker with the lowest moving average of the time to first event, multiplied by
// its requests in flight, this one included, per unit of weight. Without that factor all requests of a
// second would go to the fastest worker. A worker that got no stream for a while is probed with one: its
// average may be out of date. It has no memory of its own.
type leastLatency struct{ terms *[maxTerms]string }

func newLeastLatency() leastLatency {
	return leastLatency{&[maxTerms]string{latencyTerm, requestsTerm}}
}

func (leastLatency) facts() facts { return usesLatency }

func (leastLatency) Name() string { return "least_latency" }

// Pick abstains until each worker has enough samples.
func (p leastLatency) Pick(r *Request, ws []View) (int, Reason) {
	for i := range ws {
		if ws[i].Latency.Samples < minLatencySamples {
			return -1, ""
		}
		if r.assessments != nil {
			r.assessments[i] = assessment{score: latencyScore(&ws[i]), terms: Terms{names: p.terms,
				values: [maxTerms]float64{ws[i].Latency.Mean, float64(ws[i].Inflight+1) / ws[i].weight()}}}
		}
	}
	if r.Stream {
		if i := idlest(ws); i >= 0 && Unit(Mix(r.Rand)) < probeShare {
			return i, ReasonLatencyProbe
		}
	}
	best := 0
	for i := range ws {
		own, lowest := latencyScore(&ws[i]), latencyScore(&ws[best])
		if own < lowest || own == lowest && compareLoad(&ws[i], &ws[best]) < 0 {
			best = i
		}
	}
	return best, ReasonLeastLatency
}

// latencyScore is the expected time to first event of one more request, if requests wait for each other.
func latencyScore(v *View) float64 {
	return v.Latency.Mean * float64(v.Inflight+1) / v.weight()
}

// idlest returns the worker without requests that got no stream for the longest time, at least probeAfter; -1:
// none.
func idlest(ws []View) int {
	found := -1
	for i := range ws {
		idle := ws[i].Latency.Idle
		if ws[i].Inflight == 0 && idle >= probeAfter.Seconds() && (found < 0 || idle > ws[found].Latency.Idle) {
			found = i
		}
	}
	return found
}
