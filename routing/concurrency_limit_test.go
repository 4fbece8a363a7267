package routing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// taught returns a limit that has learned an engine of 8,000 tokens/s from streams of 1,000 tokens
// at low levels, and the time after them.
func taught() (*concurrencyLimit, time.Time) {
	b, now := &concurrencyLimit{}, start
	for i := range 24 {
		now = now.Add(100 * time.Millisecond)
		b.learnStream(started(now, 1+i%4, 150*time.Millisecond))
	}
	b.window = limitWindow{}
	return b, now
}

// started is a stream of 1,000 tokens whose first event arrives now, after took.
func started(now time.Time, level int, took time.Duration) startedStream {
	return startedStream{bookedAt: now.Add(-took), at: now, level: level, prompt: 1000, own: 1000}
}

// feed gives the limit n streams at that level and at that interval. One request ends with each. It
// returns the time of the last one.
func feed(b *concurrencyLimit, now time.Time, n, level int, took, apart time.Duration) time.Time {
	for range n {
		now = now.Add(apart)
		b.ended++
		b.learnStream(started(now, level, took))
	}
	return now
}

const tick = 200 * time.Millisecond // between streams: 16 of them are three seconds

// limitMoves lists limits, the streams that they learn from, and the expected results.
var limitMoves = map[string]struct {
	limit int // before
	feed  func(b *concurrencyLimit, now time.Time)
	want  string
}{
	"late for long": {0, func(b *concurrencyLimit, now time.Time) { feed(b, now, 16, 40, 2*time.Second, tick) },
		"cut to 32"},
	// at most by three tenths
	"very late": {0, func(b *concurrencyLimit, now time.Time) { feed(b, now, 16, 40, time.Minute, tick) }, "cut to 28"},
	"hardly late": {0, func(b *concurrencyLimit, now time.Time) { feed(b, now, 16, 40, 700*time.Millisecond, tick) },
		"cut to 38"},
	"not late enough to matter": {0, func(b *concurrencyLimit, now time.Time) { // four times as long as it should
		feed(b, now, 99, 40, 600*time.Millisecond, tick)
	}, "stays 0"},
	"fifteen": {0, func(b *concurrencyLimit, now time.Time) { feed(b, now, 15, 40, 2*time.Second, tick) },
		"stays 0"},
	"in one moment": {0, func(b *concurrencyLimit, now time.Time) {
		feed(b, now, 60, 40, 2*time.Second, 30*time.Millisecond)
	}, "stays 0"},
	"a moment, and well again": {0, func(b *concurrencyLimit, now time.Time) {
		now = feed(b, now, 30, 40, 2*time.Second, 30*time.Millisecond)
		now = feed(b, now, 8, 40, 150*time.Millisecond, tick)
		feed(b, now, 15, 40, 2*time.Second, tick) // of a new window
	}, "stays 0"},
	"every other": {0, func(b *concurrencyLimit, now time.Time) {
		for range 100 {
			now = feed(b, now, 1, 40, 2*time.Second, tick)
			now = feed(b, now, 1, 40, 150*time.Millisecond, tick)
		}
	}, "stays 0"},
	"two of three": {0, func(b *concurrencyLimit, now time.Time) {
		for range 6 {
			now = feed(b, now, 2, 40, 2*time.Second, tick)
			now = feed(b, now, 1, 40, 150*time.Millisecond, tick)
		}
	}, "cut to 32"},
	"booked before it was moved": {50, func(b *concurrencyLimit, now time.Time) {
		b.moved = now.Add(time.Minute)
		feed(b, now, 99, 50, 2*time.Second, tick)
	}, "stays 50"},
	"late below the bound": {50, func(b *concurrencyLimit, now time.Time) {
		feed(b, now, 16, 20, 2*time.Second, tick)
	}, "cut to 14"},
	"late above it, from flood": {50, func(b *concurrencyLimit, now time.Time) {
		feed(b, now, 16, 90, 700*time.Millisecond, tick)
	}, "cut to 50"},
	"late where all is calm": {0, func(b *concurrencyLimit, now time.Time) { feed(b, now, 99, 4, time.Minute, tick) },
		"stays 0"},
	"never below the floor": {5, func(b *concurrencyLimit, now time.Time) { feed(b, now, 16, 5, 9*time.Second, tick) },
		"cut to 4"},
	"in the band, at it": {50, func(b *concurrencyLimit, now time.Time) {
		feed(b, now, 16, 48, 150*time.Millisecond, tick)
	}, "raised to 51"},
	"in the band, far from it": {50, func(b *concurrencyLimit, now time.Time) {
		feed(b, now, 999, 20, 150*time.Millisecond, tick)
	}, "stays 50"},
	"in the band, a few late": {50, func(b *concurrencyLimit, now time.Time) {
		now = feed(b, now, 4, 50, 2*time.Second, tick)
		feed(b, now, 12, 50, 150*time.Millisecond, tick)
	}, "raised to 51"},
	"raises double": {50, func(b *concurrencyLimit, now time.Time) {
		for range 4 {
			now = feed(b, now.Add(time.Second), 16, b.limit, 150*time.Millisecond, tick)
		}
	}, "raised to 65"},
	"raises are bounded": {8, func(b *concurrencyLimit, now time.Time) {
		for range 3 {
			now = feed(b, now.Add(time.Second), 16, b.limit, 150*time.Millisecond, tick)
		}
	}, "raised to 13"}, // 1, 2 and 11/4
}

