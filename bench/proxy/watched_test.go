package main

import (
	"math"
	"testing"
)

func TestAMissedFloorIsAnError(t *testing.T) {
	for _, c := range []struct {
		medians []float64
		want    string
	}{
		{[]float64{0.9, 1.2}, ""},
		{[]float64{0.72, 0.98}, "a: watched ÷ silent is 0.72 at 0.8 of its capacity; the floor is 0.90"},
		{[]float64{0.95, math.NaN()}, "b: watched ÷ silent is NaN at 0.8 of its capacity; the floor is 0.90"},
	} {
		var r watchedReport
		for i, median := range c.medians {
			r.Throughput = append(r.Throughput, watchedThroughput{Shape: string(rune('a' + i)), Ratio: spread{Median: median},
				Floor: watchedFloor})
		}
		got := ""
		if err := r.checkFloors(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.medians, got, c.want)
		}
	}
}
