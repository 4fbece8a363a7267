package openai

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// eventValues is an event with values that can be compared.
type eventValues struct {
	Name, Data string
	Comment    bool
}

// readEvents reads a body to its end.
func readEvents(r *EventReader) (events []eventValues, raw []byte, err error) {
	for {
		ev, err := r.Next()
		if len(ev.Raw) > 0 {
			events = append(events, eventValues{string(ev.Name), string(ev.Data), ev.Comment})
			raw = append(raw, ev.Raw...)
		}
		if err != nil {
			return events, raw, err
		}
	}
}

func TestEventsAreReadByTheStandard(t *testing.T) {
	tests := []struct {
		name, body string
		want       []eventValues
		err        error
	}{
		{"empty", "", nil, io.EOF},
		{"LF", "data: a\n\ndata: b\n\n", []eventValues{{Data: "a"}, {Data: "b"}}, io.EOF},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []eventValues{{Data: "a"}, {Data: "b"}}, io.EOF},
		{"CR", "data: a\r\rdata: b\r\r", []eventValues{{Data: "a"}, {Data: "b"}}, io.EOF},
		{"mixed", "data: a\r\n\ndata: b\n\r\ndata: c\r\n\r\n", []eventValues{{Data: "a"}, {Data: "b"}, {Data: "c"}}, io.EOF},
		{"CR then CRLF", "data: a\r\r\ndata: b\n\n", []eventValues{{Data: "a"}, {Comment: true}, {Data: "b"}}, io.EOF},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", []eventValues{{Data: "a"},
			{Comment: true}}, io.EOF},
		{"name", "event: response.created\ndata: {}\n\n", []eventValues{{Name: "response.created", Data: "{}"}}, io.EOF},
		{"last name wins", "event: a\nevent: b\ndata: x\n\n", []eventValues{{Name: "b", Data: "x"}}, io.EOF},
		{"name alone", "event: ping\n\n", []eventValues{{Name: "ping", Comment: true}}, io.EOF},
		{"error alone", "event: error\n\n", []eventValues{{Name: "error"}}, io.EOF},
		{"several lines", "data: a\ndata\ndata:\ndata:  b\n\n", []eventValues{{Data: "a\n\n\n b"}}, io.EOF},
		{"no space", "data:a\nevent:b\n\n", []eventValues{{Name: "b", Data: "a"}}, io.EOF},
		{"comment", ": OPENROUTER PROCESSING\n\ndata: a\n\n", []eventValues{{Comment: true}, {Data: "a"}}, io.EOF},
		{"comment within", "data: a\n: hi\ndata: b\n\n", []eventValues{{Data: "a\nb"}}, io.EOF},
		{"connection fields", "retry: 100\nid: 7\n\n", []eventValues{{Comment: true}}, io.EOF},
		{"unknown field", "datas: x\ndat: y\n\n", []eventValues{{Comment: true}}, io.EOF},
		{"empty data", "data:\n\n", []eventValues{{Comment: true}}, io.EOF},
		{"blank data", "data:  \ndata: \t\n\n", []eventValues{{Data: " \n\t", Comment: true}}, io.EOF},
		{"name and empty data", "id: 1\nevent: a\ndata:\n\n", []eventValues{{Name: "a", Comment: true}}, io.EOF},
		{"blank lines", "\n\ndata: a\n\n\n", []eventValues{{Comment: true}, {Comment: true}, {Data: "a"},
			{Comment: true}}, io.EOF},
		{"no last blank line", "data: a\n\ndata: [DONE]\n", []eventValues{{Data: "a"}, {Data: "[DONE]"}},
			io.ErrUnexpectedEOF},
		{"no last blank line, CR", "data: [DONE]\r", []eventValues{{Data: "[DONE]"}}, io.ErrUnexpectedEOF},
		{"last blank line is a CR", "data: a\r\n\r", []eventValues{{Data: "a"}}, io.EOF},
		{"incomplete line", "data: a\n\ndata: [DON", []eventValues{{Data: "a"}}, io.ErrUnexpectedEOF},
		{"incomplete second line", "data: a\ndata: b", nil, io.ErrUnexpectedEOF},
		{"llama.cpp's error field", "error: {\"code\":500}\n\n", []eventValues{{Name: "error", Data: `{"code":500}`}},
			io.EOF},
		{"bare JSON", "{\"error\":\"x\"}\n\n", []eventValues{{Name: "error", Data: `{"error":"x"}`}}, io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			readers := map[string]io.Reader{
				"at once":       strings.NewReader(tt.body),
				"byte by byte":  iotest.OneByteReader(strings.NewReader(tt.body)),
				"end with data": iotest.DataErrReader(strings.NewReader(tt.body)),

				"byte by byte, with pages": iotest.OneByteReader(strings.NewReader(tt.body)),
			}
			paged := readers["byte by byte, with pages"]
			for how, body := range readers {
				r := NewEventReader(body, 0)
				if body == paged {
					r = newPagedReader(t, body)
				}
				got, raw, err := readEvents(r)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: events (-want +got):\n%s", how, diff)
				}
				if !errors.Is(err, tt.err) {
					t.Errorf("%s: error %v, want %v", how, err, tt.err)
				}
				marked := strings.TrimPrefix(tt.body, "\xef\xbb\xbf") // Raw does not have the mark
				if !strings.HasPrefix(marked, string(raw)) || errors.Is(err, io.EOF) && len(raw) != len(marked) {
					t.Errorf("%s: Raw is %q of %q", how, raw, tt.body)
				}
			}
		})
	}
}

