package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// add queues the spans of a request, or drops them if the queue is full or closed. The SDK's
// own queue also drops spans, but does not report how many. It has room for all queued spans.
func (t *Traces) add(c TraceContext, spans SpanMaker) {
	n := int64(spans.Len())
	if t.queued.Add(n) <= t.queueLimit && !t.closed.Load() &&
		t.recover("making spans", func() error { t.makeSpans(c, spans); return nil }) == nil {
		return
	}
	t.queued.Add(-n)
	t.dropped.Add(n)
}

// makeSpans makes the spans of one request. The SDK copies their attributes.
func (t *Traces) makeSpans(c TraceContext, maker SpanMaker) {
	t.making.Lock()
	defer t.making.Unlock()
	spans, list := maker.Spans(t.attributeBuffer[:0])
	c.endSpans(spans)
	clear(list) // the buffer must not keep a request's text in memory
	t.attributeBuffer = list
}

// countedExporter counts and logs the results of exports. A batch that the collector does not
// accept is lost.
type countedExporter struct {
	sdktrace.SpanExporter
	t *Traces
}

// ExportSpans is part of sdktrace.SpanExporter. The processor calls it on one goroutine.
func (e countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	n, lost := int64(len(spans)), int64(0)
	err := e.t.recover("sending spans", func() error { return e.SpanExporter.ExportSpans(ctx, spans) })
	if err != nil {
		lost = rejectedSpans(err, n)
	}
	e.t.exported.Add(n - lost)
	e.t.failed.Add(lost)
	e.t.queued.Add(-n)
	e.t.logLosses(err)
	return nil
}

// rejectedSpans returns how many of n spans failed with the error of an export. After a
// partial success, the SDK reports their number only in the text.
func rejectedSpans(err error, n int64) int64 {
	text := err.Error()
	if at := strings.LastIndexByte(text, '('); at >= 0 && strings.Contains(text, "OTLP partial success:") {
		var part int64
		if _, err := fmt.Sscanf(text[at:], "(%d spans rejected)", &part); err == nil && 0 <= part && part <= n {
			return part
		}
	}
	return n
}

// logLosses writes at most one line per minute about lost spans. err is the error of the last
// export.
func (t *Traces) logLosses(err error) {
	lost := t.failed.Load() + t.dropped.Load()
	if lost == t.lossesLogged || !t.lossLoggedAt.IsZero() && time.Since(t.lossLoggedAt) < lossLogInterval {
		return
	}
	cause := "the collector is slower than the gateway produces spans"
	if err != nil {
		cause = t.redact(err)
	}
	t.log.Warn("spans lost: the trace collector does not accept them",
		"endpoint", t.endpoint, "cause", cause, "lost", lost-t.lossesLogged)
	t.lossLoggedAt, t.lossesLogged = time.Now(), lost
}

// redact returns the text of an error without the collector's path, which may be a secret, and
// without the collector's answer.
func (t *Traces) redact(err error) string {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	text, _, _ := strings.Cut(err.Error(), "body:")
	// net/http reports HTTP/2 frames with one of these texts, after a request or before it.
	if strings.Contains(text, "malformed HTTP response") || strings.Contains(text, "readLoopPeekFailLocked") {
		return "the collector does not speak HTTP/1.1, like a gRPC port; use its port for OTLP over HTTP, by default 4318"
	}
	words := strings.Fields(text)
	for i, word := range words {
		if strings.Contains(word, "://") {
			words[i] = t.endpoint
		}
	}
	text = strings.TrimRight(strings.Join(words, " "), " (")
	return strings.ToValidUTF8(text[:min(len(text), 200)], "\ufffd") // 200 bytes hold any network error
}
