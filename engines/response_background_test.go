package engines

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const backgroundStream = `{"model":"m","background":true,"stream":true,"max_output_tokens":12,"input":"Tell me a story."}`

// shortNames are the events' names without what all begin with; of several deltas one.
func shortNames(events []event) string {
	var names []string
	for _, ev := range events {
		names = append(names, strings.TrimPrefix(ev.name, "response."))
	}
	return strings.Join(slices.Compact(names), " ")
}

// liveRecorder can be read while a handler writes to it.
type liveRecorder struct {
	*httptest.ResponseRecorder
	mu sync.Mutex // guards the body
}

func newLiveRecorder() *liveRecorder {
	return &liveRecorder{ResponseRecorder: httptest.NewRecorder()}
}

func (r *liveRecorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(b)
}

// written is the body until now.
func (r *liveRecorder) written() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Body.String()
}

func TestBackgroundStreamsBeginQueued(t *testing.T) {
	e := New(Config{Model: "m"})
	_, body := call(t, e, "POST", "/v1/responses", backgroundStream)
	events := readEvents(t, body)
	const want = "created queued in_progress output_item.added content_part.added output_text.delta output_text.done " +
		"content_part.done output_item.done incomplete"
	if got := shortNames(events); got != want {
		t.Fatalf("events\n%s\nwant\n%s", got, want)
	}
	for i, ev := range events {
		if number(t, object(t, ev.data), "sequence_number") != i {
			t.Errorf("event %d: %s", i, ev.data)
		}
	}
	for i, status := range []string{"queued", "queued", "in_progress"} {
		if got := text(t, object(t, events[i].data), "response", "status"); got != status {
			t.Errorf("%s has the status %s, want %s", events[i].name, got, status)
		}
	}
	id := text(t, object(t, events[0].data), "response", "id")
	if _, stored := call(t, e, "GET", "/v1/responses/"+id, ""); text(t, object(t, stored), "status") != "incomplete" {
		t.Errorf("stored: %s", stored)
	}
	e.Close()
}

// A stream may be resumed behind each of its events; what comes is what the first
// reader got, to the byte.
func TestResumedStreamsRepeatTheRest(t *testing.T) {
	e := New(Config{Model: "m"})
	defer e.Close()
	_, body := call(t, e, "POST", "/v1/responses", backgroundStream)
	events := strings.SplitAfter(body, "\n\n")
	id := text(t, object(t, readEvents(t, body)[0].data), "response", "id")
	for after := -1; after < len(events); after++ {
		query := "?stream=true"
		if after >= 0 {
			query = fmt.Sprintf("?stream=true&starting_after=%d", after)
		}
		status, got := call(t, e, "GET", "/v1/responses/"+id+query, "")
		if want := strings.Join(events[min(after+1, len(events)):], ""); status != 200 || got != want {
			t.Errorf("after %d: %d\n%s\nwant\n%s", after, status, got, want)
		}
	}
}

func TestBackgroundStreamsContinueWithoutTheirClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timed(4))
		ctx, leave := context.WithCancel(t.Context())
		first := newLiveRecorder()
		left := make(chan struct{})
		go func() {
			defer close(left)
			e.ServeHTTP(first, httptest.NewRequestWithContext(ctx, "POST", "/v1/responses", strings.NewReader(backgroundStream)))
		}()
		var id string
		stored := func() map[string]any {
			_, got := call(t, e, "GET", "/v1/responses/"+id, "")
			return object(t, got)
		}
		synctest.Wait() // it reads the prompt
		id = text(t, object(t, readEvents(t, first.written())[0].data), "response", "id")
		if status := text(t, stored(), "status"); status != "queued" {
			t.Errorf("before the prompt is read: %s", status)
		}
		for len(readEvents(t, first.written())) < 8 { // until some tokens are out
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if status := text(t, stored(), "status"); status != "in_progress" {
			t.Errorf("while it runs: %s", status)
		}
		leave()
		<-left
		seen := readEvents(t, first.written())
		_, rest := call(t, e, "GET", fmt.Sprintf("/v1/responses/%s?stream=true&starting_after=%d", id, len(seen)-1), "")
		said := ""
		for i, ev := range append(seen, readEvents(t, rest)...) {
			o := object(t, ev.data)
			if number(t, o, "sequence_number") != i {
				t.Fatalf("event %d: %s", i, ev.data)
			}
			if ev.name == "response.output_text.delta" {
				said += text(t, o, "delta")
			}
		}
		if whole := text(t, stored(), "output", 0, "content", 0, "text"); whole != said ||
			!strings.Contains(rest, "response.incomplete") {
			t.Errorf("two readers got %q, the answer is %q", said, whole)
		}
		if s := e.Stats(); s.Running != 0 || s.Open != 0 {
			t.Errorf("left behind: %+v", s)
		}
		e.Close()
	})
}

func TestCancelledBackgroundStreamsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(timed(4))
		reader := newLiveRecorder()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.ServeHTTP(reader, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/responses",
				strings.NewReader(backgroundStream)))
		}()
		synctest.Wait()
		id := text(t, object(t, readEvents(t, reader.written())[0].data), "response", "id")
		for range 2 { // a second time changes nothing
			status, body := call(t, e, "POST", "/v1/responses/"+id+"/cancel", "")
			if status != 200 || text(t, object(t, body), "status") != "cancelled" {
				t.Errorf("cancel: %d %s", status, body)
			}
		}
		<-ended
		events := readEvents(t, reader.written())
		last := events[len(events)-1]
		if last.name != "response.failed" || text(t, object(t, last.data), "response", "status") != "cancelled" {
			t.Errorf("the stream ends with %s %s", last.name, last.data)
		}
		if _, again := call(t, e, "GET", "/v1/responses/"+id+"?stream=true", ""); again != reader.written() {
			t.Errorf("read again:\n%s\nwant\n%s", again, reader.written())
		}
		e.Close()
		if s := e.Stats(); s.Running != 0 || s.Waiting != 0 || s.Open != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

func TestInvalidResumesAndCancelsAreRejected(t *testing.T) {
	e := New(Config{Model: "m"})
	defer e.Close()
	_, body := call(t, e, "POST", "/v1/responses", backgroundStream)
	streamed := text(t, object(t, readEvents(t, body)[0].data), "response", "id")
	polled := text(t, ask(t, e, "/v1/responses", `{"model":"m","background":true,"input":"a"}`), "id")
	whole := text(t, ask(t, e, "/v1/responses", `{"model":"m","input":"a"}`), "id")
	e.work.Wait()
	table := []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", whole + "?stream=true", 400, "stream=true"},
		{"GET", polled + "?stream=true", 400, "stream=true"},
		{"GET", streamed + "?stream=true&starting_after=one", 400, "starting_after"},
		{"GET", "resp_x?stream=true", 404, "resp_x"},
		{"POST", streamed + "/cancel", 400, "completed"},
		{"POST", polled + "/cancel", 400, "completed"},
		{"POST", whole + "/cancel", 400, "background"},
	}
	for _, row := range table {
		status, body := call(t, e, row.method, "/v1/responses/"+row.path, "")
		if status != row.status || !strings.Contains(text(t, object(t, body), "error", "message"), row.says) {
			t.Errorf("%s %s: %d %s", row.method, row.path, status, body)
		}
	}
}
