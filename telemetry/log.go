package telemetry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxMessages bounds the messages that are counted apart. A program has a
	// hundred or two.
	maxMessages = 1000
	// tellAfter is how long repeats are counted before a line tells of them.
	tellAfter = time.Second
)

// LogHandler writes at most so many lines a second of one message and counts the
// others, so that an outage of everything fills no disk. Lines are of one message
// when level and text are the same; what stands beside the text does not count. In
// place of those left out stands one line with the level, the text and their number,
// left_out. Every record is either written or in one such number.
type LogHandler struct {
	next  slog.Handler
	state *repeats
}

// repeats is what a LogHandler and all that were derived from it count together.
type repeats struct {
	plain     slog.Handler // without the attributes of derived handlers
	perSecond int

	mu       sync.Mutex
	messages map[message]*repeated
	leftOut  map[*repeated]bool // those of which lines were left out
}

type message struct {
	level slog.Level
	text  string
}

// repeated is what was written and left out of one message.
type repeated struct {
	message
	written []time.Time // the last ones, a ring
	oldest  int         // in written
	left    int         // out, since the last line that told of it
	since   time.Time   // the first of these was
}

// NewLogHandler returns a handler that passes at most perSecond lines of a message
// on to next in any second, by the records' own times. Less than two is taken for
// two: one of them may be the one that tells of others.
func NewLogHandler(next slog.Handler, perSecond int) *LogHandler {
	return &LogHandler{next: next, state: &repeats{plain: next, perSecond: max(2, perSecond),
		messages: map[message]*repeated{}, leftOut: map[*repeated]bool{}}}
}

// Enabled reports whether next takes records of a level.
func (h *LogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs returns a handler that adds attrs to each record. Both count together.
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &LogHandler{next: h.next.WithAttrs(attrs), state: h.state}
}

// WithGroup returns a handler that puts attributes into a group. Both count together.
func (h *LogHandler) WithGroup(name string) slog.Handler {
	return &LogHandler{next: h.next.WithGroup(name), state: h.state}
}

// Handle passes a record on or counts it, and tells of those that were left out a
// second ago and longer.
func (h *LogHandler) Handle(ctx context.Context, r slog.Record) error {
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	err := h.state.tell(ctx, at, false)
	if h.state.take(message{r.Level, r.Message}, at) {
		err = errors.Join(err, h.next.Handle(ctx, r))
	}
	return err
}

// Run tells of what was left out when no further record does, until ctx ends, and
// then of all the rest.
func (h *LogHandler) Run(ctx context.Context) {
	tick := time.NewTicker(tellAfter)
	defer tick.Stop()
	for {
		// If the log cannot be written, its error cannot be logged either.
		select {
		case at := <-tick.C:
			_ = h.state.tell(ctx, at, false)
		case <-ctx.Done():
			_ = h.state.tell(context.WithoutCancel(ctx), time.Now(), true)
			return
		}
	}
}

// take decides whether a record is written itself, and counts it.
func (s *repeats) take(m message, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.messageLocked(m, at)
	if one.free(at) {
		one.write(at)
		return true
	}
	if one.left++; one.left == 1 {
		one.since, s.leftOut[one] = at, true
	}
	return false
}

// tell writes the lines that are due.
func (s *repeats) tell(ctx context.Context, at time.Time, all bool) error {
	var errs error
	for _, line := range s.due(at, all) {
		errs = errors.Join(errs, s.plain.Handle(ctx, line))
	}
	return errs
}

// due returns the lines that tell of what was left out: of messages that have
// waited for them and have room for one, or of all.
func (s *repeats) due(at time.Time, all bool) (lines []slog.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.leftOut {
		if !all && (at.Sub(one.since) < tellAfter || !one.free(at)) {
			continue
		}
		line := slog.NewRecord(at, one.level, one.text, 0)
		line.AddAttrs(slog.Int("left_out", one.left))
		lines, one.left = append(lines, line), 0
		one.write(at)
		delete(s.leftOut, one)
	}
	slices.SortFunc(lines, func(a, b slog.Record) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(a.Message, b.Message))
	})
	return lines
}

// messageLocked returns the count of a message. Those of too many share one.
func (s *repeats) messageLocked(m message, at time.Time) *repeated {
	one := s.messages[m]
	if one == nil && len(s.messages) >= maxMessages {
		maps.DeleteFunc(s.messages, func(_ message, other *repeated) bool { return other.left == 0 && other.idle(at) })
		if len(s.messages) >= maxMessages {
			m.text = "messages of many kinds"
			one = s.messages[m]
		}
	}
	if one == nil {
		one = &repeated{message: m, written: make([]time.Time, s.perSecond)}
		s.messages[m] = one
	}
	return one
}

// free reports whether another line may be written.
func (r *repeated) free(at time.Time) bool {
	oldest := r.written[r.oldest]
	return oldest.IsZero() || at.Sub(oldest) >= time.Second
}

// write notes that a line was.
func (r *repeated) write(at time.Time) {
	r.written[r.oldest] = at
	r.oldest = (r.oldest + 1) % len(r.written)
}

// idle reports whether nothing was written for a second.
func (r *repeated) idle(at time.Time) bool {
	newest := r.written[(r.oldest+len(r.written)-1)%len(r.written)]
	return at.Sub(newest) >= time.Second
}
