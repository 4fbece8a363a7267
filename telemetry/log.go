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
	// maxMessages limits the messages that are counted separately. A program has one or two
	// hundred.
	maxMessages = 1000
	// summaryDelay is how long repeats are counted before a summary line reports them.
	summaryDelay = time.Second
)

// LogHandler limits the lines per second of each message, so that an outage of all workers
// does not fill the disk. A message is a level and a text; attributes do not matter. A summary
// line with the level, the text and their number (left_out) replaces suppressed lines. Every
// record is either written or counted in one summary.
type LogHandler struct {
	next  slog.Handler
	state *messageCounts
}

// messageCounts are the counts that a LogHandler shares with all handlers derived from it.
type messageCounts struct {
	plain     slog.Handler // without the attributes of derived handlers
	perSecond int

	summaryDue chan struct{} // signals that a line was suppressed

	mu         sync.Mutex
	messages   map[message]*messageCount
	suppressed map[*messageCount]bool // the messages with suppressed lines
}

type message struct {
	level slog.Level
	text  string
}

// messageCount counts the written and suppressed lines of one message.
type messageCount struct {
	message
	written    []time.Time // of the last lines, a ring
	oldest     int         // index of the oldest time in written
	suppressed int         // lines since the last summary
	since      time.Time   // time of the first of them
}

// NewLogHandler returns a handler that passes at most perSecond lines of a message to next in
// any second, by the times of the records. A perSecond below 2 counts as 2, because one line
// may be a summary.
func NewLogHandler(next slog.Handler, perSecond int) *LogHandler {
	return &LogHandler{next: next, state: &messageCounts{plain: next, perSecond: max(2, perSecond),
		summaryDue: make(chan struct{}, 1), messages: map[message]*messageCount{}, suppressed: map[*messageCount]bool{}}}
}

// Enabled reports whether next handles records of a level.
func (h *LogHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs returns a handler that adds attrs to each record. Both handlers share their counts.
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &LogHandler{next: h.next.WithAttrs(attrs), state: h.state}
}

// WithGroup returns a handler that puts attributes into a group. Both handlers share their
// counts.
func (h *LogHandler) WithGroup(name string) slog.Handler {
	return &LogHandler{next: h.next.WithGroup(name), state: h.state}
}

// Handle passes a record on or counts it. It also writes the summaries that are due.
func (h *LogHandler) Handle(ctx context.Context, r slog.Record) error {
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	err := h.state.writeSummaries(ctx, at, false)
	if h.state.admit(message{r.Level, r.Message}, at) {
		err = errors.Join(err, h.next.Handle(ctx, r))
	}
	return err
}

// Run writes summaries when no further record arrives, until ctx ends, and then all that remain.
func (h *LogHandler) Run(ctx context.Context) {
	tick := time.NewTicker(summaryDelay)
	defer tick.Stop()
	tick.Stop() // the first suppressed line starts it
	for {
		// If the log cannot be written, its error cannot be logged either.
		select {
		case <-h.state.summaryDue:
			tick.Reset(summaryDelay)
		case at := <-tick.C:
			_ = h.state.writeSummaries(ctx, at, false)
			if !h.state.hasSuppressed() {
				tick.Stop()
			}
		case <-ctx.Done():
			_ = h.state.writeSummaries(context.WithoutCancel(ctx), time.Now(), true)
			return
		}
	}
}

// admit reports whether a record may be written, and counts it.
func (c *messageCounts) admit(m message, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.messageLocked(m, at)
	if one.hasRoom(at) {
		one.addWritten(at)
		return true
	}
	if one.suppressed++; one.suppressed == 1 {
		one.since, c.suppressed[one] = at, true
		if len(c.suppressed) == 1 {
			select {
			case c.summaryDue <- struct{}{}:
			default: // a signal is already pending
			}
		}
	}
	return false
}

func (c *messageCounts) hasSuppressed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.suppressed) > 0
}

func (c *messageCounts) writeSummaries(ctx context.Context, at time.Time, all bool) error {
	var errs error
	for _, line := range c.dueSummaries(at, all) {
		errs = errors.Join(errs, c.plain.Handle(ctx, line))
	}
	return errs
}

// dueSummaries returns the summaries of messages that have waited for the delay and have room for
// a line, or of all messages.
func (c *messageCounts) dueSummaries(at time.Time, all bool) (lines []slog.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.suppressed {
		if !all && (at.Sub(one.since) < summaryDelay || !one.hasRoom(at)) {
			continue
		}
		line := slog.NewRecord(at, one.level, one.text, 0)
		line.AddAttrs(slog.Int("left_out", one.suppressed))
		lines, one.suppressed = append(lines, line), 0
		one.addWritten(at)
		delete(c.suppressed, one)
	}
	slices.SortFunc(lines, func(a, b slog.Record) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(a.Message, b.Message))
	})
	return lines
}

// messageLocked returns the count of a message. Beyond maxMessages, messages share one count.
func (c *messageCounts) messageLocked(m message, at time.Time) *messageCount {
	one := c.messages[m]
	if one == nil && len(c.messages) >= maxMessages {
		maps.DeleteFunc(c.messages, func(_ message, other *messageCount) bool {
			return other.suppressed == 0 && other.idle(at)
		})
		if len(c.messages) >= maxMessages {
			m.text = "further messages"
			one = c.messages[m]
		}
	}
	if one == nil {
		one = &messageCount{message: m, written: make([]time.Time, c.perSecond)}
		c.messages[m] = one
	}
	return one
}

// hasRoom reports whether another line may be written.
func (m *messageCount) hasRoom(at time.Time) bool {
	oldest := m.written[m.oldest]
	return oldest.IsZero() || at.Sub(oldest) >= time.Second
}

func (m *messageCount) addWritten(at time.Time) {
	m.written[m.oldest] = at
	m.oldest = (m.oldest + 1) % len(m.written)
}

// idle reports whether no line was written for a second.
func (m *messageCount) idle(at time.Time) bool {
	newest := m.written[(m.oldest+len(m.written)-1)%len(m.written)]
	return at.Sub(newest) >= time.Second
}
