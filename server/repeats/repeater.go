// Package repeats repeats sampled requests on the first and the last tier, has a judge read the answers, and
// writes the labels. It sends one sample at a time, and only while both tiers have room.
package repeats

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"tierway/config"
	"tierway/pairing"
	"tierway/server/control"
	"tierway/server/learning"
	"tierway/telemetry"
)

// checkEvery is the interval at which samples expire and the load of the tiers is read. Requests come and go within
// seconds.
const checkEvery = 2 * time.Second

// warnEvery is the least time between two warnings about one outcome.
const warnEvery = time.Minute

// Labels writes labels.
type Labels interface {
	// Label writes all labels later, or returns an error at once and writes none. It does not block.
	AddLabels(...learning.Label) error
}

// Options are the parts of a Repeater. All are required.
type Options struct {
	Control *control.Control
	Samples *pairing.Samples
	// Send serves a request as if a client had sent it. It ends with the context of the request.
	Send    func(*http.Request) pairing.Answer
	Labels  Labels
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Rand    func() uint64 // uniform; safe for concurrent use
}

// Repeater repeats samples. A nil Repeater does nothing.
type Repeater struct {
	Options
	warned map[telemetry.SampleOutcome]time.Time // used by Run
}

// New returns a Repeater. Run repeats the samples. It must be called before Control.Begin.
func New(o Options) *Repeater {
	r := &Repeater{Options: o, warned: map[telemetry.SampleOutcome]time.Time{}}
	o.Control.Follow(func(*config.File) { r.dropUnkept() })
	return r
}

// dropUnkept drops the samples that may not be kept under the configuration in force. It is safe for concurrent use.
func (r *Repeater) dropUnkept() {
	if n, _ := r.Samples.Len(); n == 0 {
		return
	}
	snap, now := r.Control.Snapshot(), time.Now()
	r.count(telemetry.SampleDropped, r.Samples.Drop(func(s *pairing.Sample) bool { return !snap.MayKeep(s, now) }))
}

// Run repeats samples until ctx ends. It returns when the request in flight has ended, and drops the samples that wait.
func (r *Repeater) Run(ctx context.Context) {
	if r == nil {
		return
	}
	r.Control.Recoverer.Every(checkEvery, ctx.Done(), "repeating requests", func(time.Time) {
		r.dropUnkept() // requests of an earlier configuration may have added samples since
		for ctx.Err() == nil && r.repeatNext(ctx) {
		}
	})
	r.count(telemetry.SampleDropped, r.Samples.Drop(func(*pairing.Sample) bool { return true }))
}

// repeatNext repeats the next sample if both tiers have room, and reports whether it was judged. After another
// outcome the next sample waits for the next check: its cause, such as a spent budget, may concern all samples.
func (r *Repeater) repeatNext(ctx context.Context) bool {
	snap, now := r.Control.Snapshot(), time.Now()
	r.count(telemetry.SampleExpired, r.Samples.Expire(now)) // the sample before may have taken minutes
	if snap.File.Learning.Replay.Share == 0 {
		return false
	}
	first, last := snap.OuterTiers()
	if !first.Load(now).HasRoom() || !last.Load(now).HasRoom() {
		return false
	}
	s := r.Samples.Next()
	if s == nil {
		return false
	}
	p := pair{Repeater: r, sample: s}
	outcome := p.repeat(ctx)
	r.count(outcome, 1)
	if p.cause != "" {
		r.warn(&p, outcome)
	}
	return outcome == telemetry.SampleLabelled || outcome == telemetry.SampleNotJudged
}

// warn logs why a sample has no labels, at most once per warnEvery and outcome.
func (r *Repeater) warn(p *pair, outcome telemetry.SampleOutcome) {
	now := time.Now()
	if last := r.warned[outcome]; !last.IsZero() && now.Sub(last) < warnEvery {
		return
	}
	r.warned[outcome] = now
	r.Log.Warn("a repeated request has no labels", "outcome", outcome.String(), "cause", p.cause,
		"request_id", p.sample.ID)
}

func (r *Repeater) count(outcome telemetry.SampleOutcome, n int) { r.Metrics.SamplesEnded(outcome, n) }
