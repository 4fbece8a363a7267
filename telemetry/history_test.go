package telemetry

import (
	"maps"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

func at(second int64) time.Time { return time.Unix(1_800_000_000+second, 0) }

// valuesOf returns the values of the only series of a view.
func valuesOf(t interface{ Fatalf(string, ...any) }, v HistoryView) []float32 {
	if len(v.Series) != 1 {
		t.Fatalf("%d series: %+v", len(v.Series), v.Series)
	}
	return v.Series[0].Values
}

// TestRatesAddUpToTheGrowthOfTheCounter in every period, whatever the growth of each second.
func TestRatesAddUpToTheGrowthOfTheCounter(t *testing.T) {
	begin := 120 - at(0).Unix()%120 // all steps begin here
	rapid.Check(t, func(t *rapid.T) {
		h := NewHistory()
		total, grown := 0.0, 0.0
		for second := begin - 1; second <= begin+240; second++ {
			h.Record(at(second), []Sample{{Name: "n", Value: total}})
			if second < begin+239 { // its growth is in the last step
				n := float64(rapid.IntRange(0, 1000).Draw(t, "growth"))
				total, grown = total+n, grown+n
			}
		}
		for _, length := range []time.Duration{5 * time.Minute, time.Hour, 24 * time.Hour} {
			v, sum := h.View(length), 0.0
			for _, x := range valuesOf(t, v) {
				if !math.IsNaN(float64(x)) {
					sum += float64(x) * float64(v.Step)
				}
			}
			if math.Abs(sum-grown) > 1e-5*grown {
				t.Fatalf("%v: the rates add up to %g, the counter grew by %g", length, sum, grown)
			}
		}
	})
}

// TestAStepMergesItsSamples by the kind of the series.
func TestAStepMergesItsSamples(t *testing.T) {
	begin := int64(1_800_000_000 % 10) // the steps begin with full tens
	for _, c := range []struct {
		kind SampleKind
		of   func(i int64) Sample
		want float32
	}{
		{SampleRate, func(i int64) Sample { return Sample{Value: float64(3 * i)} }, 3},
		{SampleShare, func(i int64) Sample { return Sample{Value: float64(i), Whole: float64(4 * i)} }, 0.25},
		{SampleMaximum, func(i int64) Sample { return Sample{Value: float64((i % 10) * (9 - i%10))} }, 20},
		{SampleLast, func(i int64) Sample { return Sample{Value: float64(i % 10)} }, 9},
		{SampleQuantile, func(i int64) Sample {
			return Sample{Value: 0.5, Bounds: []float64{1, 2}, Buckets: []uint64{0, uint64(2 * i), 0}}
		}, 1.5},
	} {
		h := NewHistory()
		for i := range int64(31) {
			s := c.of(i)
			s.Name, s.Kind = "x", c.kind
			h.Record(at(i-begin), []Sample{s})
		}
		values := valuesOf(t, h.View(time.Hour))
		if got := values[len(values)-1]; got != c.want {
			t.Errorf("kind %d: the last step is %g, want %g", c.kind, got, c.want)
		}
	}
}

// TestAPauseIsAGap, not a zero and not a rate over the pause.
func TestAPauseIsAGap(t *testing.T) {
	h := NewHistory()
	begin := -at(0).Unix() % 5 // the beginning of a step
	record := func(from, to int64) {
		for i := from; i < to; i++ {
			h.Record(at(begin+i), []Sample{{Name: "n", Value: float64(2 * i)}})
		}
	}
	record(0, 10)
	record(100, 111)
	v := h.View(5 * time.Minute)
	known := map[int64]float32{}
	for i, x := range valuesOf(t, v) {
		if !math.IsNaN(float64(x)) {
			known[v.Times[i]-at(begin).Unix()] = x
		}
	}
	want := map[int64]float32{0: 2, 5: 2, 100: 2, 105: 2}
	if !maps.Equal(known, want) {
		t.Errorf("values %v, want %v", known, want)
	}
}

// TestACounterThatBeginsAgainCountsFromZero, as after the return of a worker.
func TestACounterThatBeginsAgainCountsFromZero(t *testing.T) {
	h := NewHistory()
	for i, value := range []float64{100, 150, 20, 45, 45} {
		h.Record(at(int64(5*i)), []Sample{{Name: "n", Value: value}})
	}
	values := valuesOf(t, h.View(5*time.Minute))
	last := values[len(values)-3:]
	if last[0] != 10 || last[1] != 4 || last[2] != 5 {
		t.Errorf("the rates are %v, want 10, 4 and 5", last)
	}
}

// TestSeriesEndAndAreBounded.
func TestSeriesEndAndAreBounded(t *testing.T) {
	h := NewHistory()
	many := make([]Sample, maxHistorySeries+50)
	for i := range many {
		many[i] = Sample{Name: "g", Labels: []string{"worker", string(rune('a' + i))}, Kind: SampleLast, Value: 1}
	}
	h.Record(at(0), many)
	h.Record(at(5), many)
	if v := h.View(time.Minute); len(v.Series) != maxHistorySeries || v.Omitted != 50 {
		t.Errorf("%d series, %d omitted", len(v.Series), v.Omitted)
	}
	h.Record(at(90_000), []Sample{{Name: "other", Kind: SampleLast}})
	if len(h.order) != 1 || len(h.series) != 1 {
		t.Errorf("%d series are left after a day", len(h.order))
	}
}

// TestAClockThatIsSetBackBeginsAgain.
func TestAClockThatIsSetBackBeginsAgain(t *testing.T) {
	h := NewHistory()
	h.Record(at(100), []Sample{{Name: "n", Kind: SampleLast, Value: 1}})
	h.Record(at(35), []Sample{{Name: "n", Kind: SampleLast, Value: 2}})
	h.Record(at(40), []Sample{{Name: "n", Kind: SampleLast, Value: 3}})
	values := valuesOf(t, h.View(time.Minute))
	if got := values[len(values)-1]; got != 2 {
		t.Errorf("the last value is %g, want 2", got)
	}
}

// TestAClockThatIsSetBackBrieflyKeepsTheHistory, and no rate contains the repeated time.
func TestAClockThatIsSetBackBrieflyKeepsTheHistory(t *testing.T) {
	for _, back := range []int64{2, 30, historySetBack} {
		h, total := NewHistory(), 0.0
		record := func(second int64) {
			total += 3
			h.Record(at(second), []Sample{{Name: "n", Value: total}})
		}
		for second := int64(0); second < 100; second++ {
			record(second)
		}
		for second := 99 - back; second < 120; second++ {
			record(second)
		}
		known := 0
		for _, x := range valuesOf(t, h.View(5*time.Minute)) {
			if !math.IsNaN(float64(x)) {
				if known++; x != 3 {
					t.Errorf("after %d s the rate is %g, want 3", back, x)
				}
			}
		}
		if known < 23 {
			t.Errorf("after %d s only %d steps are left", back, known)
		}
	}
}

// TestACounterThatBeginsLaterBeganAtZero: its first growth counts, but not that before the history.
func TestACounterThatBeginsLaterBeganAtZero(t *testing.T) {
	h := NewHistory()
	begin := -at(0).Unix()%5 + 5 // the beginning of a step
	for i := int64(0); i <= 10; i++ {
		samples := []Sample{{Name: "old", Value: 1000}, {Name: "gauge", Kind: SampleLast, Value: 7}}
		if i >= 2 {
			samples = append(samples, Sample{Name: "new", Value: 20},
				Sample{Name: "times", Kind: SampleQuantile, Value: 0.5, Bounds: []float64{1, 2}, Buckets: []uint64{0, 4, 0}})
		}
		h.Record(at(begin+i), samples)
	}
	v := h.View(5 * time.Minute)
	first := map[string]float32{}
	for _, s := range v.Series {
		first[s.Name] = s.Values[len(s.Values)-2]
	}
	// The step from 0 to 5 s has the samples of the seconds 1 to 4; new has grown within 3 of its seconds.
	if want := map[string]float32{"old": 0, "gauge": 7, "new": 20.0 / 3, "times": 1.5}; !maps.Equal(first, want) {
		t.Errorf("the values are %v, want %v", first, want)
	}
}

// BenchmarkHistoryRecord records the series of 3 tiers with 16 workers.
func BenchmarkHistoryRecord(b *testing.B) {
	samples := make([]Sample, 120)
	for i := range samples {
		samples[i] = Sample{Name: "x", Labels: []string{"worker", string(rune('a' + i))}, Kind: SampleKind(i % 5),
			Bounds: firstSeconds, Buckets: make([]uint64, len(firstSeconds)+1)}
	}
	h, second := NewHistory(), int64(0)
	b.ReportAllocs()
	for b.Loop() {
		second++
		h.Record(at(second), samples)
	}
}