// TestEventsWithoutBlankLinesAreSplit: the first data line of an event is a whole value, so that more data
// would break it.
func TestEventsWithoutBlankLinesAreSplit(t *testing.T) {
	const a, b = `{"a":1}`, `{"b":[2]}`
	both := []eventValues{{Data: a}, {Data: b}}
	for _, tt := range []struct {
		name, body string
		want       []eventValues
		err        error
	}{
		{"data", "data: " + a + "\ndata: " + b + "\n", both, io.EOF},
		{"data without a blank", "data:" + a + "\ndata:" + b + "\n", both, io.EOF},
		{"CRLF", "data: " + a + "\r\ndata: " + b + "\r\n", both, io.EOF},
		{"a byte order mark", "\xef\xbb\xbfdata: " + a + "\ndata: " + b + "\n", both, io.EOF},
		{"the end", "data: " + a + "\ndata: [DONE]\n", []eventValues{{Data: a}, {Data: "[DONE]"}}, io.EOF},
		{"the end before more", "data: [DONE]\ndata: " + a + "\n", []eventValues{{Data: "[DONE]"}, {Data: a}}, io.EOF},
		{"a blank line later", "data: " + a + "\ndata: " + b + "\n\ndata: " + a + "\n\n",
			[]eventValues{{Data: a}, {Data: b}, {Comment: true}, {Data: a}, {Comment: true}}, io.EOF},
		{"names", "event: x\ndata: " + a + "\nevent: y\ndata: " + b + "\n",
			[]eventValues{{Name: "x", Data: a}, {Name: "y", Data: b}}, io.EOF},
		{"ids and names", "id: 1\nevent: x\ndata: " + a + "\nid: 2\nevent: y\ndata: " + b + "\n",
			[]eventValues{{Name: "x", Data: a}, {Name: "y", Data: b}}, io.EOF},
		{"ids after the data", "data: " + a + "\nid: 1\ndata: " + b + "\nid: 2\n\n",
			[]eventValues{{Data: a}, {Data: b}, {Comment: true}}, io.EOF},
		{"comments", ": x\nevent: x\ndata: " + a + "\n: x\nevent: y\ndata: " + b + "\n",
			[]eventValues{{Name: "x", Data: a}, {Name: "y", Data: b}}, io.EOF},
		{"a line of blanks between", "data: " + a + "\n \ndata: " + b + "\n \n",
			[]eventValues{{Data: a}, {Data: b}, {Comment: true}}, io.ErrUnexpectedEOF},
		{"an error field", "data: " + a + "\nerror: " + b + "\n", []eventValues{{Data: a}, {Name: "error", Data: b}},
			io.ErrUnexpectedEOF},
		{"a bare error", "data: " + a + "\n" + b + "\n", []eventValues{{Data: a}, {Name: "error", Data: b}},
			io.ErrUnexpectedEOF},
		{"no line end after the last value", "data: " + a + "\n\ndata: [DONE]", []eventValues{{Data: a}, {Data: "[DONE]"}},
			io.ErrUnexpectedEOF},
		{"no line end at all", "data: " + a, []eventValues{{Data: a}}, io.ErrUnexpectedEOF},
		{"no line end after the second", "data: " + a + "\ndata: " + b, both, io.EOF},
		{"half a value at the end", "data: " + a + "\n\ndata: {\"b\":[2]", []eventValues{{Data: a}}, io.ErrUnexpectedEOF},

		{"text", "data: a\ndata: " + a + "\n\n", []eventValues{{Data: "a\n" + a}}, io.EOF},
		{"an object in lines", "data: {\ndata: \"a\":1\ndata: }\n\n", []eventValues{{Data: "{\n\"a\":1\n}"}}, io.EOF},
		{"an array of objects", "data: [\ndata: " + a + ",\ndata: " + a + "\ndata: ]\n\n",
			[]eventValues{{Data: "[\n" + a + ",\n" + a + "\n]", Comment: true}}, io.EOF},
		{"a name after the data", "data: " + a + "\nevent: x\n\n", []eventValues{{Name: "x", Data: a}}, io.EOF},
		{"an id after the data", "event: x\ndata: " + a + "\nid: 1\n\n", []eventValues{{Name: "x", Data: a}}, io.EOF},
		{"an empty first line", "data:\ndata: " + a + "\n\n", []eventValues{{Data: "\n" + a}}, io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, body := range map[string]io.Reader{
				"at once":      strings.NewReader(tt.body),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.body)),
			} {
				got, _, err := readEvents(NewEventReader(body, 0))
				if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, tt.err) {
					t.Errorf("%s: %v, events (-want +got):\n%s", how, err, diff)
				}
			}
		})
	}
}

