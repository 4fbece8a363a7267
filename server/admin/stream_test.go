package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tierway/server/control"
	"tierway/telemetry"
)

// countingHub returns a hub that encodes the number of its encodings, and that number by topic.
func countingHub() (h *hub, encoded map[string]*atomic.Int64) {
	encoded = map[string]*atomic.Int64{topicOverview: {}, topicWorkers: {}}
	h = &hub{recover: control.NewRecoverer(slog.New(slog.DiscardHandler), telemetry.New("test")), wanted: map[string]int{}}
	h.encode = func(_ time.Time, wanted func(string) bool) map[string]any {
		data := map[string]any{}
		for _, topic := range hubTopics() {
			if wanted(topic) {
				data[topic] = encoded[topic].Add(1)
			}
		}
		return data
	}
	return h, encoded
}

// TestHubEncodesOncePerSecondForAllStreams: all readers get the same events, each once, and the goroutine
// runs only while there is a stream.
func TestHubEncodesOncePerSecondForAllStreams(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		h, encoded := countingHub()
		var leave []func()
		var readers []func([]byte) []byte
		for range 3 {
			leave = append(leave, h.join([]string{topicOverview}))
			readers = append(readers, h.reader([]string{topicOverview}))
		}
		got := make([]string, 3)
		for range 14 { // 3.5 s, as followers poll
			synctest.Wait()
			for i, read := range readers {
				got[i] += string(read(nil))
			}
			time.Sleep(250 * time.Millisecond)
		}
		want := ""
		for i := range 4 {
			want += fmt.Sprintf("event: overview\ndata: %d\n\n", i+1)
		}
		for i := range got {
			if got[i] != want {
				t.Errorf("reader %d got %q", i, got[i])
			}
		}
		if o, w := encoded[topicOverview].Load(), encoded[topicWorkers].Load(); o != 4 || w != 0 {
			t.Errorf("encoded %d overviews and %d lists of workers", o, w)
		}
		for _, f := range leave {
			f()
		}
		// The last leave has waited for the goroutine; the bubble would fail with one left.
		if h.frame.Load() != nil {
			t.Error("a stopped hub keeps an old state")
		}
		time.Sleep(time.Minute)
		if n := encoded[topicOverview].Load(); n != 4 {
			t.Errorf("without streams it has encoded %d overviews", n)
		}
	})
}

// TestHubEncodesATopicWhileAStreamWantsIt, and begins again after it has stopped.
func TestHubEncodesATopicWhileAStreamWantsIt(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		h, encoded := countingHub()
		steps := func(seconds int) string {
			synctest.Wait()
			overviews, workers := encoded[topicOverview].Load(), encoded[topicWorkers].Load()
			time.Sleep(time.Duration(seconds) * time.Second)
			synctest.Wait()
			return fmt.Sprint(encoded[topicOverview].Load()-overviews, encoded[topicWorkers].Load()-workers)
		}
		first := h.join([]string{topicOverview})
		one := steps(2)
		second := h.join([]string{topicOverview, topicWorkers})
		both := steps(3)
		first()
		still := steps(1)
		second()
		none := steps(5)
		third := h.join([]string{topicWorkers})
		again := steps(2)
		third()
		got := []string{one, both, still, none, again}
		if want := []string{"2 0", "3 3", "1 1", "0 0", "0 2"}; !slices.Equal(got, want) {
			t.Errorf("encoded %q, want %q", got, want)
		}
	})
}

// TestHubSurvivesAPanic of one encoding: the next second has an event again.
func TestHubSurvivesAPanic(t *testing.T) {
	defer goleak.VerifyNone(t)
	synctest.Test(t, func(t *testing.T) {
		h, _ := countingHub()
		encode, broken := h.encode, true
		h.encode = func(now time.Time, wanted func(string) bool) map[string]any {
			if broken {
				broken = false
				panic("broken")
			}
			return encode(now, wanted)
		}
		defer h.join([]string{topicWorkers})()
		time.Sleep(1500 * time.Millisecond)
		if got := string(h.reader([]string{topicWorkers})(nil)); got != "event: workers\ndata: 1\n\n" {
			t.Errorf("after a panic: %q", got)
		}
	})
}

// TestEventStreamsAreLimited: a browser has one for all its tabs.
func TestEventStreamsAreLimited(t *testing.T) {
	r := newPlaneRig(t)
	r.plane.events.open.Store(maxEventStreams)
	got := r.ask("eyes", http.MethodGet, "/admin/stream?topics=overview", "")
	if got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" ||
		!strings.Contains(got.Body.String(), "64 streams") {
		t.Errorf("one more: %d %s", got.Code, got.Body.String())
	}
	for _, query := range []string{"", "?topics=", "?topics=overview,all", "?topics=workers,workers",
		"?topics=workers&x=1",
		"?topics=decisions&outcome=good"} {
		if got := r.ask("eyes", http.MethodGet, "/admin/stream"+query, ""); got.Code != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d", query, got.Code)
		}
	}
	if n := r.plane.events.open.Load(); n != maxEventStreams {
		t.Errorf("%d streams are open", n)
	}
}
