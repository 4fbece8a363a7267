package decisions

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// sse is one server-sent event as a browser sees it, or a comment.
type sse struct {
	id    int64
	event string
	data  string
}

// eventsOf parses events. An event without data is returned too, with its id.
func eventsOf(t interface {
	Helper()
	Fatalf(string, ...any)
}, text string) (out []sse) {
	t.Helper()
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		var e sse
		for line := range strings.SplitSeq(block, "\n") {
			switch field, value, _ := strings.Cut(line, ": "); field {
			case "id":
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					t.Fatalf("%q: %v", block, err)
				}
				e.id = n
			case "event":
				e.event = value
			case "data":
				e.data = value
			case "retry", "": // a comment begins with the colon
				e.event = strings.TrimPrefix(line, ": ")
			default:
				t.Fatalf("%q has the field %q", block, field)
			}
		}
		if block != "" {
			out = append(out, e)
		}
	}
	return out
}

// newFollower returns a follower that writes request ids as its events.
func newFollower(l *Log, matches func(*Decision) bool) *Follower {
	return &Follower{Log: l, Matches: matches, Event: func(n Entry) any { return n.Decision.RequestID }}
}

// addMany adds records named by their numbers from the first one of the process.
func addMany(l *Log, n int) {
	for range n {
		has := l.Span()
		l.Add(record(strconv.FormatInt(has.Next-has.First, 10)))
	}
}

// inWords returns the events without ids, as "name data".
func inWords(events []sse) (out []string) {
	for _, e := range events {
		out = append(out, strings.TrimSpace(e.event+" "+e.data))
	}
	return out
}

func TestStreamResumesAtTheReadersPosition(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, tt := range []struct {
		name  string
		keep  int
		after func(first int64) int64
		want  []string
	}{
		{"new reader", 10, func(int64) int64 { return -1 }, []string{"still here"}},
		{"all that are kept", 3, func(int64) int64 { return 0 }, []string{`decision "2"`, `decision "3"`, `decision "4"`}},
		{"nothing missed", 10, func(first int64) int64 { return first + 4 }, []string{"still here"}},
		{"two missed", 10, func(first int64) int64 { return first + 2 }, []string{`decision "3"`, `decision "4"`}},
		{"one of them gone", 3, func(first int64) int64 {
			return first
		}, []string{`gap {"missed":1}`, `decision "2"`, `decision "3"`, `decision "4"`}},
		{"all of them gone", 1, func(first int64) int64 { return first }, []string{`gap {"missed":3}`, `decision "4"`}},
		{"from before the first", 10, func(first int64) int64 {
			return first - 1
		}, []string{`decision "0"`, `decision "1"`, `decision "2"`, `decision "3"`, `decision "4"`}},
		{"of an earlier process", 3, func(first int64) int64 {
			return first - 5
		}, []string{`gap {"missed":2,"restarted":true}`, `decision "2"`, `decision "3"`, `decision "4"`}},
		{"of another gateway", 3, func(first int64) int64 {
			return first + 5
		}, []string{`gap {"missed":2,"restarted":true}`, `decision "2"`, `decision "3"`, `decision "4"`}},
		{"nothing is kept", 0, func(int64) int64 { return 0 }, []string{"still here"}},
	} {
		l := NewLog(tt.keep)
		addMany(l, 5)
		f := newFollower(l, everything)
		events := eventsOf(t, string(f.begin(tt.after(l.span.First), now)))
		if len(events) == 0 || events[0].event != "retry: 2000" {
			t.Errorf("%s: it begins with %v", tt.name, events)
			continue
		}
		if diff := cmp.Diff(tt.want, inWords(events[1:])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if more := f.flush(nil, now); len(more) != 0 {
			t.Errorf("%s: it is sent again: %s", tt.name, more)
		}
	}
}

// TestStreamSendsOrCountsEachRecordOnce: the records sent, left out and missed add up to all
// records, and the numbers grow. No second has more than fifty records, and a reader that resumes
// with its last id gets the rest.
func TestStreamSendsOrCountsEachRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLog(rapid.IntRange(1, 400).Draw(t, "keep"))
		f := newFollower(l, everything)
		now := time.Unix(1_700_000_000, 0)
		f.begin(-1, now)
		last, total := l.Span().Next-1, 0
		var seconds []int
		for range rapid.IntRange(1, 12).Draw(t, "flushes") {
			now = now.Add(followEvery)
			n := rapid.SampledFrom([]int{0, 1, 5, 13, 49, 50, 51, 120, 700}).Draw(t, "came")
			addMany(l, n)
			total += n
			decisions, accounted := 0, 0
			for _, e := range eventsOf(t, string(f.flush(nil, now))) {
				if e.id < last || e.id == last && e.event == "decision" {
					t.Fatalf("%+v comes after %d", e, last)
				}
				last = e.id
				var g gap
				var d dropped
				switch e.event {
				case "decision":
					decisions++
					accounted++
				case "gap":
					json.Unmarshal([]byte(e.data), &g) // 0 is wrong
					accounted += int(g.Missed)
				case "dropped":
					json.Unmarshal([]byte(e.data), &d) // as above
					accounted += d.Dropped
				}
			}
			if accounted != n {
				t.Fatalf("of %d, %d are accounted for", n, accounted)
			}
			seconds = append(seconds, decisions)
			if inSecond := sum(seconds[max(0, len(seconds)-4):]); inSecond > followMost {
				t.Fatalf("%d in a second", inSecond)
			}
			if n > 0 && last != l.Span().Next-1 {
				t.Fatalf("the last id is %d of %d", last, l.Span().Next-1)
			}
		}
	})
}

