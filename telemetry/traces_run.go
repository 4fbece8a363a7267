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

// Run makes and sends spans until ctx ends, then for at most three seconds more
// what is there still, and returns. It is called once.
func (t *Traces) Run(ctx context.Context) {
	if t == nil {
		return
	}
	last, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() {
		late := time.AfterFunc(flushFor, cut)
		context.AfterFunc(last, func() { late.Stop() })
	})()
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case r := <-t.queue:
			if t.make(r); len(t.batch.spans) >= t.most {
				t.send(last)
			}
		case <-tick.C:
			t.send(last)
		case <-ctx.Done():
		}
	}
	t.flush(last)
}

// flush sends what is there still, and drops what is not sent in time.
func (t *Traces) flush(ctx context.Context) {
	t.closed.Store(true)
	for {
		select {
		case r := <-t.queue:
			if ctx.Err() != nil {
				t.queued.Add(-r.n)
				t.dropped.Add(r.n)
				continue
			}
			if t.make(r); len(t.batch.spans) >= t.most {
				t.send(ctx)
			}
			continue
		default:
		}
		break
	}
	t.send(ctx)
	_ = t.exporter.Shutdown(ctx) // it holds nothing that could be lost
}

// make turns a record into spans. A record on which that panics is not exported;
// all others are.
func (t *Traces) make(r record) {
	had := len(t.batch.spans)
	err := t.recover("making the spans of a request", func() error {
		makeSpans(t.tracer, r.c, r.spans.Spans(r.c))
		return nil
	})
	if err != nil {
		clear(t.batch.spans[had:])
		t.batch.spans = t.batch.spans[:had]
		t.failed.Add(r.n)
	}
	t.queued.Add(int64(len(t.batch.spans)-had) - r.n)
}

// send sends the spans that were made. A batch that the collector does not take is
// lost: there are new ones behind it.
func (t *Traces) send(ctx context.Context) {
	n := int64(len(t.batch.spans))
	if n > 0 {
		bounded, cancel := context.WithTimeout(ctx, t.patience)
		err := t.recover("sending spans", func() error { return t.exporter.ExportSpans(bounded, t.batch.spans) })
		cancel()
		lost := int64(0)
		if err != nil {
			lost = min(n, rejected(err, n))
		}
		t.exported.Add(n - lost)
		t.failed.Add(lost)
		t.queued.Add(-n)
		if err != nil {
			t.worries.cause = t.harmless(err)
		}
		clear(t.batch.spans)
		t.batch.spans = t.batch.spans[:0]
	}
	if cause, lost, due := t.worries.due(time.Now(), t.failed.Load()+t.dropped.Load()); due {
		t.log.Warn("spans are lost: the collector of traces does not take them", "endpoint", t.endpoint, "error", cause, "lost", lost)
	}
}

// rejected is how many of n spans an export's error stands for. A collector that
// took a part says how many it did not, which the exporter has as text only.
func rejected(err error, n int64) int64 {
	text := err.Error()
	at := strings.LastIndexByte(text, '(')
	var part int64
	if strings.Contains(text, "OTLP partial success:") && at >= 0 {
		if _, err := fmt.Sscanf(text[at:], "(%d spans rejected)", &part); err == nil && part >= 0 {
			return part
		}
	}
	return n
}

// worries is what there is to log about lost spans: at once, then after a minute,
// then ever more rarely up to once an hour, and anew after two hours without a
// line.
type worries struct {
	cause string    // of the last failure
	told  time.Time // when a line was written
	pause time.Duration
	lost  int64 // as of then
}

// Bounds of the pause between two lines.
const (
	firstPause = time.Minute
	mostPause  = time.Hour
)

// due tells whether a line is to be written at now, having lost that many spans in
// all, and how many were lost since the one before.
func (w *worries) due(now time.Time, lost int64) (cause string, since int64, due bool) {
	if lost == w.lost || !w.told.IsZero() && now.Sub(w.told) < w.pause {
		return "", 0, false
	}
	if w.told.IsZero() || now.Sub(w.told) >= 2*mostPause {
		w.pause = firstPause / 2
	}
	since = lost - w.lost
	w.told, w.lost, w.pause = now, lost, min(2*w.pause, mostPause)
	cause, w.cause = w.cause, ""
	if cause == "" {
		cause = "it is slower than requests come"
	}
	return cause, since, true
}

// harmless is an error's text without the collector's path, which may be a secret,
// and without what a stranger answered at length.
func (t *Traces) harmless(err error) string {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "malformed HTTP response"), strings.Contains(text, "readLoopPeekFailLocked"): // as net/http has it of HTTP/2 frames, after a request and before one
		return "it answers something else than HTTP/1, as a port for gRPC does; give its port for OTLP over HTTP, by default 4318"
	case errors.Is(err, context.Canceled):
		return "the gateway stopped before it answered"
	}
	if body := strings.Index(text, "body:"); body >= 0 {
		text = strings.TrimRight(text[:body], " (")
	}
	text = strings.ReplaceAll(text, t.url, t.endpoint)
	if len(text) > 200 { // enough for any error of the network's
		text = text[:200]
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

var _ sdktrace.SpanProcessor = (*batch)(nil)
