package prefix

import "time"

const (
	// 8 counters per worker for 64 workers: with 64 workers the sketch overcounts by at most
	// about an eighth of a fair share.
	sketchSets, sketchWays = 64, 8
)

// sketch counts the traffic of the heaviest keys in fixed memory: Space-Saving (Metwally, Agrawal and El
// Abbadi) in sets. A key without a counter takes over the lowest counter of its set; the count found
// there is the most by which the key is overcounted.
type sketch [sketchSets][sketchWays]counter

// counter is the traffic of one key.
type counter struct {
	key   uint64
	count float64
	over  float64   // the part of count that may belong to other keys
	above time.Time // since when the key is too large for one worker; otherwise zero
}

// add counts a request and returns the key's counter.
func (s *sketch) add(key uint64, unit float64) *counter {
	set := &s[key%sketchSets]
	low := &set[0]
	for i := range set {
		c := &set[i]
		if c.key == key && c.count > 0 {
			c.count += unit
			return c
		}
		if c.count < low.count {
			low = c
		}
	}
	*low = counter{key: key, count: low.count + unit, over: low.count}
	return low
}

func (s *sketch) scale(by float64) {
	for i := range s {
		for k := range s[i] {
			s[i][k].count *= by
			s[i][k].over *= by
		}
	}
}

// fading is a sum of requests in which older requests count less. It increases the weight of new requests
// instead, which gives the same shares and leaves other sums unchanged until a rescale.
type fading struct {
	last        time.Time
	unit, total float64 // weight of the last request, and of all requests
}

// add counts one request. A request fades to 1/e within the window, but not before `least` more requests.
func (f *fading) add(now time.Time, window time.Duration, least float64) {
	if f.unit == 0 {
		f.last, f.unit, f.total = now, 1, 1
		return
	}
	if since := now.Sub(f.last); since > 0 {
		f.last = now
		// 1-x approximates e^-x, because x is at most 1/least.
		f.unit /= max(1-since.Seconds()/window.Seconds(), 1-1/least)
	}
	f.total += f.unit
}

// rescale sets the unit to 1 and returns the factor for other sums in units.
func (f *fading) rescale() float64 {
	by := 1 / f.unit
	f.unit, f.total = 1, f.total*by
	return by
}
