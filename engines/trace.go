package engines

import (
	"math/rand/v2"
	"net/http"
	"time"

	"tierway/telemetry"
)

// traced is one request of an engine that exports traces.
type traced struct {
	name, model string
	begun, end  time.Time
	made        usage
	failed      bool
}

// traced begins the span of a request that names a trace, as checks of health do
// not. What it returns is called when the request is over.
func (e *Engine) traced(r *http.Request, path string) func(err error) {
	if e.c.Traces == nil || r.Header.Get("Traceparent") == "" {
		return func(error) {}
	}
	c := e.c.Traces.Begin(r.Header, true, rand.Uint64)
	t := &traced{name: path, model: e.c.Model, begun: e.c.Clock()}
	return func(err error) {
		t.end, t.made, t.failed = e.c.Clock(), accountOf(r.Context()).made, err != nil
		e.c.Traces.Export(c, t)
	}
}

// Len is part of telemetry.Spans.
func (t *traced) Len() int { return 1 }

// Spans is part of telemetry.Spans: one span, named as vLLM names its own.
func (t *traced) Spans(telemetry.TraceContext) []telemetry.Span {
	attrs := []telemetry.Attr{telemetry.String(telemetry.AttrHTTPRoute, t.name)}
	if t.model != "" {
		attrs = append(attrs, telemetry.String(telemetry.AttrGenAIAnswered, t.model))
	}
	if u := t.made; u != (usage{}) {
		attrs = append(attrs, telemetry.Int(telemetry.AttrGenAIInput, int64(u.prompt)),
			telemetry.Int(telemetry.AttrGenAICached, int64(u.cached)), telemetry.Int(telemetry.AttrGenAIOutput, int64(u.output)))
	}
	return []telemetry.Span{{Name: telemetry.SpanEngine, Kind: telemetry.KindServer, Start: t.begun, End: t.end, Error: t.failed, Attributes: attrs}}
}
