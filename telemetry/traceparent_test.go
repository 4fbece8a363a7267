package telemetry

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	someTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	someSpan   = "00f067aa0ba902b7"
	someParent = "00-" + someTrace + "-" + someSpan + "-01"
)

func TestOnlyAWellFormedTraceparentIsRead(t *testing.T) {
	long := strings.Repeat("0", 32)
	for header, valid := range map[string]bool{
		someParent: true,
		"00-" + someTrace + "-" + someSpan + "-00":     true,
		"00-" + someTrace + "-" + someSpan + "-ff":     true, // flags that are not known yet
		"cc-" + someTrace + "-" + someSpan + "-01":     true, // a version that is not known yet
		"cc-" + someTrace + "-" + someSpan + "-01-etc": true,
		"cc-" + someTrace + "-" + someSpan + "-01etc":  false,
		"ff-" + someTrace + "-" + someSpan + "-01":     false,
		"00-" + someTrace + "-" + someSpan + "-01-etc": false,
		"00-" + someTrace + "-" + someSpan + "-01-":    false,
		"00-" + long + "-" + someSpan + "-01":          false,
		"00-" + someTrace + "-0000000000000000-01":     false,
		strings.ToUpper(someParent):                    false,
		" " + someParent:                               false,
		someParent + " ":                               false,
		"00_" + someParent[3:]:                         false,
		"0x-" + someTrace + "-" + someSpan + "-01":     false,
		someParent[:54]:                                false,
		"":                                             false,
	} {
		if got := parseTraceparent(header).valid; got != valid {
			t.Errorf("%q is valid: %v, want %v", header, got, valid)
		}
	}
}

func TestSeveralTraceparentsAreNone(t *testing.T) {
	if readCaller(http.Header{"Traceparent": {someParent, someParent}}).valid {
		t.Error("one of two was taken")
	}
	if c := readCaller(http.Header{"Tracestate": {"a=b"}}); c.tracestate() != "" {
		t.Error("a tracestate without a traceparent was taken")
	}
}

func TestTracestateLinesAreOneList(t *testing.T) {
	for want, lines := range map[string][]string{
		"":                 nil,
		"a=1":              {"a=1"},
		"a=1,b=2":          {"a=1", "b=2"},
		"a@b=1, c/d*e-f=~": {"a@b=1, c/d*e-f=~"},
	} {
		if got := (caller{valid: true, states: lines}).tracestate(); got != want {
			t.Errorf("%q became %q, want %q", lines, got, want)
		}
	}
	for _, bad := range []string{"a", "=1", "A=1", "a=1,a=2", "a=", "a=1=2", "a=\x7f", "a@=1", "@a=1", "a@B=1", "*a@b=1", ",", " ",
		strings.Repeat("a", 257) + "=1", "a=" + strings.Repeat("x", 257), strings.Repeat("t", 242) + "@s=1", "t@" + strings.Repeat("s", 15) + "=1",
		strings.Repeat("a=1,", 1000), "a=b\nlevel=error"} {
		if got := (caller{valid: true, states: []string{bad}}).tracestate(); got != "" {
			t.Errorf("%.40q was taken as %.40q", bad, got)
		}
	}
}

// FuzzTraceparent has the SDK's own reader as the judge. It refuses what the
// specification has every reader pass over: flags of version 00 that are not known.
func FuzzTraceparent(f *testing.F) {
	for _, seed := range []string{someParent, "cc-" + someTrace + "-" + someSpan + "-01-x", "ff" + someParent[2:], "", "00-00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got := parseTraceparent(header)
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": header})
		want := trace.SpanContextFromContext(ctx)
		if got.valid != want.IsValid() {
			if got.valid && strings.HasPrefix(header, "00") && got.flags > 3 {
				return
			}
			t.Fatalf("%q: valid %v, the SDK says %v", header, got.valid, want.IsValid())
		}
		if got.valid && (trace.TraceID(got.trace) != want.TraceID() || trace.SpanID(got.span) != want.SpanID() || got.flags&1 != 0 != want.IsSampled()) {
			t.Fatalf("%q: read %+v, the SDK %v", header, got, want)
		}
	})
}

// FuzzTracestate has the SDK's own reader as the judge.
func FuzzTracestate(f *testing.F) {
	for _, seed := range []string{"a=1", "a@b=1, c=2", "a=1,,b=2", "a=1, ,b=2", "a= b ", "a=1,a=2", "\ta=1\t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		state, err := trace.ParseTraceState(s)
		blank := false // the SDK refuses members of white space, which are empty ones
		for m := range strings.SplitSeq(s, ",") {
			blank = blank || m != "" && strings.Trim(m, " \t") == ""
		}
		if got, want := validState(s), err == nil && state.Len() > 0; got != want && !blank {
			t.Fatalf("%q: valid %v, the SDK says %v (%v)", s, got, want, err)
		}
	})
}

func TestAWorkerIsSentWhatTheSDKReads(t *testing.T) {
	from := parseTraceparent(someParent)
	for _, c := range []TraceContext{
		{On: true, TraceID: from.trace, Sampled: true},
		{On: true, TraceID: from.trace},
		{On: true, TraceID: from.trace, Sampled: true, Random: true},
	} {
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": c.Traceparent(0xf067aa0ba902b7)})
		got := trace.SpanContextFromContext(ctx)
		if got.TraceID().String() != someTrace || got.SpanID().String() != someSpan || got.TraceFlags() != c.flags() {
			t.Errorf("%+v was sent as %v", c, got)
		}
	}
	if s := (TraceContext{}).Traceparent(1); s != "" {
		t.Errorf("without tracing a worker is sent %q", s)
	}
}
