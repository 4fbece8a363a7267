package hooks

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"tierway/memnet"
	"tierway/workers"
)

// unbounded is memory without a limit. It counts what is reserved.
type unbounded struct{ reserved int64 }

func (u *unbounded) Reserve(n int64) error { u.reserved += n; return nil }

func (u *unbounded) Return(n int64) { u.reserved -= n }

// testOptions returns the options of hooks on a network.
func testOptions(network *memnet.Network) Options {
	return Options{Log: slog.New(slog.DiscardHandler), Rand: func() float64 { return 0.5 }, Dial: network.Dial}
}

// authority writes a server's certificate as the file of an authority.
func authority(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startTLS serves over TLS on a network.
func startTLS(t *testing.T, network *memnet.Network, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := network.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler,
		0)}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

type allowing struct {
	extproc.UnimplementedExternalProcessorServer
}

func (allowing) Process(extproc.ExternalProcessor_ProcessServer) error { return nil }

// TestHooksVerifyTheCertificateOfTheirService over both protocols: with its authority, and without.
func TestHooksVerifyTheCertificateOfTheirService(t *testing.T) {
	network := memnet.New()
	web := startTLS(t, network, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"action":"allow"}`)
	}))
	ca := authority(t, web)
	l, err := network.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates})))
	extproc.RegisterExternalProcessorServer(s, allowing{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	for _, c := range []struct {
		kind, url string
		tls       *workers.TLS
		want      Result
	}{
		{TypeHTTP, web.URL, &workers.TLS{CA: ca}, Allowed},
		{TypeHTTP, web.URL, nil, Failed},
		{TypeExtProc, "grpcs://" + l.Addr().String(), &workers.TLS{CA: ca}, Allowed},
		{TypeExtProc, "grpcs://" + l.Addr().String(), nil, Failed},
		{TypeExtProc, l.Addr().String(), nil, Failed}, // without TLS
	} {
		spec := Spec{Config: Config{Name: "a", Type: c.kind, URL: c.url, TLS: c.tls, Timeout: time.Minute}.Resolved(),
			MaxReply: 1 << 20}
		chain := NewChain([]Spec{spec}, time.Minute, nil, testOptions(network))
		memory := &unbounded{}
		got := chain.Hooks[0].Call(t.Context(), &Request{Memory: memory, Body: []byte("{}")}, 30*time.Second)
		if got.Result != c.want || memory.reserved != 0 {
			t.Errorf("%s %s: %v (%s), %d bytes reserved", c.kind, c.url, got.Result, got.Cause, memory.reserved)
		}
		chain.Retire(nil)
	}
}

// TestMetadataServicesAreNeverCalled, whatever the URL says.
func TestMetadataServicesAreNeverCalled(t *testing.T) {
	for _, c := range [][2]string{{TypeHTTP, "http://169.254.169.254/"}, {TypeExtProc, "169.254.169.254:80"},
		{TypeExtProc, "grpcs://[fd00:ec2::254]:443"}} {
		_, _, err := CheckURL(c[0], c[1])
		if err == nil || !strings.Contains(err.Error(), "metadata address, which is neither a worker nor a hook") {
			t.Errorf("%s: %v", c[1], err)
		}
	}
}

// TestMessagesAreThoseOfEnvoy encodes with this package and decodes with Envoy's types, and the reverse.
func TestMessagesAreThoseOfEnvoy(t *testing.T) {
	r := &Request{ID: "id", Tenant: "acme", Path: "/v1/x", Model: "mödel",
		Header: http.Header{"X-Session-Id": {"s"}, "Cookie": {"c"}}, Trace: http.Header{"Traceparent": {"00-1"}}}
	var m extproc.ProcessingRequest
	if err := proto.Unmarshal(headersMessage(r)[0], &m); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, h := range m.GetRequestHeaders().GetHeaders().GetHeaders() {
		got[h.GetKey()] = string(h.GetRawValue())
	}
	if diff := cmp.Diff(map[string]string{":method": "POST", ":path": "/v1/x", "content-type": "application/json",
		"x-request-id": "id", "x-tenant": "acme", "x-session-id": "s", "traceparent": "00-1"}, got); diff != "" {
		t.Errorf("headers: -want +got:\n%s", diff)
	}
	if a := m.GetAttributes()[attributesName].AsMap(); a["model"] != "mödel" || a["tenant"] != "acme" ||
		a["path"] != "/v1/x" {
		t.Errorf("attributes: %v", a)
	}
	for _, body := range []string{"", "{}", strings.Repeat("x", 70000)} {
		var text []byte
		for _, part := range bodyMessage([]byte(body)) {
			text = append(text, part...)
		}
		if err := proto.Unmarshal(text, &m); err != nil || string(m.GetRequestBody().GetBody()) != body ||
			!m.GetRequestBody().GetEndOfStream() {
			t.Errorf("a body of %d bytes: %v", len(body), err)
		}
	}
	common := &extproc.CommonResponse{
		Status: extproc.CommonResponse_CONTINUE_AND_REPLACE,
		HeaderMutation: &extproc.HeaderMutation{RemoveHeaders: []string{"x-a"}, SetHeaders: []*corev3.HeaderValueOption{
			{Header: &corev3.HeaderValue{Key: "x-b", Value: "plain"}, AppendAction: 2},
			{Header: &corev3.HeaderValue{Key: "x-c", RawValue: []byte("raw")}}}},
		BodyMutation:    &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: []byte("new")}},
		ClearRouteCache: true,
	}
	want := processingAnswer{kind: bodyAnswer, replace: true, set: []Header{{"x-b", "plain"}, {"x-c", "raw"}},
		removed: []string{"x-a"}, hasBody: true, body: []byte("new")}
	for _, c := range []struct {
		sent *extproc.ProcessingResponse
		want processingAnswer
	}{
		{&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
			RequestBody: &extproc.BodyResponse{Response: common}}}, want},
		{&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{}},
			processingAnswer{kind: headersAnswer}},
		{&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{}},
			processingAnswer{kind: otherAnswer}},
		{&extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{
			ImmediateResponse: &extproc.ImmediateResponse{Status: &typev3.HttpStatus{Code: 451}, Body: []byte("why"),
				Headers: common.GetHeaderMutation(), Details: "d"}}}, processingAnswer{kind: immediateAnswer, status: 451,
			set: want.set, removed: want.removed, body: []byte("why")}},
	} {
		text, err := proto.Marshal(c.sent)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseAnswer(text)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(processingAnswer{})); err != nil || diff != "" {
			t.Errorf("%v: %v\n%s", c.sent, err, diff)
		}
	}
}

// FuzzParseAnswer: no bytes of a service panic, and every message that Envoy's types read is read.
func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x00})
	f.Add([]byte{0x3a, 0x04, 0x0a, 0x02, 0x08, 0x01})
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseAnswer(text)
		var m extproc.ProcessingResponse
		if proto.Unmarshal(text, &m) == nil && err != nil {
			t.Errorf("%v is not read: %v (%+v)", &m, err, a)
		}
	})
}

func TestReasonsArePrintableAndShort(t *testing.T) {
	for text, want := range map[string]string{
		" two\n\twords\x00\x1b[31m ": "two words[31m", "ü\xff\u202e日本": "ü日本", strings.Repeat("é", 900): strings.Repeat("é", MaxReason),
		"": "",
	} {
		if got := reasonOf(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestChangesOfHeaders: only headers that choose tier, class and session change.
func TestChangesOfHeaders(t *testing.T) {
	var r Reply
	r.setHeader("x-model-tier", "large")
	r.setHeader("X-SESSION-ID", "s")
	r.setHeader("x-whatever", "a")
	r.setHeader("content-length", "7")
	r.removeHeader("authorization")
	r.removeHeader("x-request-priority")
	if diff := cmp.Diff([]Header{{"X-Model-Tier", "large"}, {"X-Session-Id", "s"}, {"X-Request-Priority", ""}},
		r.Headers); diff != "" ||
		r.Ignored != 2 || r.Result != Allowed {
		t.Errorf("%+v\n%s", r, diff)
	}
	for name, value := range map[string]string{"x-model-tier": "a\nb", "x-session-id": strings.Repeat("a", 300),
		"Authorization": "x",
		":path":         "/", "host": "h", "X-Tenant-ID": "t", "x-tenant": "t", "x-api-key": "k"} {
		var r Reply
		if r.setHeader(name, value); r.Result != Refused || r.Cause == "" || len(r.Headers) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestCallsAfterARemovalStillWork: a request keeps the hooks of its configuration.
func TestCallsAfterARemovalStillWork(t *testing.T) {
	network := memnet.New()
	web := network.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"action":"allow"}`)
	}))
	defer web.Close()
	l, err := network.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	extproc.RegisterExternalProcessorServer(s, allowing{})
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	chain := NewChain([]Spec{
		{Config: Config{Name: "a", URL: web.URL}.Resolved(), MaxReply: 1 << 20},
		{Config: Config{Name: "b", Type: TypeExtProc, URL: l.Addr().String()}.Resolved(), MaxReply: 1 << 20},
	}, time.Minute, nil, testOptions(network))
	for range 2 {
		for _, h := range chain.Hooks {
			got := h.Call(context.Background(), &Request{Memory: &unbounded{}, Body: []byte("{}")}, time.Minute)
			if got.Result != Allowed {
				t.Errorf("%s: %v %s", h.Name, got.Result, got.Cause)
			}
		}
		if removed := chain.Retire(nil); len(removed) != 2 {
			t.Errorf("removed %v", removed)
		}
	}
	if e := chain.Hooks[1].caller.(*extProc); e.conn != nil || e.users != 0 {
		t.Error("the removed hook keeps its connection")
	}
}

func TestAPanicOfACallReleasesTheHook(t *testing.T) {
	h := NewChain([]Spec{{Config: Config{Name: "a", URL: "http://127.0.0.1:1"}.Resolved()}}, time.Minute, nil,
		testOptions(memnet.New())).Hooks[0]
	h.caller = panicking{}
	func() {
		defer func() { _ = recover() }()
		h.Call(t.Context(), &Request{}, time.Minute)
	}()
	if s := h.State(); s.Inflight != 0 || h.gate.View().ConsecutiveFailures != 1 {
		t.Errorf("%+v", s)
	}
}

type panicking struct{}

func (panicking) call(context.Context, *Request) Reply { panic(errors.New("test")) }

func (panicking) close() {}
