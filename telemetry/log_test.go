package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// noon is the time of the first record of these tests.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// page is a handler that keeps its records, one line per record.
type page struct {
	mu    sync.Mutex
	lines []string
	all   []slog.Record
	with  string
	to    *page
	fails error
}

func (p *page) Enabled(context.Context, slog.Level) bool { return true }

func (p *page) Handle(_ context.Context, r slog.Record) error {
	to := p
	if p.to != nil {
		to = p.to
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	line := fmt.Sprintf("%v %v %s%s", r.Time.Sub(noon), r.Level, r.Message, p.with)
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	to.lines, to.all = append(to.lines, line), append(to.all, r)
	return p.fails
}

func (p *page) WithAttrs(attrs []slog.Attr) slog.Handler { return p.derived(fmt.Sprint(" ", attrs)) }

func (p *page) WithGroup(name string) slog.Handler { return p.derived(" " + name + ":") }

func (p *page) derived(with string) *page {
	to := p
	if p.to != nil {
		to = p.to
	}
	return &page{to: to, with: p.with + with}
}

// say passes one record to a handler.
func say(t testing.TB, h slog.Handler, after time.Duration, level slog.Level, text string) {
	t.Helper()
	if err := h.Handle(t.Context(), slog.NewRecord(noon.Add(after), level, text, 0)); err != nil {
		t.Fatal(err)
	}
}

// OB-08: in a total outage, ten lines per second of a message are written, and the rest is counted.
func TestTotalOutageWritesTenLinesPerSecond(t *testing.T) {
	p := &page{}
	h := NewLogHandler(p, 10)
	const seconds, each = 5, 1000
	for i := range seconds * each {
		say(t, h, time.Duration(i)*time.Millisecond, slog.LevelError, "a worker is away")
	}
	say(t, h, seconds*time.Second+500*time.Millisecond, slog.LevelInfo, "all is well")
	perSecond, left := map[int]int{}, 0
	for _, r := range p.all {
		if r.Message == "a worker is away" {
			perSecond[int(r.Time.Sub(noon)/time.Second)]++
		}
		r.Attrs(func(a slog.Attr) bool { left += int(a.Value.Int64()) - 1; return true })
	}
	for second, lines := range perSecond {
		if lines > 10 {
			t.Errorf("%d lines in second %d", lines, second)
		}
	}
	if got := len(p.all) + left; got != seconds*each+1 {
		t.Errorf("%d of %d records were written or counted", got, seconds*each+1)
	}
}

func TestOneLineSummarizesRepeats(t *testing.T) {
	p := &page{}
	h := NewLogHandler(p, 2)
	derived := h.WithAttrs([]slog.Attr{slog.Int("n", 1)}).WithGroup("g")
	say(t, h, 0, slog.LevelWarn, "a")
	say(t, derived, 100*time.Millisecond, slog.LevelWarn, "a") // counts with the first
	say(t, derived, 200*time.Millisecond, slog.LevelWarn, "a")
	say(t, h, 300*time.Millisecond, slog.LevelWarn, "a")
	say(t, h, 400*time.Millisecond, slog.LevelError, "a") // another level is another message
	say(t, h, 500*time.Millisecond, slog.LevelWarn, "b")
	say(t, h, 1199*time.Millisecond, slog.LevelWarn, "a") // there is room, and no summary is due yet
	say(t, h, 1200*time.Millisecond, slog.LevelWarn, "a") // the summary of two takes its place
	say(t, h, 2300*time.Millisecond, slog.LevelWarn, "c") // another message triggers the last summary
	want := []string{"0s WARN a", "100ms WARN a [n=1] g:", "400ms ERROR a", "500ms WARN b", "1.199s WARN a",
		"1.2s WARN a left_out=2", "2.3s WARN a left_out=1", "2.3s WARN c"}
	if diff := cmp.Diff(want, p.lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLinesPerSecondAreLimitedAndAllAreCounted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &page{}
		most := rapid.IntRange(2, 5).Draw(rt, "most")
		h := NewLogHandler(p, most)
		at := time.Duration(0)
		said := rapid.IntRange(1, 200).Draw(rt, "records")
		for range said {
			at += time.Duration(rapid.SampledFrom([]int{0, 1, 50, 333, 999, 1000, 2500}).Draw(rt, "ms")) * time.Millisecond
			say(t, h, at, rapid.SampledFrom([]slog.Level{slog.LevelInfo, slog.LevelError}).Draw(rt, "level"),
				rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "text"))
		}
		times, written := map[message][]time.Time{}, 0
		for _, r := range p.all {
			m := message{r.Level, r.Message}
			times[m] = append(times[m], r.Time)
			written++
			r.Attrs(func(a slog.Attr) bool { written += int(a.Value.Int64()) - 1; return true })
		}
		for m, all := range times {
			for i := most; i < len(all); i++ {
				if all[i].Sub(all[i-most]) < time.Second {
					rt.Fatalf("%d lines of %v in less than a second", most+1, m)
				}
			}
		}
		for _, one := range h.state.messages {
			written += one.suppressed
		}
		if written != said {
			rt.Fatalf("%d of %d records were written or counted", written, said)
		}
	})
}

