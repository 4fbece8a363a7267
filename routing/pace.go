package routing

import (
	"slices"
	"time"
)

const (
	// maxSamples is how many streams of one worker are kept: those of several
	// seconds of a busy one.
	maxSamples = 64
	// paceWindow is how old a sample may be: long enough for twenty streams of
	// a worker that gets one in fifteen seconds, short enough to speak of now.
	paceWindow = 5 * time.Minute
	// A moment lasts this long at least, and until the worker and a peer have had
	// so many streams in it. The median of three leaves one odd stream out. What
	// slows all streams of two seconds is one event and counts once.
	momentSpan    = 2 * time.Second
	momentStreams = 3
	// maxMoments and minMoments are how many moments are looked back at, at most
	// and at least. A sound worker under overload may be beyond the factor in every
	// second one, and then has all but one of six against it once in ten: the
	// predicted wait for a slot keeps that rare.
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
	ring    [maxSamples]sample
	next, n int

	ended   time.Time // the end of the last moment
	began   time.Time // when the first stream of the present moment was booked
	streams int       // of the present moment
	moments [maxMoments]moment
	last, m int // as next and n
}

// add keeps a sample and forgets those that are too old.
func (p *pace) add(s sample) {
	p.ring[p.next] = s
	p.next = (p.next + 1) % maxSamples
	p.n = min(p.n+1, maxSamples)
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
		p.moments[p.last] = moment{now, own / peers}
		p.last = (p.last + 1) % maxMoments
		p.m = min(p.m+1, maxMoments)
	}
	p.ended, p.streams = now, 0
}

// reset forgets everything.
func (p *pace) reset() { *p = pace{} }

func (p *pace) prune(now time.Time) {
	for p.n > 0 && now.Sub(p.newest(p.n-1).at) > paceWindow {
		p.n--
	}
	for p.m > 0 && now.Sub(p.newestMoment(p.m-1).at) > paceWindow {
		p.m--
	}
	if p.n == 0 {
		p.streams = 0
	}
}

// newest returns the i-th newest sample, from 0.
func (p *pace) newest(i int) *sample { return &p.ring[(p.next-1-i+2*maxSamples)%maxSamples] }

// newestMoment returns the i-th newest moment, from 0.
func (p *pace) newestMoment(i int) *moment {
	return &p.moments[(p.last-1-i+2*maxMoments)%maxMoments]
}

// median returns the median ratio of the streams that were booked at from or later
// and had their first token after that time; ok is false when there are fewer than
// enough.
func (p *pace) median(from, after time.Time, enough int) (m float64, ok bool) {
	var room [maxSamples]float64
	ratios := room[:0]
	for i := range p.n {
		s := p.newest(i)
		if !s.at.After(after) {
			break
		}
		if s.ratio > 0 && !s.began.Before(from) {
			ratios = append(ratios, s.ratio)
		}
	}
	if len(ratios) < enough {
		return 0, false
	}
	return median(ratios), true
}

// slow tells whether the worker was slower than factor times its peers in all but
// one of its last moments.
func (p *pace) slow(factor float64) bool {
	slow := 0
	for i := range p.m {
		if p.newestMoment(i).ratio > factor {
			slow++
		}
	}
	return p.m >= minMoments && slow >= p.m-1
}

// slowRatio returns the median of the last moments; 0 when they are too few.
func (p *pace) slowRatio() float64 {
	if p.m < minMoments {
		return 0
	}
	var ratios [maxMoments]float64
	for i := range p.m {
		ratios[i] = p.newestMoment(i).ratio
	}
	return median(ratios[:p.m])
}

// p95 returns the time within which 95 of 100 first tokens came; ok is false
// when there are fewer than enough samples.
func (p *pace) p95(enough int) (d time.Duration, ok bool) {
	if p.n < enough {
		return 0, false
	}
	var room [maxSamples]time.Duration
	observed := room[:0]
	for i := range p.n {
		observed = append(observed, p.newest(i).observed)
	}
	slices.Sort(observed)
	return observed[(95*p.n+99)/100-1], true
}

// median sorts vs, of which there is at least one.
func median(vs []float64) float64 {
	slices.Sort(vs)
	half := len(vs) / 2
	if len(vs)%2 == 1 {
		return vs[half]
	}
	return (vs[half-1] + vs[half]) / 2
}
