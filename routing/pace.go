package routing

import (
	"slices"
	"time"
)

const (
	// maxSamples is the number of streams that are kept for one worker: a few seconds of a busy
	// worker.
	maxSamples = 64
	// paceWindow is the largest age of a sample: a worker with one stream in fifteen seconds has
	// twenty samples.
	paceWindow = 5 * time.Minute
	// momentSpan is the least duration of a moment, so that an event that slows all streams of two
	// seconds counts once. momentStreams is the least number of streams of the worker and of a
	// peer, so that the median ignores one outlier.
	momentSpan    = 2 * time.Second
	momentStreams = 3
	// maxMoments and minMoments are the largest and the least number of moments that count. Under
	// overload a good worker may exceed the factor in half of its moments, and then does so in
	// five of six once in ten times. The predicted wait for a slot keeps that rare.
	maxMoments = 8
	minMoments = 6
)

// sample is the time to first token of one stream.
type sample struct {
	began, at time.Time     // time of the booking and of the first token
	ratio     float64       // observed divided by predicted; 0 without a prediction
	observed  time.Duration // for p95_above
}

// moment is one comparison of a worker with its peers.
type moment struct {
	at    time.Time // its end
	ratio float64   // the worker's median divided by its peers' median
}

// pace holds the latest samples of one worker and their comparisons with its peers. The pool's
// lock guards it. The current moment begins with the first stream that was booked after the end
// of the moment before. Streams that wait for the same event, such as those of one burst, then
// count in one moment only.
type pace struct {
	samples []sample  // oldest first
	began   time.Time // booking of the first stream of the current moment
	streams int       // of the current moment
	ended   time.Time // end of the last moment
	moments []moment  // oldest first
}

// push appends v, and first drops the oldest element if s has maxLength elements.
func push[T any](s []T, v T, maxLength int) []T {
	if len(s) == maxLength {
		s = slices.Delete(s, 0, 1)
	}
	return append(s, v)
}

// add adds a sample and drops samples that are too old.
func (p *pace) add(s sample) {
	p.samples = push(p.samples, s, maxSamples)
	p.prune(s.at)
	if s.ratio <= 0 || s.began.Before(p.ended) {
		return
	}
	if p.streams == 0 || s.began.Before(p.began) {
		p.began = s.began
	}
	p.streams++
}

// endMoment ends the current moment and records the comparison with the peers' median.
func (p *pace) endMoment(now time.Time, peers float64) {
	if own, ok := p.median(p.began, p.ended, 1); ok {
		p.moments = push(p.moments, moment{now, own / peers}, maxMoments)
	}
	p.ended, p.streams = now, 0
}

func (p *pace) prune(now time.Time) {
	for len(p.samples) > 0 && now.Sub(p.samples[0].at) > paceWindow {
		p.samples = slices.Delete(p.samples, 0, 1)
	}
	for len(p.moments) > 0 && now.Sub(p.moments[0].at) > paceWindow {
		p.moments = slices.Delete(p.moments, 0, 1)
	}
	if len(p.samples) == 0 {
		p.streams = 0
	}
}

// median returns the median ratio of the streams that were booked at from or later and had
// their first token after after; ok is false if there are fewer than enough.
func (p *pace) median(from, after time.Time, enough int) (m float64, ok bool) {
	var scratch [maxSamples]float64
	ratios := scratch[:0]
	for i := range p.samples {
		if s := &p.samples[i]; s.ratio > 0 && s.at.After(after) && !s.began.Before(from) {
			ratios = append(ratios, s.ratio)
		}
	}
	if len(ratios) < enough {
		return 0, false
	}
	return median(ratios), true
}

// slow reports whether the worker exceeded factor in all but one of its last moments.
func (p *pace) slow(factor float64) bool {
	slow := 0
	for _, m := range p.moments {
		if m.ratio > factor {
			slow++
		}
	}
	return len(p.moments) >= minMoments && slow >= len(p.moments)-1
}

// slowRatio returns the median of the last moments, or 0 if there are too few.
func (p *pace) slowRatio() float64 {
	if len(p.moments) < minMoments {
		return 0
	}
	var scratch [maxMoments]float64
	ratios := scratch[:0]
	for _, m := range p.moments {
		ratios = append(ratios, m.ratio)
	}
	return median(ratios)
}

// p95 returns the 95th percentile of the observed times to first token.
func (p *pace) p95() time.Duration {
	var scratch [maxSamples]time.Duration
	observed := scratch[:0]
	for i := range p.samples {
		observed = append(observed, p.samples[i].observed)
	}
	slices.Sort(observed)
	return observed[(95*len(observed)+99)/100-1]
}

// median sorts vs, which is not empty, and returns its median.
func median(vs []float64) float64 {
	slices.Sort(vs)
	return medianWithout(vs, -1)
}
