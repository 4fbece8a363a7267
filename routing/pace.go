package routing

import (
	"slices"
	"time"
)

const (
	// maxSamples is how many streams of one worker are kept: those of several seconds of a
	// busy one.
	maxSamples = 64
	// paceWindow is how old a sample may be: long enough for twenty streams of a worker that
	// gets one in fifteen seconds.
	paceWindow = 5 * time.Minute
	// A moment lasts two seconds at least, so that what slows all streams of two seconds
	// counts once, and until the worker and a peer have had three streams in it, of which
	// the median leaves one odd out.
	momentSpan    = 2 * time.Second
	momentStreams = 3
	// maxMoments and minMoments are how many moments count, at most and at least. A sound
	// worker under overload may be beyond the factor in every second one, and is in five of
	// six once in ten: the predicted wait for a slot keeps that rare.
	maxMoments = 8
	minMoments = 6
)

// sample is the time to first token of one stream.
type sample struct {
	began, at time.Time     // when the request was booked, and when its first token came
	ratio     float64       // observed by predicted; 0 without a prediction
	observed  time.Duration // for p95_above
}

// moment is one comparison of a worker with its peers.
type moment struct {
	at    time.Time // its end
	ratio float64   // of the worker's median by its peers'
}

// pace is the last samples of one worker and how they compare with those of its
// peers, guarded by the pool's lock. Its present moment begins with the first
// stream that was booked after the end of the one before. Streams that wait for the
// same thing, such as those of one burst, therefore count in one moment only.
type pace struct {
	samples []sample  // the last ones, the oldest first
	began   time.Time // when the first stream of the present moment was booked
	streams int       // of the present moment
	ended   time.Time // the end of the last moment
	moments []moment  // the last ones, the oldest first
}

// push appends v, and drops the oldest element of a slice that holds as many as it may.
func push[T any](s []T, v T, most int) []T {
	if len(s) == most {
		s = slices.Delete(s, 0, 1)
	}
	return append(s, v)
}

// add keeps a sample and forgets those that are too old.
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

// endMoment keeps the present moment's comparison with the peers' median.
func (p *pace) endMoment(now time.Time, peers float64) {
	if own, ok := p.median(p.began, p.ended, 1); ok {
		p.moments = push(p.moments, moment{now, own / peers}, maxMoments)
	}
	p.ended, p.streams = now, 0
}

func (p *pace) reset() { *p = pace{} }

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

// median returns the median ratio of the streams that were booked at from or later
// and had their first token after that time; ok is false if there are fewer than
// enough.
func (p *pace) median(from, after time.Time, enough int) (m float64, ok bool) {
	var room [maxSamples]float64
	ratios := room[:0]
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

// slow reports whether the worker was slower than factor times its peers in all but
// one of its last moments.
func (p *pace) slow(factor float64) bool {
	slow := 0
	for _, m := range p.moments {
		if m.ratio > factor {
			slow++
		}
	}
	return len(p.moments) >= minMoments && slow >= len(p.moments)-1
}

// slowRatio returns the median of the last moments; 0 if they are too few.
func (p *pace) slowRatio() float64 {
	if len(p.moments) < minMoments {
		return 0
	}
	var room [maxMoments]float64
	ratios := room[:0]
	for _, m := range p.moments {
		ratios = append(ratios, m.ratio)
	}
	return median(ratios)
}

// p95 returns the time within which 95 of 100 first tokens came.
func (p *pace) p95() time.Duration {
	var room [maxSamples]time.Duration
	observed := room[:0]
	for i := range p.samples {
		observed = append(observed, p.samples[i].observed)
	}
	slices.Sort(observed)
	return observed[(95*len(observed)+99)/100-1]
}

// median sorts vs, of which there is at least one.
func median(vs []float64) float64 {
	slices.Sort(vs)
	return medianBut(vs, -1)
}
