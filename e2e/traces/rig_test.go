package traces

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/telemetry"
)

const (
	gatewayService = "tierway"
	engineService  = "engine"

	limitedKey = "the-key-of-one-request-a-minute"

	// A caller's trace.
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
	sampled     = "00-" + callerTrace + "-" + callerSpan + "-01"
	unsampled   = "00-" + callerTrace + "-" + callerSpan + "-00"

	// prompt is the text of most requests. No span may have it.
	prompt = "tell me the secret of the sphinx"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// traceRig is a rig with a collector that gateway and engines export to.
type traceRig struct {
	*rig.Rig
	collector *receiver
}

// newRig starts n engines.
func newRig(t *testing.T, n int) *traceRig {
	t.Helper()
	collector := newReceiver(t)
	config := engines.Config{CacheTokens: 1 << 16, Ended: exporter(engineTraces(t, collector.URL)),
		Script: func(string, []byte) engines.Script { return engines.Script{Text: "one two three"} }}
	r := rig.New(t, n, config, rig.Settings{
		"auth": fmt.Sprintf("{ keys: [ { name: acme, sha256: %s }, "+
			"{ name: slow, sha256: %s, limits: { rpm: 1, burst: 1 } } ] }",
			rig.Digest(rig.TenantKey), rig.Digest(limitedKey)),
		"store":  `{ sql: "" }`,
		"models": `{ auto: classify }`,
	}).Listen()
	r.Key = rig.TenantKey
	return &traceRig{Rig: r, collector: collector}
}

// engineTraces exports the engines' spans until the test ends.
func engineTraces(t *testing.T, collector string) *telemetry.Traces {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	traces := telemetry.NewTraces(telemetry.TracesConfig{OTLP: collector, Sample: 1, Service: engineService,
		Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { traces.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	return traces
}

// exporter exports a span for each request with a trace, under the name that vLLM uses.
func exporter(traces *telemetry.Traces) func(*http.Request, engines.Account) {
	return func(r *http.Request, a engines.Account) {
		if r.Header.Get("Traceparent") == "" { // health checks have no trace
			return
		}
		attrs := []attribute.KeyValue{semconv.HTTPRouteKey.String(r.URL.Path), semconv.GenAIResponseModelKey.String("sim")}
		if a.Tokens != (engines.Tokens{}) {
			attrs = append(attrs, semconv.GenAIUsageInputTokensKey.Int64(a.Prompt),
				semconv.GenAIUsageCacheReadInputTokensKey.Int64(a.Cached), semconv.GenAIUsageOutputTokensKey.Int64(a.Output))
		}
		traces.Begin(r.Header, true, a.Began).End(engineSpan{
			Name: "llm_request", End: time.Now(), Error: !a.Whole, Attributes: attrs})
	}
}

// engineSpan is the engine's only span of a request.
type engineSpan telemetry.Span

func (s engineSpan) Len() int { return 1 }
func (s engineSpan) Spans(list []attribute.KeyValue) ([]telemetry.Span, []attribute.KeyValue) {
	return []telemetry.Span{telemetry.Span(s)}, list
}

// soon makes the gateway export often, so that tests wait less.
const soon = "OTEL_BSP_SCHEDULE_DELAY=20"

// serve starts the gateway. telemetry and perWorker are keys of the setting telemetry and of each
// worker, in YAML.
func (r *traceRig) serve(telemetry, perWorker string, env ...string) {
	r.T.Helper()
	own := rig.Settings{"telemetry": "{ " + telemetry + " }", "tiers": r.Tiers(perWorker, "policy: { name: chwbl }")}
	r.Serve(own, append([]string{soon}, env...)...)
	r.APIKey = rig.TenantKey // sent by the SDKs
	r.WaitUntilReady()
}

// traced is serve with the rig's collector.
func (r *traceRig) traced(perWorker string) {
	r.T.Helper()
	r.serve("otlp: "+r.collector.URL, perWorker)
}

// body returns a chat with one message.
func body(text string, stream bool) string {
	return rig.Chat("auto", text, fmt.Sprintf(`"stream":%v,"max_tokens":20`, stream))
}

// ask posts a chat as the request id and returns its status and headers. header are
// pairs beside the key; an empty value leaves the header out.
func (r *traceRig) ask(id, body string, header ...string) (int, http.Header) {
	got := r.Post("/v1/chat/completions", body, append([]string{"X-Request-Id", id}, header...)...)
	if got.Err != nil {
		r.T.Errorf("%s: %v", id, got.Err)
	}
	return got.Status, got.Header
}
