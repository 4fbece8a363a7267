package traces

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"tierway/e2e/rig"
)

// span is one exported span.
type span struct {
	service, version, schema string
	trace, id, parent        string // in hexadecimal
	state, name, kind        string
	failed                   bool
	attrs                    map[string]string
	events                   []event
	links                    []string // trace:span
	start, end               time.Time
}

type event struct {
	name  string
	attrs map[string]string
}

// receiver is a collector for OTLP over HTTP.
type receiver struct {
	*httptest.Server
	t *testing.T

	before func(*http.Request) // called before an answer, and set before the first; nil: nothing

	mu    sync.Mutex // guards spans
	spans []span
}

// newReceiver starts a collector that accepts everything.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP receives an export.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var asked coltracepb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &asked)
	}
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s with %q is no export: %v", req.URL.Path, req.Header.Get("Content-Type"), err)
	}
	if r.before != nil {
		r.before(req)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range asked.ResourceSpans {
		resource := plain(rs.Resource.GetAttributes())
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				one := read(s)
				one.service, one.version, one.schema = resource["service.name"], resource["service.version"], rs.SchemaUrl
				r.spans = append(r.spans, one)
			}
		}
	}
}

func read(s *tracepb.Span) span {
	one := span{trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId),
		parent: hex.EncodeToString(s.ParentSpanId), state: s.TraceState,
		name: s.Name, kind: strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_")),
		failed: s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR,
		attrs:  plain(s.Attributes), start: time.Unix(0, int64(s.StartTimeUnixNano)),
		end: time.Unix(0, int64(s.EndTimeUnixNano))}
	for _, e := range s.Events {
		one.events = append(one.events, event{name: e.Name, attrs: plain(e.Attributes)})
	}
	for _, l := range s.Links {
		one.links = append(one.links, hex.EncodeToString(l.TraceId)+":"+hex.EncodeToString(l.SpanId))
	}
	return one
}

// plain returns attributes as text.
func plain(list []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.Key] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			m[kv.Key] = fmt.Sprint(v.DoubleValue)
		case *commonpb.AnyValue_BoolValue:
			m[kv.Key] = fmt.Sprint(v.BoolValue)
		}
	}
	return m
}

// all returns the spans so far.
func (r *receiver) all() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// tree holds the spans of one request.
type tree struct {
	t    *testing.T
	root span
	all  []span
}

// request waits for the whole trace of the request with an id: all spans of the gateway and the spans
// of the given number of engines.
func (r *receiver) request(id string, engines int) tree {
	r.t.Helper()
	var found tree
	rig.Eventually(r.t, func() error {
		all := r.all()
		at := slices.IndexFunc(all, func(s span) bool { return s.attrs["tierway.request_id"] == id })
		if at < 0 {
			return errors.New("the request " + id + " is not exported")
		}
		found = tree{t: r.t, root: all[at]}
		seen := 0
		for _, s := range all {
			if s.trace == found.root.trace {
				found.all = append(found.all, s)
			}
			if s.trace == found.root.trace && s.service == engineService {
				seen++
			}
		}
		if seen < engines {
			return fmt.Errorf("%d of %d engines have exported: %v", seen, engines, found.names())
		}
		return nil
	})
	return found
}

func (tr tree) names() (names []string) {
	for _, s := range tr.all {
		names = append(names, s.name)
	}
	return names
}

// named returns the spans with a name, in the order of their start.
func (tr tree) named(name string) (found []span) {
	for _, s := range tr.all {
		if s.name == name {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b span) int { return a.start.Compare(b.start) })
	return found
}

// one returns the only span with a name.
func (tr tree) one(name string) span {
	tr.t.Helper()
	found := tr.named(name)
	if len(found) != 1 {
		tr.t.Fatalf("%d spans are named %q; there are %q", len(found), name, tr.names())
	}
	return found[0]
}

// wantAttrs compares some attributes of a span.
func (tr tree) wantAttrs(s span, want map[string]string) {
	tr.t.Helper()
	for key, value := range want {
		if got, there := s.attrs[key]; got != value || there != (value != "") {
			tr.t.Errorf("%s: %s is %q, want %q", s.name, key, got, value)
		}
	}
}

// checkNesting checks that all other spans of the gateway are children of the request's span and lie
// within its time.
func (tr tree) checkNesting() {
	tr.t.Helper()
	const rounding = time.Millisecond // records hold microseconds
	for _, s := range tr.all {
		if s.service != gatewayService || s.id == tr.root.id {
			continue
		}
		if s.parent != tr.root.id {
			tr.t.Errorf("%s is a child of %q, not of the request's span %q", s.name, s.parent, tr.root.id)
		}
		if s.start.Before(tr.root.start.Add(-rounding)) || s.end.After(tr.root.end.Add(rounding)) || s.end.Before(s.start) {
			tr.t.Errorf("%s lasts from %v to %v, the request from %v to %v", s.name, s.start, s.end, tr.root.start, tr.root.end)
		}
	}
}