// TestAStreamWithoutBlankLinesHasNoDelay: from the second event on, each one is returned at its line end.
func TestAStreamWithoutBlankLinesHasNoDelay(t *testing.T) {
	body := &stepReader{parts: []string{"data: {}\n", "data: {}\n", "data: {}\n", "data: {}\n"}, err: io.EOF}
	r := NewEventReader(body, 0)
	for n, want := range []int{2, 2, 3, 4} {
		if _, err := r.Next(); err != nil || body.reads != want {
			t.Errorf("event %d: %d reads, want %d; %v", n, body.reads, want, err)
		}
	}
}

// TestAppendedEventsEndInOneBlankLine: SDKs drop an event without one, and some read another one as an
// empty event.
func TestAppendedEventsEndInOneBlankLine(t *testing.T) {
	for body, want := range map[string]string{
		"data: {\"a\":1}\ndata: [done]\n": "data: {\"a\":1}\n\ndata: [DONE]\n\n",
		"data: {\"a\":1}\r\ndata: 1\r\n":  "data: {\"a\":1}\r\n\ndata: 1\r\n\n",
		"data: {\"a\":1}\rdata: 1\r":      "data: {\"a\":1}\r\n\ndata: 1\r\n\n",
		"data: {\"a\":1}":                 "data: {\"a\":1}\n\n",
		"data: {\"a\":1}\n":               "data: {\"a\":1}\n\n",
		"data: {\"a\":1}\n\n":             "data: {\"a\":1}\n\n",
		"event: x\ndata: {\"error\":null}\nevent: y\ndata: {\"a\":1}\n": "event: x\ndata: {}\n\nevent: y\n" +
			"data: {\"a\":1}\n\n",
	} {
		r := NewEventReader(strings.NewReader(body), 0)
		tracker := NewTracker(Chat)
		var out []byte
		for {
			ev, err := r.Next()
			if len(ev.Raw) > 0 {
				out = AppendEvent(out, ev, tracker.Observe(ev))
			}
			if err != nil {
				break
			}
		}
		if string(out) != want {
			t.Errorf("%q: %q, want %q", body, out, want)
		}
	}
}

func TestOneDataLineIsNotCopied(t *testing.T) {
	r := NewEventReader(strings.NewReader("event: x\ndata: abc\n\n"), 0)
	ev, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	ev.Raw[bytes.IndexByte(ev.Raw, 'b')] = 'B'
	if string(ev.Data) != "aBc" {
		t.Errorf("Data %q does not point into Raw", ev.Data)
	}
}

// stepReader returns one of its parts per read and counts the reads.
type stepReader struct {
	parts []string
	reads int
	err   error
}

