package chaos

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// faultWriter is the ResponseWriter of the inner handler. It splits streams into events; other
// answers are buffered until they are complete.
type faultWriter struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	r      *http.Request
	faults []Fault

	status int
	stream bool
	buf    []byte // an incomplete event, or the body so far
	passed int    // number of events so far
	batch  []byte // events that wait for others
	inside int    // number of events in batch
	merged mergedEvent
	gz     *gzip.Writer
	err    error // set when the answer is over; returned to the inner handler
}

func newFaultWriter(w http.ResponseWriter, r *http.Request, faults []Fault) *faultWriter {
	return &faultWriter{w: w, rc: http.NewResponseController(w), r: r, faults: faults}
}

func (f *faultWriter) has(k Kind) *Fault {
	for i := range f.faults {
		if f.faults[i].Kind == k {
			return &f.faults[i]
		}
	}
	return nil
}

// Header returns the header of the answer.
func (f *faultWriter) Header() http.Header { return f.w.Header() }

// WriteHeader sends a stream's header and buffers that of other answers.
func (f *faultWriter) WriteHeader(status int) {
	if f.status != 0 {
		return
	}
	f.status = status
	h := f.Header()
	f.stream = strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
	h.Del("Content-Length") // the length differs from what the inner handler counted
	if f.has(Gzip) != nil {
		h.Set("Content-Encoding", "gzip")
		f.gz = gzip.NewWriter(f.w)
	}
	if !f.stream {
		return
	}
	if f.has(CloseEach) != nil {
		h.Set("Keep-Alive", "timeout=5, max=100") // llama.cpp promises this and closes
	}
	f.w.WriteHeader(status)
}

// Write adds a part of the answer.
func (f *faultWriter) Write(b []byte) (int, error) {
	if f.status == 0 {
		f.WriteHeader(http.StatusOK)
	}
	if f.err != nil {
		return 0, f.err
	}
	f.buf = append(f.buf, b...)
	for f.stream {
		event, rest, whole := bytes.Cut(f.buf, []byte("\n\n"))
		if !whole {
			break
		}
		f.err = f.event(bytes.Clone(event))
		f.buf = rest
		if f.err != nil {
			return 0, f.err
		}
	}
	return len(b), nil
}

// FlushError sends only the header of a stream, because faults delay the rest on purpose.
func (f *faultWriter) FlushError() error {
	if f.err != nil || !f.stream {
		return f.err
	}
	if f.passed == 0 {
		return f.rc.Flush()
	}
	return nil
}

// event applies the faults to one event and sends the result.
func (f *faultWriter) event(ev []byte) error {
	for i := range f.faults {
		if f.faults[i].After == f.passed {
			if err := f.stop(&f.faults[i], &ev); err != nil {
				return err
			}
		}
	}
	f.passed++
	if f.has(NoDone) != nil && string(ev) == "data: [DONE]" {
		return nil
	}
	ev = f.rewrite(ev)
	if ev == nil {
		return nil
	}
	if merge := f.has(Merge); merge != nil {
		for _, out := range f.merged.add(ev, merge.every()) {
			if err := f.emit(out); err != nil {
				return err
			}
		}
		return nil
	}
	return f.emit(ev)
}

// stop applies a fault at its event. An error ends the answer.
func (f *faultWriter) stop(fault *Fault, ev *[]byte) error {
	switch fault.Kind {
	case Reset, Close:
		if err := f.drain(); err != nil {
			return err
		}
		drop(f.w, fault.Kind == Reset)
		return http.ErrAbortHandler
	case Hang:
		if err := f.drain(); err != nil {
			return err
		}
		<-f.r.Context().Done()
		return f.r.Context().Err()
	case Truncate:
		if err := f.drain(); err != nil {
			return err
		}
		return http.ErrAbortHandler
	case ErrorEvent:
		if err := f.drain(); err != nil {
			return err
		}
		if err := f.raw([]byte(fault.errorFrame())); err != nil {
			return err
		}
		return http.ErrAbortHandler
	case Malformed:
		*ev = (*ev)[:max(len(*ev)/2, len("data: {"))]
	case Huge:
		return f.emit(fmt.Appendf(nil,
			`data: {"id":"chatcmpl-huge","object":"chat.completion.chunk","created":0,"model":"","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
			strings.Repeat("h", max(fault.Size, 0))))
	}
	return nil
}

// rewrite changes an event's object; nil drops the event.
func (f *faultWriter) rewrite(ev []byte) []byte {
	if f.has(NullError) == nil && f.has(NoUsage) == nil {
		return ev
	}
	head, data, ok := bytes.Cut(ev, []byte("data: {"))
	if !ok {
		return ev
	}
	body := f.rewriteObject(append([]byte("{"), data...), true)
	if body == nil {
		return nil
	}
	return append(append(head[:len(head):len(head)], "data: "...), body...)
}

// emit frames an event and sends it, or adds it to its batch.
func (f *faultWriter) emit(ev []byte) error {
	out := append(ev[:len(ev):len(ev)], "\n\n"...)
	if f.has(Ping) != nil {
		out = append([]byte("event: ping\ndata: {\"type\":\"ping\"}\n\n"), out...)
	}
	if f.has(Comments) != nil {
		out = append([]byte(": still here\n\n"), out...)
	}
	batch := f.has(Batch)
	if batch == nil {
		return f.raw(out)
	}
	f.batch = append(f.batch, out...)
	if f.inside++; f.inside < batch.every() {
		return nil
	}
	return f.sendBatch()
}

func (f *faultWriter) sendBatch() error {
	out := f.batch
	f.batch, f.inside = nil, 0
	if len(out) == 0 {
		return nil
	}
	return f.raw(out)
}

// drain sends merged and batched events.
func (f *faultWriter) drain() error {
	if held := f.merged.take(); held != nil {
		if err := f.emit(held); err != nil {
			return err
		}
	}
	return f.sendBatch()
}

// raw writes bytes to the connection in the writes that the faults require.
func (f *faultWriter) raw(b []byte) error {
	if f.stream && f.has(CRLF) != nil {
		b = bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
	}
	step := len(b)
	if f.has(Bytewise) != nil {
		step = 1
	}
	for len(b) > 0 {
		var to io.Writer = f.w
		if f.gz != nil {
			to = f.gz
		}
		if _, err := to.Write(b[:step]); err != nil {
			return err
		}
		if err := f.flush(); err != nil {
			return err
		}
		b = b[step:]
	}
	return nil
}

func (f *faultWriter) flush() error {
	if f.gz != nil {
		if err := f.gz.Flush(); err != nil {
			return err
		}
	}
	return f.rc.Flush()
}

// finish sends the rest after the inner handler has returned. Errors mean that the client has left.
func (f *faultWriter) finish() {
	if f.status == 0 {
		f.WriteHeader(http.StatusOK)
	}
	if !f.stream {
		f.finishWhole()
		return
	}
	if f.err != nil && !errors.Is(f.err, http.ErrAbortHandler) {
		return
	}
	if f.err == nil {
		if f.err = f.drain(); f.err != nil {
			return
		}
		if len(f.buf) > 0 && f.raw(f.buf) != nil {
			return
		}
	}
	f.closeStream()
}

// closeStream ends a stream's body and, if a fault requires it, its connection.
func (f *faultWriter) closeStream() {
	if f.gz != nil && f.gz.Close() != nil {
		return
	}
	if f.has(CloseEach) == nil || f.rc.Flush() != nil {
		return
	}
	// net/http does not end the body of a hijacked connection.
	write(f.w, []byte("0\r\n\r\n"))
}