func sum(all []int) (n int) {
	for _, x := range all {
		n += x
	}
	return n
}

// TestResumedStreamSendsTheNewestMissedRecords: the newest thousand, and how many before.
func TestResumedStreamSendsTheNewestMissedRecords(t *testing.T) {
	l := NewLog(3000)
	addMany(l, 2500)
	now := time.Unix(1_700_000_000, 0)
	f := newFollower(l, func(d *Decision) bool { return d.RequestID != "2499" })
	events := eventsOf(t, string(f.begin(0, now)))
	if len(events) != 1002 || events[1].event != "dropped" || events[1].data != `{"dropped":1499}` ||
		events[2].data != `"1499"` || events[1001].data != `"2498"` {
		t.Errorf("it got %d events: %v … %v", len(events), events[:3], events[len(events)-1])
	}
	addMany(l, 60)
	if events := inWords(eventsOf(t, string(f.flush(nil, now)))); len(events) != 51 ||
		events[50] != `dropped {"dropped":10}` {
		t.Errorf("afterwards %v", events)
	}
}

// stall is how long a write to a reader may block.
const stall = 10 * time.Second

// operatorWire is an operator's connection in a bubble.
type operatorWire struct {
	header   http.Header
	to       *io.PipeWriter
	deadline time.Time
}

func (w *operatorWire) Header() http.Header                 { return w.header }
func (w *operatorWire) WriteHeader(int)                     {}
func (w *operatorWire) Flush()                              {}
func (w *operatorWire) SetWriteDeadline(at time.Time) error { w.deadline = at; return nil }
func (w *operatorWire) Write(p []byte) (int, error) {
	// it has none
	stalled := time.AfterFunc(time.Until(w.deadline), func() { w.to.CloseWithError(os.ErrDeadlineExceeded) })
	defer stalled.Stop()
	return w.to.Write(p)
}

// heard is one write with its time since the beginning.
type heard struct {
	at   time.Duration
	text []string
}

// listen follows a log in its bubble until the test ends it, and returns one value per write.
func listen(t *testing.T, ctx context.Context, l *Log, may func() bool) (out chan heard, ended chan time.Duration) {
	from, to := io.Pipe()
	start := time.Now()
	out, ended = make(chan heard, 1000), make(chan time.Duration, 1)
	w := &operatorWire{header: http.Header{}, to: to}
	go func() {
		newFollower(l, everything).Follow(ctx, w, http.NewResponseController(w), stall, -1, may)
		to.Close() // it has none
		ended <- time.Since(start)
	}()
	go func() {
		defer close(out)
		buffer := make([]byte, 1<<20)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			out <- heard{time.Since(start), inWords(eventsOf(t, string(buffer[:n])))}
		}
	}()
	return out, ended
}