func (s *stepReader) Read(p []byte) (int, error) {
	s.reads++
	if len(s.parts) == 0 {
		return 0, s.err
	}
	n := copy(p, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; s.parts[0] == "" {
		s.parts = s.parts[1:]
	}
	return n, nil
}

func TestEventIsReturnedBeforeTheNextRead(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r"} {
		body := &stepReader{parts: []string{"data: a" + end + end, "data: b" + end + end}, err: io.EOF}
		r := NewEventReader(body, 0)
		for want := 1; want <= 2; want++ {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
			if body.reads != want {
				t.Errorf("line end %q: %d reads for event %d", end, body.reads, want)
			}
		}
	}
}

func TestBufferedReportsOnlyWholeEvents(t *testing.T) {
	body := &stepReader{parts: []string{"data: a\n\ndata: b\n\ndata: c\n", "\n"}, err: io.EOF}
	r := NewEventReader(body, 0)
	if r.Buffered() {
		t.Error("Buffered before anything was read")
	}
	for _, want := range []struct {
		data     string
		buffered bool
	}{{"a", true}, {"b", false}, {"c", false}} {
		ev, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := r.Buffered(); got != want.buffered {
				t.Errorf("after %s Buffered is %v", want.data, got)
			}
		}
		if string(ev.Data) != want.data {
			t.Errorf("data %q, want %q after Buffered", ev.Data, want.data)
		}
	}
}

func TestEventOverTheLimitIsAnError(t *testing.T) {
	fits := "data: " + strings.Repeat("x", 92) + "\n\n" // 100 bytes
	r := NewEventReader(strings.NewReader(fits+fits), 100)
	if got, _, err := readEvents(r); len(got) != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("events of exactly the limit: %d, %v", len(got), err)
	}
	for _, body := range []string{"data: a\n\nx" + fits, strings.Repeat("x", 200), strings.Repeat(": x\n", 50)} {
		r := NewEventReader(strings.NewReader(body), 100)
		if _, _, err := readEvents(r); !errors.Is(err, ErrEventTooLarge) {
			t.Errorf("%.20q…: %v", body, err)
		}
		if ev, err := r.Next(); !errors.Is(err, ErrEventTooLarge) || len(ev.Raw) > 0 {
			t.Errorf("%.20q…: the reader continues after the error: %v", body, err)
		}
	}
}

func TestLargeBufferIsReleased(t *testing.T) {
	large := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	small := strings.Repeat("data: a\n\n", 4096)
	body := &stepReader{parts: []string{large, small, small, small}, err: io.EOF}
	r := newPagedReader(t, body)
	ev, err := r.Next()
	if err != nil || len(ev.Data) != 1<<20 {
		t.Fatalf("%d bytes, %v", len(ev.Data), err)
	}
	if _, _, err := readEvents(r); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if cap(r.buf) > keptBuffer {
		t.Errorf("the buffer is still %d bytes", cap(r.buf))
	}
	r.Reset(strings.NewReader(large), 0, nil)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	r.Reset(nil, 0, nil)
	if cap(r.buf) > keptBuffer {
		t.Errorf("Reset keeps %d bytes", cap(r.buf))
	}
}

