package engines

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tierway/telemetry"
)

// traced begins the span of a request that names a trace, as checks of health do
// not. What it returns is called when the request is over.
func (e *Engine) traced(r *http.Request, path string) func(err error) {
	if e.c.Traces == nil || r.Header.Get("Traceparent") == "" {
		return func(error) {}
	}
	c := e.c.Traces.Begin(r.Header, true, e.c.Clock())
	return func(err error) {
		c.End([]telemetry.Span{spanOf(path, e.c.Model, e.c.Clock(), accountOf(r.Context()).made, err != nil)})
	}
}

// spanOf describes a request of the engine, by the name that vLLM gives its own.
func spanOf(path, model string, end time.Time, made usage, failed bool) telemetry.Span {
	attrs := []attribute.KeyValue{attribute.String(telemetry.AttrHTTPRoute, path)}
	if model != "" {
		attrs = append(attrs, attribute.String(telemetry.AttrGenAIAnswered, model))
	}
	if made != (usage{}) {
		attrs = append(attrs, attribute.Int(telemetry.AttrGenAIInput, made.prompt),
			attribute.Int(telemetry.AttrGenAICached, made.cached), attribute.Int(telemetry.AttrGenAIOutput, made.output))
	}
	return telemetry.Span{Name: telemetry.SpanEngine, End: end, Error: failed, Attributes: attrs}
}