func TestLimitIsCutByLateAndRaisedByInBandStreams(t *testing.T) {
	for name, c := range limitMoves {
		b, now := taught()
		b.limit = c.limit
		c.feed(b, now)
		got := fmt.Sprint("stays ", b.limit)
		switch {
		case b.limit > c.limit && c.limit > 0:
			got = fmt.Sprint("raised to ", b.limit)
		case b.limit != c.limit || b.step == 1:
			got = fmt.Sprint("cut to ", b.limit)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRaisesBeginSmallAfterACut(t *testing.T) {
	b, now := taught()
	b.limit = 50
	for range 4 {
		now = feed(b, now.Add(time.Second), 16, b.limit, 150*time.Millisecond, tick)
	}
	now = feed(b, now.Add(3*time.Second), 16, b.limit, 2*time.Second, tick)
	cut := b.limit
	feed(b, now.Add(3*time.Second), 16, b.limit, 150*time.Millisecond, tick)
	if cut >= 65 || b.limit != cut+1 {
		t.Errorf("cut to %d, then raised to %d", cut, b.limit)
	}
}

func TestNoStreamIsLateBeforeTheModelHasSamples(t *testing.T) {
	b := &concurrencyLimit{}
	if feed(b, start, 15, 40, time.Hour, time.Minute); b.limit != 0 {
		t.Errorf("the bound is %d", b.limit)
	}
	for name, s := range map[string]startedStream{
		"no time":         {bookedAt: start, at: start, level: 3},
		"before its time": {bookedAt: start, at: start.Add(-time.Hour), level: 3},
		"not in flight":   {bookedAt: start, at: start.Add(time.Hour)},
		"a thousand years": {bookedAt: start, at: start.Add(math.MaxInt64), level: math.MaxInt, prompt: maxBooked,
			own: maxBooked, others: maxBooked, assumedCached: maxBooked},
	} {
		b, now := taught()
		s.at, s.bookedAt = s.at.Add(now.Sub(start)), s.bookedAt.Add(now.Sub(start))
		for range 20 {
			b.learnStream(s)
		}
		if l, _ := b.unloaded.line(); b.limit != 0 || !(l.base >= 0 && l.base < 0.1 && l.token > 0 && l.token < 1e-3) {
			t.Errorf("%s: the bound is %d, the line %+v", name, b.limit, l)
		}
	}
}

// Streams that wait for the prefill of other prompts, or whose prompts may have been evicted from the
// cache, are excused by that time only.
func TestPrefillAheadAndCachedPromptsExcuseLateStreams(t *testing.T) {
	for name, c := range map[string]struct {
		s    startedStream
		took time.Duration
		late bool
	}{
		"its own long prompt":   {startedStream{prompt: 32000, own: 32000}, 7 * time.Second, false},
		"twice as long as that": {startedStream{prompt: 32000, own: 32000}, 9 * time.Second, true},
		"its own, remembered":   {startedStream{prompt: 32000, own: 10}, 7 * time.Second, false},
		"others'": {startedStream{prompt: 100, own: 100, others: 12000}, 2900 * time.Millisecond,
			false},
		"others', remembered": {startedStream{prompt: 100, own: 100, assumedCached: 12000},
			2900 * time.Millisecond, false},
		"others', a long one": {startedStream{prompt: 100, own: 100, others: 60000}, 9 * time.Second, false},
		"longer than for that": {startedStream{prompt: 100, own: 100, others: 60000}, 9900 * time.Millisecond,
			true},
		"others', as far as they excuse": {startedStream{prompt: 100, own: 100, others: 1 << 30}, 14900 * time.Millisecond,
			false},
		"others', beyond what they excuse": {startedStream{prompt: 100, own: 100, others: 1 << 30}, 15100 * time.Millisecond,
			true},
		"nothing":           {startedStream{}, 500 * time.Millisecond, false},
		"nothing, and late": {startedStream{}, 600 * time.Millisecond, true},
	} {
		b, now := taught()
		for range 16 {
			now = now.Add(time.Second)
			c.s.bookedAt, c.s.at, c.s.level = now.Add(-c.took), now, 500
			b.learnStream(c.s)
		}
		if late := b.limit > 0; late != c.late {
			t.Errorf("%s: late is %v (bound %d)", name, late, b.limit)
		}
	}
}

// After any streams the limit is 0 or at least its floor, changes by at most its steps, and the line
// stays finite.
func TestLimitStaysWithinFloorAndSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := taught()
		for range rapid.IntRange(1, 40).Draw(t, "runs") {
			level := rapid.IntRange(1, 2000).Draw(t, "level")
			took := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "took"))
			apart := time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "apart"))
			s := startedStream{level: level, prompt: rapid.Int64Range(0, maxBooked).Draw(t, "prompt"),
				others: rapid.Int64Range(0, maxBooked).Draw(t, "others")}
			s.own = rapid.Int64Range(0, s.prompt).Draw(t, "own")
			for range rapid.IntRange(1, 50).Draw(t, "streams") {
				was := b.limit
				now = now.Add(apart)
				s.bookedAt, s.at = now.Add(-took), now
				b.learnStream(s)
				if b.limit != was && (b.limit < limitFloor || was > 0 && b.limit > was+max(1, was/4)) {
					t.Fatalf("from %d to %d", was, b.limit)
				}
				if l, _ := b.unloaded.line(); !(l.base >= 0 && l.token > 0) || math.IsInf(l.base+l.token, 0) {
					t.Fatalf("the line is %+v", l)
				}
			}
		}
	})
}
