package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// pipe is a reader's end that a test can stall or break.
type pipe struct {
	mu     sync.Mutex
	got    bytes.Buffer
	writes int
	stall  chan struct{} // nil: it takes everything at once
	broken error
	takes  int // bytes that a broken pipe takes first
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	stall := p.stall
	p.mu.Unlock()
	if stall != nil {
		<-stall
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes++
	if p.broken != nil {
		n := min(p.takes, len(b))
		p.got.Write(b[:n])
		return n, p.broken
	}
	return p.got.Write(b)
}

func (p *pipe) set(stall chan struct{}, broken error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall, p.broken = stall, broken
}

func (p *pipe) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

func (p *pipe) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got.String()
}

// lines are the numbered lines from one to another, exclusively.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %06d\n", i)
	}
	return b.String()
}

const lineBytes = len("line 000000\n")

// write writes numbered lines one by one.
func write(t *testing.T, w *Writer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if n, err := io.WriteString(w, lines(i, i+1)); n != lineBytes || err != nil {
			t.Fatalf("line %d: %d, %v", i, n, err)
		}
	}
}

func TestStalledReaderDelaysNoWriteAndLosesOnlyOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := make(chan struct{})
		to := &pipe{stall: stall}
		w := NewWriter(WriterConfig{To: to, Max: 10 * lineBytes})
		began := time.Now()
		write(t, w, 0, 1)
		synctest.Wait() // the first line is being written
		write(t, w, 1, 30)
		if took := time.Since(began); took != 0 {
			t.Errorf("writing took %v", took)
		}
		if n := w.Dropped(); n != 19 {
			t.Errorf("%d lines were dropped, want 19 of 29", n)
		}
		to.set(nil, nil)
		close(stall)
		synctest.Wait()
		write(t, w, 30, 32)
		if !w.Close(time.Second) || to.text() != lines(0, 11)+lines(30, 32) {
			t.Errorf("it wrote %q", to.text())
		}
	})
}

func TestCloseIsBoundedWhileTheReaderStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := make(chan struct{})
		w := NewWriter(WriterConfig{To: &pipe{stall: stall}, OnLoss: func(int64, bool) {}})
		write(t, w, 0, 5)
		began := time.Now()
		if w.Close(3*time.Second) || time.Since(began) != 3*time.Second {
			t.Errorf("it took %v", time.Since(began))
		}
		write(t, w, 5, 6)
		if w.Dropped() != 1 {
			t.Errorf("%d lines are counted after the end", w.Dropped())
		}
		close(stall)
	})
}

func TestCloseWritesRemainingLinesAtOnceAndIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &pipe{}
		w := NewWriter(WriterConfig{To: to, Delay: time.Hour})
		write(t, w, 0, 5)
		began := time.Now()
		for range 2 {
			if !w.Close(time.Second) || to.text() != lines(0, 5) || time.Since(began) != 0 {
				t.Errorf("after %v it wrote %q", time.Since(began), to.text())
			}
		}
	})
}

// TestLinesWithinTheDelayShareAWrite, unless there are many; without a delay a line
// goes out at once.
func TestLinesWithinTheDelayShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			delay         time.Duration
			lines, writes int
			after         time.Duration
		}{
			{200 * time.Millisecond, 50, 1, 200 * time.Millisecond},
			{200 * time.Millisecond, flushAt/lineBytes + 1, 1, 0},
			{0, 1, 1, 0},
		} {
			to := &pipe{}
			w := NewWriter(WriterConfig{To: to, Delay: c.delay})
			write(t, w, 0, c.lines)
			synctest.Wait()
			if c.after > 0 {
				if to.count() != 0 {
					t.Errorf("%+v: %d writes at once", c, to.count())
				}
				time.Sleep(c.after)
				synctest.Wait()
			}
			if to.count() != c.writes || strings.Count(to.text(), "\n") != c.lines {
				t.Errorf("%+v: %d writes of %d lines", c, to.count(), strings.Count(to.text(), "\n"))
			}
			w.Close(time.Second)
		}
	})
}

// TestFailedWriteLosesOnlyItsOwnLines: a full disk takes a part
// of a line.
func TestFailedWriteLosesOnlyItsOwnLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &pipe{broken: errors.New("no space left"), takes: lineBytes + 4}
		w := NewWriter(WriterConfig{To: to, Delay: time.Millisecond})
		write(t, w, 0, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		if w.Dropped() != 2 {
			t.Errorf("%d lines were dropped, want 2", w.Dropped())
		}
		to.set(nil, nil)
		write(t, w, 3, 5)
		if !w.Close(time.Second) || to.text() != lines(0, 1)+"line\n"+lines(3, 5) {
			t.Errorf("it wrote %q", to.text())
		}
	})
}

