package prefix

import "time"

const (
	// The sketch has 8 counters per worker for 64 workers: it overcounts there by at most
	// about an eighth of a fair share.
	sketchSets, sketchWays = 64, 8
)

// sketch counts the traffic of the heaviest keys in fixed memory: Space-Saving (Metwally,
// Agrawal and El Abbadi) in sets. A key without a counter takes over its set's lowest one,
// whose count is the most by which the key is overcounted.
type sketch [sketchSets][sketchWays]counter

// counter is the traffic of one key.
type counter struct {
	key   uint64
	count float64
	over  float64   // at most so much of count is other keys'
	above time.Time // since when the key has too much for one worker; else zero
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

// fading is a sum of requests in which older ones count for less. It gives newer ones more
// weight instead, which is the same for shares and changes no other sum until a rescale.
type fading struct {
	last        time.Time
	unit, total float64 // the weight of the last request, and of all
}

// add counts one request. It fades to 1/e within the window, but not before `least` came
// after it.
func (f *fading) add(now time.Time, window time.Duration, least float64) {
	if f.unit == 0 {
		f.last, f.unit, f.total = now, 1, 1
		return
	}
	if since := now.Sub(f.last); since > 0 {
		f.last = now
		// 1-x is e^-x where it is taken: x is at most 1/least.
		f.unit /= max(1-since.Seconds()/window.Seconds(), 1-1/least)
	}
	f.total += f.unit
}

// rescale makes the unit 1 again and returns the factor for other sums in units.
func (f *fading) rescale() float64 {
	by := 1 / f.unit
	f.unit, f.total = 1, f.total*by
	return by
}