// TestStreamSendsFourTimesASecondAndBeatsWhenQuiet: records of one interval are sent together, and
// a heartbeat is sent after 15 s of silence.
func TestStreamSendsFourTimesASecondAndBeatsWhenQuiet(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(100)
		ctx, leave := context.WithCancel(t.Context())
		out, ended := listen(t, ctx, l, func() bool { return true })
		time.Sleep(100 * time.Millisecond)
		addMany(l, 2)
		time.Sleep(100 * time.Millisecond)
		addMany(l, 1)
		time.Sleep(31*time.Second - 200*time.Millisecond)
		leave()
		synctest.Wait()
		var got []heard
		for h := range out {
			got = append(got, h)
		}
		want := []heard{{0, []string{"retry: 2000", "still here"}},
			{250 * time.Millisecond, []string{`decision "0"`, `decision "1"`, `decision "2"`}},
			{15250 * time.Millisecond, []string{"still here"}}, {30250 * time.Millisecond, []string{"still here"}}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(heard{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if at := <-ended; at != 31*time.Second {
			t.Errorf("it ends after %v", at)
		}
	})
}

// TestStreamCarriesTheEventsOfOtherSources: they come after the records and keep the position. A
// follower without a log sends them alone.
func TestStreamCarriesTheEventsOfOtherSources(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	others := func(b []byte) []byte { return AppendEvent(b, "load", []byte("7")) }
	l := NewLog(10)
	f := newFollower(l, everything)
	f.Others = others
	f.begin(-1, now)
	addMany(l, 1)
	events := eventsOf(t, string(f.flush(nil, now)))
	if diff := cmp.Diff([]string{`decision "0"`, "load 7"}, inWords(events)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if events[0].id != l.Span().First || events[1].id != 0 {
		t.Errorf("the ids are %d and %d", events[0].id, events[1].id)
	}
	// The heartbeat has the position although other events were sent meanwhile.
	events = eventsOf(t, string(f.flush(nil, now.Add(beatEvery))))
	if len(events) != 2 || events[0].id != l.Span().First || events[1].data != "7" {
		t.Errorf("after a quiet time: %v", events)
	}
	alone := &Follower{Others: others}
	if got := string(alone.begin(5, now)); got != "retry: 2000\n\n: still here\n\nevent: load\ndata: 7\n\n" {
		t.Errorf("without a log it begins with %q", got)
	}
}

// TestStreamEndsWhenItsReaderLosesPermission: a revoked key, a gateway that shuts down.
func TestStreamEndsWhenItsReaderLosesPermission(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, ended := listen(t, t.Context(), NewLog(10), func() bool { return time.Since(start) < 20*time.Second })
		if at := <-ended; at != 20*time.Second {
			t.Errorf("it ends after %v", at)
		}
	})
}

// TestSlowReaderDelaysNoRequest: a connection that takes nothing is ended, and
// records come in meanwhile as if it were not there.
func TestSlowReaderDelaysNoRequest(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(100)
		from, to := io.Pipe()
		w := &operatorWire{header: http.Header{}, to: to}
		start := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			newFollower(l, everything).Follow(t.Context(), w, http.NewResponseController(w), stall, -1,
				func() bool { return true })
			ended <- time.Since(start)
		}()
		if _, err := from.Read(make([]byte, 100)); err != nil { // the beginning, and then nothing more
			t.Fatal(err)
		}
		before := time.Now()
		addMany(l, 10_000)
		if took := time.Since(before); took != 0 { // the clock of a bubble stands still unless a goroutine waits
			t.Errorf("adding waited %v", took)
		}
		if at := <-ended; at != followEvery+stall {
			t.Errorf("it ends after %v", at)
		}
		if !w.deadline.IsZero() {
			t.Error("the next request on the connection has its deadline")
		}
	})
}

// TestAQuietStreamHasNoWriteDeadline: over HTTP/2 a deadline ends a stream in which
// nothing is written too.
func TestAQuietStreamHasNoWriteDeadline(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		from, to := io.Pipe()
		w := &operatorWire{header: http.Header{}, to: to}
		go newFollower(NewLog(10), everything).Follow(ctx, w, http.NewResponseController(w), stall, -1,
			func() bool { return true })
		if _, err := from.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !w.deadline.IsZero() {
			t.Errorf("a stream without a pending write has a deadline in %v", time.Until(w.deadline))
		}
		leave()
	})
}

func TestThinnedRecordsAreEvenlySpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, most := rapid.IntRange(0, 300).Draw(t, "n"), rapid.IntRange(0, 60).Draw(t, "most")
		all := make([]Entry, n)
		for i := range all {
			all[i].Seq = int64(n - i)
		}
		got := thinned(slices.Clone(all), most)
		if len(got) != min(n, most) {
			t.Fatalf("%d of %d", len(got), n)
		}
		for i := 1; i < len(got); i++ {
			if step := got[i-1].Seq - got[i].Seq; step < int64(n/max(most, 1)) && n > most || step < 1 ||
				n > most && step > int64(n/most)+1 {
				t.Fatalf("a step of %d with %d of %d", step, most, n)
			}
		}
		if len(got) > 0 && got[0].Seq != int64(n) {
			t.Fatalf("the newest is not there: %d", got[0].Seq)
		}
	})
}

// BenchmarkFollow is the cost of one reader per interval at 2,000 requests/s.
func BenchmarkFollow(b *testing.B) {
	l := NewLog(2000)
	f := newFollower(l, (&Filter{Search: "acm"}).Matches)
	f.Event = func(n Entry) any { return n.Decision }
	f.begin(-1, time.Now())
	var buffer []byte
	for b.Loop() {
		for range 500 {
			l.Add(wholeDecision())
		}
		buffer = f.flush(buffer[:0], time.Now())
	}
	if len(buffer) == 0 {
		b.Fatal("nothing is told")
	}
}
