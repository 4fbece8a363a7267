package breaker

import (
	"slices"
	"time"
)

const (
	// maxSamples is how many streams a median is made of: a worker that was well
	// and is slow now is found after half as many and one.
	maxSamples = 64
	// paceWindow is how old a sample may be: long enough for twenty streams of
	// a worker that gets one in fifteen seconds, short enough to speak of now.
	paceWindow = 5 * time.Minute
)

// sample is the time to first token of one stream.
type sample struct {
	at       time.Time
	ratio    float64 // observed by predicted; 0 without a prediction
	observed time.Duration
}

// pace is the last samples of one worker, guarded by its breaker's lock.
type pace struct {
	ring    [maxSamples]sample
	next, n int
}

// add keeps a sample and forgets those that are too old.
func (p *pace) add(s sample) {
	p.ring[p.next] = s
	p.next = (p.next + 1) % maxSamples
	p.n = min(p.n+1, maxSamples)
	p.prune(s.at)
}

func (p *pace) prune(now time.Time) {
	for p.n > 0 && now.Sub(p.newest(p.n-1).at) > paceWindow {
		p.n--
	}
}

// newest returns the i-th newest sample, from 0.
func (p *pace) newest(i int) *sample { return &p.ring[(p.next-1-i+2*maxSamples)%maxSamples] }

// median returns the median ratio and until when enough samples will back it;
// ok is false when there are fewer than enough.
func (p *pace) median(enough int) (m float64, fresh time.Time, ok bool) {
	var room [maxSamples]float64
	ratios := room[:0]
	for i := range p.n {
		s := p.newest(i)
		if s.ratio <= 0 {
			continue
		}
		if ratios = append(ratios, s.ratio); len(ratios) == enough {
			fresh = s.at.Add(paceWindow)
		}
	}
	if len(ratios) < enough {
		return 0, time.Time{}, false
	}
	return median(ratios), fresh, true
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

// Pace records a stream's time to first token, observed from when the request
// was sent, beside the predicted one; 0 when nothing was predicted. To be
// called before the request's verdict: when it returns an error, which is
// ErrSlow, that is the verdict.
//
// It does so for a worker that is slow now, and for a probe of one that was
// opened for slowness and still is. Slow is a median of observed by predicted,
// over the last 64 streams of five minutes and at least MinSamples of them,
// beyond Factor times that of its peers: the median of the other members'
// medians. Without peers that have enough samples nobody is slow. With P95Above
// set, slow is also a time to first token beyond it in more than 5 of 100 of
// the same streams; for a probe, its own.
func (b *Breaker) Pace(observed, predicted time.Duration) error {
	if b == nil || observed < 0 {
		return nil
	}
	s := sample{at: time.Now(), observed: observed}
	if predicted > 0 {
		s.ratio = float64(observed) / float64(predicted)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paceLocked(s) {
		return ErrSlow
	}
	return nil
}

func (b *Breaker) paceLocked(s sample) bool {
	limit := b.config.Slow
	switch {
	case b.retired || b.state == Open:
		return false
	case b.state == HalfOpen:
		return b.slow && (s.ratio > 0 && b.behindPeers(s.ratio, s.at) ||
			limit.P95Above > 0 && s.observed > limit.P95Above)
	case s.at.Add(-s.observed).Before(b.since):
		return false // sent before the breaker closed: it tells of the time before
	}
	b.pace.add(s)
	if m, fresh, ok := b.pace.median(limit.MinSamples); ok {
		b.group.publish(b, m, fresh)
		if b.behindPeers(m, s.at) {
			return true
		}
	}
	if limit.P95Above > 0 {
		p95, ok := b.pace.p95(limit.MinSamples)
		return ok && p95 > limit.P95Above
	}
	return false
}

// behindPeers compares a ratio with the peers'.
func (b *Breaker) behindPeers(ratio float64, now time.Time) bool {
	if b.config.Slow.Factor <= 0 {
		return false
	}
	peers, ok := b.group.peers(b, now)
	return ok && ratio > b.config.Slow.Factor*peers
}

// publish makes a worker's median known to its peers.
func (g *Group) publish(b *Breaker, median float64, fresh time.Time) {
	g.mu.Lock()
	b.seat.median, b.seat.fresh = median, fresh
	g.mu.Unlock()
}

// peers returns the median of the medians of all members but one; ok is false
// when none of them has enough recent samples.
func (g *Group) peers(b *Breaker, now time.Time) (m float64, ok bool) {
	var room [32]float64 // a usual pool's fit without an allocation
	medians := room[:0]
	g.mu.Lock()
	for _, m := range g.members {
		if m != b && now.Before(m.seat.fresh) {
			medians = append(medians, m.seat.median)
		}
	}
	g.mu.Unlock()
	if len(medians) == 0 {
		return 0, false
	}
	return median(medians), true
}