func TestCountedMessagesAreBounded(t *testing.T) {
	p := &page{}
	h := NewLogHandler(p, 2)
	for i := range 3 * maxMessages {
		say(t, h, 0, slog.LevelError, fmt.Sprint("message ", i))
	}
	if got := len(h.state.messages); got != maxMessages+1 {
		t.Errorf("%d messages are counted", got)
	}
	say(t, h, time.Second, slog.LevelInfo, "later")
	if got, want := p.lines[len(p.lines)-2], fmt.Sprintf("1s ERROR further messages left_out=%d", 2*maxMessages-2); got !=
		want {
		t.Errorf("%q", got)
	}
	say(t, h, 3*time.Second, slog.LevelInfo, "much later") // the first thousand were removed
	if got := len(h.state.messages); got > 3 || p.lines[len(p.lines)-1] != "3s INFO much later" {
		t.Errorf("%d messages are counted", got)
	}
}

func TestSummariesAreWrittenWhenIdleAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{}
		h := NewLogHandler(p, 2)
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { h.Run(ctx) })
		log := slog.New(h)
		told := func() (left []int64) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, r := range p.all {
				r.Attrs(func(a slog.Attr) bool { left = append(left, a.Value.Int64()); return true })
			}
			return left
		}
		for range 5 {
			log.Error("away")
		}
		time.Sleep(2500 * time.Millisecond)
		if diff := cmp.Diff([]int64{3}, told()); diff != "" {
			t.Error(diff)
		}
		for range 9 {
			log.Error("away")
		}
		stop()
		ended.Wait()
		if diff := cmp.Diff([]int64{3, 7}, told()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestLogHandlerMeetsTheSlogContract(t *testing.T) {
	var out bytes.Buffer
	h := NewLogHandler(slog.NewJSONHandler(&out, nil), 1000)
	err := slogtest.TestHandler(h, func() []map[string]any {
		var all []map[string]any
		for line := range bytes.Lines(out.Bytes()) {
			var one map[string]any
			if err := json.Unmarshal(line, &one); err != nil {
				t.Fatal(err)
			}
			all = append(all, one)
		}
		return all
	})
	if err != nil {
		t.Error(err)
	}
	if h.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("it accepts a level that the next handler does not")
	}
	full := errors.New("no space left on device")
	if err := NewLogHandler(&page{fails: full}, 2).Handle(t.Context(),
		slog.NewRecord(noon, slog.LevelInfo, "a", 0)); !errors.Is(err, full) {
		t.Error(err)
	}
}

func TestConcurrentLogging(t *testing.T) {
	p := &page{}
	h := NewLogHandler(p, 10)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 500 {
				say(t, h, time.Duration(i)*time.Millisecond, slog.LevelError, "away")
			}
		})
	}
	all.Wait()
	say(t, h, 10*time.Second, slog.LevelError, "away")
	if len(p.lines) != 12 || p.lines[10] != "10s ERROR away left_out=3990" {
		t.Errorf("%d lines: %v", len(p.lines), p.lines)
	}
}
