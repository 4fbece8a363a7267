package control

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tierway/telemetry"
)

// TestStepsOfOneIntervalRunTogether, whenever their loops begin and however long a step takes.
func TestStepsOfOneIntervalRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		recoverer := NewRecoverer(slog.New(slog.DiscardHandler), telemetry.New("test"))
		done := make(chan struct{})
		var early, late []time.Duration
		go recoverer.Every(time.Second, done, "an early loop", func(now time.Time) {
			early = append(early, now.Sub(start))
			time.Sleep(100 * time.Millisecond)
		})
		time.Sleep(2300 * time.Millisecond)
		go recoverer.Every(time.Second, done, "a late loop", func(now time.Time) {
			late = append(late, now.Sub(start))
			if len(late) == 1 {
				time.Sleep(1500 * time.Millisecond) // it misses a step
			}
		})
		time.Sleep(4 * time.Second)
		close(done)
		synctest.Wait()
		if want := []time.Duration{1e9, 2e9, 3e9, 4e9, 5e9, 6e9}; !slices.Equal(early, want) {
			t.Errorf("the early loop has run after %v", early)
		}
		if want := []time.Duration{3e9, 5e9, 6e9}; !slices.Equal(late, want) {
			t.Errorf("the late loop has run after %v", late)
		}
	})
}
