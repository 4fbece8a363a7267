package control

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"tierway/telemetry"
)

// errPanicked is the error of a step that panicked.
var errPanicked = errors.New("the gateway has a bug; its log has a line \"recovered from a panic\" with the stack")

// Recoverer keeps a panic from ending the process. It is safe for concurrent use.
type Recoverer struct {
	log     *slog.Logger
	metrics *telemetry.Metrics
	start   time.Time // steps run at multiples of their interval after it
}

// NewRecoverer returns a Recoverer that counts in m and logs to log.
func NewRecoverer(log *slog.Logger, m *telemetry.Metrics) *Recoverer {
	return &Recoverer{log: log, metrics: m, start: time.Now()}
}

// Try runs one step of background work and returns its error. A panic ends only the step. It is counted,
// logged with its stack and without values, and returned as an error, so that the caller's loop
// continues.
func (rec *Recoverer) Try(work string, step func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			rec.Panicked(p, slog.String("work", work))
			err = errPanicked
		}
	}()
	return step()
}

// Run is Try for a step without an error.
func (rec *Recoverer) Run(work string, step func()) {
	_ = rec.Try(work, func() error {
		step()
		return nil
	})
}

// Every runs a step at each interval until done is closed. Steps with equal intervals run together. An idle gateway
// then wakes once for all of them: a wake-up costs more than most steps.
func (rec *Recoverer) Every(interval time.Duration, done <-chan struct{}, work string, step func(now time.Time)) {
	tick := time.NewTimer(rec.untilTick(interval))
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			rec.Run(work, func() { step(now) })
			tick.Reset(rec.untilTick(interval))
		}
	}
}

// untilTick returns the time until the next multiple of the interval after start.
func (rec *Recoverer) untilTick(interval time.Duration) time.Duration {
	return interval - time.Since(rec.start)%interval
}

// Panicked counts and logs a panic that the caller has recovered. about names its work.
func (rec *Recoverer) Panicked(p any, about slog.Attr) {
	rec.metrics.Panics.Inc()
	rec.log.Error("recovered from a panic", about,
		slog.String("panic", panicText(p)), slog.String("stack", string(debug.Stack())))
}

// panicText describes a panic without its value, which may contain a prompt.
func panicText(p any) string {
	var err error
	if e, ok := p.(error); ok {
		err = e
	}
	var re interface{ RuntimeError() }
	if errors.As(err, &re) {
		return err.Error()
	}
	return "a value of the program"
}
