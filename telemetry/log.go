package telemetry

import (
	"context"
	"log/slog"
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
	tell      slog.Handler // without anybody's attributes
	perSecond int

	mu       sync.Mutex
	messages map[message]*repeated
	due      time.Time // when the first of them may be told of; zero: none was left out
}

type message struct {
	level slog.Level
	text  string
}

// repeated is what was written and left out of one message.
type repeated struct {
	written []time.Time // the last ones, a ring
	oldest  int         // in written
	left    int         // out, since the last line that told of it
	since   time.Time   // the first of these was
}

// NewLogHandler returns a handler that passes at most perSecond lines of a message
// on to next in any second, by the records' own times. Less than two is taken for
// two: one of them may be the one that tells of others.
func NewLogHandler(next slog.Handler, perSecond int) *LogHandler {
	return &LogHandler{next: next, state: &repeats{tell: next, perSecond: max(2, perSecond), messages: map[message]*repeated{}}}
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
	lines, pass := h.state.take(message{r.Level, r.Message}, at)
	err := h.state.write(ctx, lines)
	if !pass {
		return err
	}
	if e := h.next.Handle(ctx, r); e != nil {
		return e
	}
	return err
}

// Run tells of what was left out when no further record does, until ctx ends, and
// then of all the rest.
func (h *LogHandler) Run(ctx context.Context) {
	tick := time.NewTicker(tellAfter)
	defer tick.Stop()
	last := context.WithoutCancel(ctx)
	for {
		// Where the log itself cannot be written there is nobody to tell.
		select {
		case at := <-tick.C:
			_ = h.state.write(ctx, h.state.tellDue(at, false))
		case <-ctx.Done():
			_ = h.state.write(last, h.state.tellDue(time.Now(), true))
			return
		}
	}
}

// take decides on a record: the lines that are due before it, and whether it is
// written itself.
func (s *repeats) take(m message, at time.Time) (lines []slog.Record, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines = s.dueLocked(at, false)
	one := s.messageLocked(m, at)
	if pass = one.free(at); pass {
		one.write(at)
		return lines, true
	}
	if one.left++; one.left == 1 {
		one.since = at
		if until := at.Add(tellAfter); s.due.IsZero() || until.Before(s.due) {
			s.due = until
		}
	}
	return lines, false
}

func (s *repeats) tellDue(at time.Time, all bool) []slog.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dueLocked(at, all)
}

// dueLocked returns the lines that tell of what was left out: of messages that have
// waited for them and have room for one, or of all.
func (s *repeats) dueLocked(at time.Time, all bool) (lines []slog.Record) {
	if s.due.IsZero() || !all && at.Before(s.due) {
		return nil
	}
	s.due = time.Time{}
	for m, one := range s.messages {
		if one.left == 0 {
			continue
		}
		if !all && (at.Sub(one.since) < tellAfter || !one.free(at)) {
			next := one.since.Add(tellAfter)
			if free := one.written[one.oldest].Add(time.Second); free.After(next) {
				next = free
			}
			if s.due.IsZero() || next.Before(s.due) {
				s.due = next
			}
			continue
		}
		line := slog.NewRecord(at, m.level, m.text, 0)
		line.AddAttrs(slog.Int("left_out", one.left))
		lines, one.left = append(lines, line), 0
		one.write(at)
	}
	slices.SortFunc(lines, func(a, b slog.Record) int {
		if a.Level != b.Level {
			return int(b.Level - a.Level)
		}
		if a.Message < b.Message {
			return -1
		}
		return 1
	})
	return lines
}

// messageLocked returns the count of a message. Those of too many share one.
func (s *repeats) messageLocked(m message, at time.Time) *repeated {
	if one, known := s.messages[m]; known {
		return one
	}
	if len(s.messages) >= maxMessages {
		for other, one := range s.messages {
			if one.left == 0 && one.idle(at) {
				delete(s.messages, other)
			}
		}
	}
	if len(s.messages) >= maxMessages {
		m = message{m.level, "messages of many kinds"}
		if one, known := s.messages[m]; known {
			return one
		}
	}
	one := &repeated{written: make([]time.Time, s.perSecond)}
	s.messages[m] = one
	return one
}

// write passes lines on. The first error counts.
func (s *repeats) write(ctx context.Context, lines []slog.Record) error {
	var first error
	for _, line := range lines {
		if !s.tell.Enabled(ctx, line.Level) {
			continue
		}
		if err := s.tell.Handle(ctx, line); first == nil {
			first = err
		}
	}
	return first
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