func TestResetDropsThePreviousStream(t *testing.T) {
	r := NewEventReader(strings.NewReader("data: a\r\rdata: half"), 0)
	if _, _, err := readEvents(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	r.Reset(strings.NewReader("\xef\xbb\xbfdata: b\n\n"), 0, nil)
	got, _, err := readEvents(r)
	if diff := cmp.Diff([]eventValues{{Data: "b"}}, got); diff != "" || !errors.Is(err, io.EOF) {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestBrokenBodyIsNotEOF(t *testing.T) {
	reset := errors.New("connection reset")
	body := &stepReader{parts: []string{"data: a\n\ndata: [DONE]\n"}, err: reset}
	got, _, err := readEvents(NewEventReader(body, 0))
	if diff := cmp.Diff([]eventValues{{Data: "a"}}, got); diff != "" || !errors.Is(err, reset) {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := NewEventReader(stuckReader{}, 0).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a body without progress: %v", err)
	}
}

// stuckReader always returns no bytes and no error.
type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

// splitReader reads a body in pieces. The bytes of cuts are the sizes of the pieces, repeatedly.
type splitReader struct {
	body, cuts []byte
	at         int
}

func (s *splitReader) Read(p []byte) (int, error) {
	if len(s.body) == 0 {
		return 0, io.EOF
	}
	n := len(s.body)
	if len(s.cuts) > 0 {
		n = min(n, int(s.cuts[s.at%len(s.cuts)])+1)
		s.at++
	}
	n = copy(p, s.body[:n])
	s.body = s.body[n:]
	return n, nil
}

// waitingBody is a body that is a Waiter. Wait verifies that the reader has no page, and writes other events to a page
// of the pool, as another reader does.
type waitingBody struct {
	io.Reader
	t     *testing.T
	pages *sync.Pool
	r     *EventReader
}

func (w *waitingBody) Wait() {
	if cap(w.r.buf) > 0 && cap(w.r.buf) <= firstBuffer {
		w.t.Error("a reader has a page while it waits")
	}
	page := w.pages.Get().(*Page)
	copy(page[:], otherEvents)
	w.pages.Put(page)
}

var otherEvents = strings.Repeat("data: x\n\n", firstBuffer/9)

// newPagedReader returns a reader of a body that waits.
func newPagedReader(t *testing.T, body io.Reader) *EventReader {
	pages := &sync.Pool{New: func() any { return new(Page) }}
	r := NewPagedReader(pages)
	r.Reset(&waitingBody{body, t, pages, r}, 0, nil)
	return r
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: b\n\n"), []byte{0})
	f.Add([]byte("event: x\r\ndata: {}\r\n\r\n: c\r\n\r\ndata: [DONE]\r\n"), []byte{0, 3, 1})
	f.Add([]byte("\xef\xbb\xbfdata: a\rdata: b\r\r\n\rdata: c\r\n\n\r"), []byte{2, 0})
	f.Add([]byte("id: 1\ndata: {}\nid: 2\rdata: {\"a\":1}\r\n{}\ndata: [DONE]"), []byte{3, 0})
	f.Add([]byte("data: x\n"+strings.Repeat("data: yyyyyyyyyyyyyyyy\n", 400)+"\n"), []byte{200})
	f.Fuzz(func(t *testing.T, body, cuts []byte) {
		body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")) // Raw does not have it
		whole, raw, err := readEvents(NewEventReader(bytes.NewReader(body), 0))
		pieces, pieceRaw, pieceErr := readEvents(newPagedReader(t, &splitReader{body: body, cuts: cuts}))
		if !slices.Equal(whole, pieces) {
			t.Errorf("split as %v (-at once +split):\n%s", cuts, cmp.Diff(whole, pieces))
		}
		if !errors.Is(err, pieceErr) {
			t.Errorf("at once %v, split %v", err, pieceErr)
		}
		if !bytes.Equal(raw, pieceRaw) || !bytes.HasPrefix(body, raw) {
			t.Errorf("Raw is not the body: %q, %q of %q", raw, pieceRaw, body)
		}
		if errors.Is(err, io.EOF) && len(raw) != len(body) {
			t.Errorf("%d of %d bytes were returned", len(raw), len(body))
		}
	})
}

// TestDataWithoutAnObjectIsAComment: SDKs read every event with data as a chunk, and applications fail at
// a chunk that is null or a number.
func TestDataWithoutAnObjectIsAComment(t *testing.T) {
	for data, want := range map[string]bool{
		"null": true, " null ": true, "true": true, "false": true, "0": true, "-1.5e3": true, `""`: true, `"keep-alive"`: true,
		`"[DONE]"`: true, "[]": true, "[1,2]": true, "[null]": true, `["a"]`: true, "{}": true, "{ }": true, "NaN": true,
		"[DONE]": false, `{"choices":[]}`: false, `{"a":1}`: false, "nul": false, "hello": false, "[DON": false, `"a`: false,
		"{": false, "1 2": false, "null null": false, `[{"error":{"message":"m"}}]`: false,
		`[{"error":{"code":429}},{"a":1}]`: false,
	} {
		ev, err := NewEventReader(strings.NewReader("data: "+data+"\n\n"), 0).Next()
		if err != nil || ev.Comment != want {
			t.Errorf("%q: comment %v, %v", data, ev.Comment, err)
		}
	}
	for body, want := range map[string]bool{
		"event: message_stop\ndata: {}\n\n": false, "event: message_stop\ndata: null\n\n": true,
		"event: error\ndata: null\n\n": false, "event: error\ndata: {}\n\n": false,
	} {
		if ev, err := NewEventReader(strings.NewReader(body), 0).Next(); err != nil || ev.Comment != want {
			t.Errorf("%q: comment %v, %v", body, ev.Comment, err)
		}
	}
}