// TestLossIsReportedAtItsStartAndEnd: the report may be a line of the
// same Writer, and a reader that never comes back causes no second one.
func TestLossIsReportedAtItsStartAndEnd(t *testing.T) {
	type report struct {
		at   time.Duration
		lost int64
		over bool
	}
	for name, c := range map[string]struct {
		broken error
		want   []report
	}{
		"a reader that stalls for 9.5 s": {nil, []report{{0, 1, false}, {10 * time.Second, 6, true}}},
		"a disk that is full for 7.5 s":  {errors.New("no space left"), []report{{0, 1, false}, {8 * time.Second, 11, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stall := make(chan struct{})
				to := &pipe{stall: stall, broken: c.broken}
				if c.broken != nil {
					to.stall = nil
				}
				began := time.Now()
				var mu sync.Mutex
				var reports []report
				var w *Writer
				w = NewWriter(WriterConfig{To: to, Max: 10 * lineBytes, OnLoss: func(lost int64, over bool) {
					mu.Lock()
					reports = append(reports, report{time.Since(began), lost, over})
					mu.Unlock()
					_, _ = io.WriteString(w, "loss 000000\n")
				}})
				if c.broken == nil {
					write(t, w, 0, 1)
					synctest.Wait()
					write(t, w, 1, 12) // the last one is dropped, and reported before others are
					synctest.Wait()
					write(t, w, 12, 16)
					time.Sleep(9500 * time.Millisecond)
				} else {
					for i := range 10 {
						write(t, w, i, i+1)
						time.Sleep(700 * time.Millisecond)
					}
					time.Sleep(500 * time.Millisecond)
				}
				to.set(nil, nil)
				if c.broken == nil {
					close(stall)
				}
				synctest.Wait()
				write(t, w, 20, 21)
				time.Sleep(10 * time.Second)
				w.Close(time.Second)
				if !slices.Equal(reports, c.want) {
					t.Errorf("the reports are %v, want %v", reports, c.want)
				}
			})
		})
	}
}

// TestEveryLineIsWrittenOrCounted whatever the reader does, in order and whole.
func TestEveryLineIsWrittenOrCounted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			to := &pipe{}
			w := NewWriter(WriterConfig{To: to, Max: rapid.IntRange(1, 40).Draw(rt, "lines that may wait") * lineBytes,
				Delay: time.Millisecond})
			written := 0
			var stall chan struct{}
			for _, what := range rapid.SliceOfN(rapid.IntRange(0, 3), 1, 40).Draw(rt, "what") {
				switch {
				case what == 0 && stall == nil:
					stall = make(chan struct{})
					to.set(stall, nil)
				case what == 1 && stall != nil:
					to.set(nil, nil)
					close(stall)
					stall = nil
				case what == 2:
					time.Sleep(time.Millisecond)
				default:
					write(t, w, written, written+5)
					written += 5
				}
			}
			if stall != nil {
				to.set(nil, nil)
				close(stall)
			}
			w.Close(time.Second)
			last := ""
			for line := range strings.Lines(to.text()) {
				if len(line) != lineBytes || line <= last {
					rt.Fatalf("%q follows %q", line, last)
				}
				last = line
			}
			if came := strings.Count(to.text(), "\n"); came+int(w.Dropped()) != written {
				rt.Fatalf("%d lines came and %d were dropped of %d", came, w.Dropped(), written)
			}
		})
	})
}

func TestManyProducersLoseNothingThatFits(t *testing.T) {
	to := &pipe{}
	w := NewWriter(WriterConfig{To: to})
	var producers sync.WaitGroup
	for range 8 {
		producers.Go(func() {
			for range 1000 {
				_, _ = io.WriteString(w, "line of a producer\n")
			}
		})
	}
	producers.Wait()
	if !w.Close(10*time.Second) || to.text() != strings.Repeat("line of a producer\n", 8000) || w.Dropped() != 0 {
		t.Errorf("%d lines came, %d were dropped", strings.Count(to.text(), "\n"), w.Dropped())
	}
}

func TestWriteAllocatesNothing(t *testing.T) {
	w := NewWriter(WriterConfig{To: io.Discard})
	defer w.Close(time.Second)
	line := []byte(lines(0, 50))
	for range 1000 { // both buffers grow
		_, _ = w.Write(line)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = w.Write(line) }); n > 0 {
		t.Errorf("a line allocates %v times", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	w := NewWriter(WriterConfig{To: io.Discard, Delay: 200 * time.Millisecond})
	defer w.Close(time.Second)
	line := []byte(strings.Repeat("x", 499) + "\n")
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			_, _ = w.Write(line)
		}
	})
	b.ReportMetric(float64(w.Dropped())/float64(b.N), "dropped/op")
}
