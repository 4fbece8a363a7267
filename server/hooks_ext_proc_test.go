package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// processor is an ext_proc server on Envoy's own types. headers and body answer the messages of a request; a nil
// function continues, and a nil answer closes the stream.
type processor struct {
	extproc.UnimplementedExternalProcessorServer
	address string
	headers func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error)
	body    func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error)

	mu       sync.Mutex
	requests []*extproc.ProcessingRequest
	metadata metadata.MD
	streams  int // open ones
}

// newProcessor serves on the test's network.
func newProcessor(t *testing.T) *processor {
	l, err := networkOf(t).Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &processor{address: l.Addr().String()}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	extproc.RegisterExternalProcessorServer(s, p)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-served })
	return p
}

// Process implements extproc.ExternalProcessorServer.
func (p *processor) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	p.count(1)
	defer p.count(-1)
	md, _ := metadata.FromIncomingContext(stream.Context())
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.requests, p.metadata = append(p.requests, r), md
		p.mu.Unlock()
		answer := p.headers
		usual := &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{}}
		if r.GetRequestBody() != nil {
			answer = p.body
			usual = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{}}
		}
		if answer != nil {
			if usual, err = answer(r); usual == nil || err != nil {
				return err
			}
		}
		if err := stream.Send(usual); err != nil {
			return err
		}
	}
}

func (p *processor) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams += n
}

// received returns the messages of the last request.
func (p *processor) received() []*extproc.ProcessingRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.requests
	p.requests = nil
	return all
}

func (p *processor) line(more string) string {
	return fmt.Sprintf("{ name: guard, type: ext_proc, url: %q%s }", p.address, more)
}

// changesHeaders returns an answer to the headers or to the body with these changes.
func changesHeaders(pairs ...string) *extproc.CommonResponse {
	m := &extproc.HeaderMutation{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])}})
	}
	return &extproc.CommonResponse{HeaderMutation: m}
}

func toHeaders(c *extproc.CommonResponse) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extproc.HeadersResponse{Response: c}}}
}

func toBody(c *extproc.CommonResponse) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
		RequestBody: &extproc.BodyResponse{Response: c}}}
}

func changedBody(text string) *extproc.BodyMutation {
	return &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: []byte(text)}}
}

func immediate(code typev3.StatusCode, body string) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extproc.ImmediateResponse{Status: &typev3.HttpStatus{Code: code}, Body: []byte(body),
			Details: "internal words"}}}
}

// always returns a function with a constant answer.
func always(a *extproc.ProcessingResponse) func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) {
	return func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) { return a, nil }
}

// H4: a service on Envoy's types receives headers, attributes and the whole body.
func TestH4AServiceReceivesHeadersAttributesAndBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcessor(t)
		r, engine := newHookRig(t, plain, p.line(""))
		body := chatBody("small", strings.Repeat("Hi ", 1<<20), "") // larger than gRPC's window and default limit
		got := r.post("/v1/chat/completions", body, "X-Model-Tier", "small", "Authorization", "Bearer client-key",
			"Cookie", "a=b", "X-Other", "c")
		if got.status != 200 || got.header.Get("X-Tierway-Hooks") != "guard" || len(engine.Requests()) != 1 {
			t.Fatalf("%d %v %s", got.status, got.header, got.body)
		}
		all := p.received()
		if len(all) != 2 {
			t.Fatalf("the service received %d messages", len(all))
		}
		headers := map[string]string{}
		for _, h := range all[0].GetRequestHeaders().GetHeaders().GetHeaders() {
			headers[h.GetKey()] = string(h.GetRawValue())
		}
		for name, want := range map[string]string{":method": "POST", ":path": "/v1/chat/completions", "x-tenant": "anonymous",
			"x-model-tier": "small", "content-type": "application/json", "authorization": "", "cookie": "", "x-other": ""} {
			if headers[name] != want {
				t.Errorf("the header %s is %q, want %q", name, headers[name], want)
			}
		}
		if headers["x-request-id"] != got.header.Get("X-Request-Id") || all[0].GetRequestHeaders().GetEndOfStream() {
			t.Errorf("the headers are %v", headers)
		}
		attributes := all[0].GetAttributes()["envoy.filters.http.ext_proc"].AsMap()
		if fmt.Sprint(attributes) != "map[model:small path:/v1/chat/completions tenant:anonymous]" {
			t.Errorf("the attributes are %v", attributes)
		}
		if b := all[1].GetRequestBody(); string(b.GetBody()) != body || !b.GetEndOfStream() {
			t.Errorf("the body has %d bytes, end %v", len(b.GetBody()), b.GetEndOfStream())
		}
		synctest.Wait()
		if p.streams != 0 {
			t.Errorf("%d streams are open", p.streams)
		}
	})
}

// H4: header changes, body changes and immediate responses work, and a clean close continues.
func TestH4AnswersOfAServiceTakeEffect(t *testing.T) {
	changed := chatBody("small", "Changed", "")
	replace := &extproc.CommonResponse{Status: extproc.CommonResponse_CONTINUE_AND_REPLACE,
		BodyMutation: changedBody(changed)}
	for _, c := range []struct {
		name          string
		headers, body func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error)
		status        int
		result        string // of the header x-tierway-hooks
		sent          string // part of the engine's body
	}{
		{"continue", nil, nil, 200, "guard", "Hi"},
		{"closed at once", always(nil), nil, 200, "guard", "Hi"},
		{"closed at the body", nil, always(nil), 200, "guard", "Hi"},
		{"body", nil, always(toBody(&extproc.CommonResponse{BodyMutation: changedBody(changed)})), 200, "guard:transformed",
			"Changed"},
		{"replace at the headers", always(toHeaders(replace)), nil, 200, "guard:transformed", "Changed"},
		{"body with the headers without replace",
			always(toHeaders(&extproc.CommonResponse{BodyMutation: changedBody(changed)})),
			nil, 200, "guard", "Hi"},
		{"tier by header", always(toHeaders(changesHeaders("x-model-tier", "small"))), nil, 200, "guard:transformed", "Hi"},
		{"priority with the body", nil, always(toBody(changesHeaders("X-Request-Priority", "batch", "content-length", "7"))),
			200, "guard:transformed", "Hi"},
		{"other headers", always(toHeaders(changesHeaders("x-other", "a", "x-more", "b"))), nil, 200, "guard", "Hi"},
		{"immediate response", nil, always(immediate(typev3.StatusCode_Forbidden, `{"error":{"message":"no patients"}}`)), 403,
			"guard:rejected", ""},
		{"immediate response at the headers", always(immediate(typev3.StatusCode_Unauthorized, "no patients")), nil, 403,
			"guard:rejected", ""},
		{"immediate 500", nil, always(immediate(typev3.StatusCode_InternalServerError, "down")), 503, "guard:error", ""},
		{"tenant by header", always(toHeaders(changesHeaders("x-tenant", "other"))), nil, 503, "guard:refused", ""},
		{"key by header", always(toHeaders(changesHeaders("authorization", "Bearer other"))), nil, 503, "guard:refused", ""},
		{"path by header", nil, always(toBody(changesHeaders(":path", "/v1/embeddings"))), 503, "guard:refused", ""},
		{"stream", nil, always(toBody(&extproc.CommonResponse{BodyMutation: changedBody(chatBody("small", "a", `,"stream":true`))})),
			503, "guard:refused", ""},
		{"no body left", nil, always(toBody(&extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{
			Mutation: &extproc.BodyMutation_ClearBody{ClearBody: true}}})), 503, "guard:refused", ""},
		{"streamed body", nil, always(toBody(&extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{
			Mutation: &extproc.BodyMutation_StreamedResponse{StreamedResponse: &extproc.StreamedBodyResponse{}}}})), 503,
			"guard:error", ""},
		{"answer to another message", always(toBody(&extproc.CommonResponse{})), nil, 503, "guard:error", ""},
		{"answer to nothing", always(&extproc.ProcessingResponse{}), nil, 503, "guard:error", ""},
		{"long answer", nil, always(toBody(&extproc.CommonResponse{BodyMutation: changedBody(strings.Repeat("a", 2<<20))})),
			503,
			"guard:error", ""},
		{"status", func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) {
			return nil, grpcstatus.Error(codes.Internal, "Hi")
		}, nil, 503, "guard:error", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcessor(t)
			p.headers, p.body = c.headers, c.body
			r, engine := newHookRig(t, "max_body_bytes: 1MiB\n"+plain, p.line(", transform: true"))
			got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
			if got.status != c.status || got.header.Get("X-Tierway-Hooks") != c.result ||
				!strings.Contains(sentField(t, engine, "messages"), c.sent) {
				t.Errorf("%s: %d %q, the engine received %s", c.name, got.status, got.header.Get("X-Tierway-Hooks"),
					sentField(t, engine, "messages"))
			}
			if c.status == 403 && !strings.Contains(got.body, `"message":"no patients"`) {
				t.Errorf("%s: %s", c.name, got.body)
			}
			if h := r.last().Hooks[0]; strings.Contains(h.Error, "Hi") || (c.status == 503) != (h.Error != "") {
				t.Errorf("%s: the record is %+v", c.name, h)
			}
			switch c.name {
			case "priority with the body":
				if class := r.last().Class; class != "batch" {
					t.Errorf("%s: the class is %s", c.name, class)
				}
			case "other headers":
				if line := `tierway_hook_ignored_headers_total{hook="guard"} 2`; !strings.Contains(r.scrape(), line) {
					t.Errorf("%s are not counted", c.name)
				}
			}
			synctest.Wait()
			if p.streams != 0 {
				t.Errorf("%s: %d streams are open", c.name, p.streams)
			}
		})
	}
}

// A service that asks for more time gets no more than the timeout of its hook.
func TestAServiceCannotExtendItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcessor(t)
		p.headers = always(&extproc.ProcessingResponse{OverrideMessageTimeout: durationpb.New(time.Minute)})
		r, _ := newHookRig(t, plain, p.line(""))
		began := time.Now()
		if got := r.post("/v1/chat/completions", chatBody("small", "Hi", "")); got.status != 503 ||
			got.header.Get("X-Tierway-Hooks") != "guard:timeout" || time.Since(began) != 200*time.Millisecond {
			t.Errorf("%d %v after %v", got.status, got.header, time.Since(began))
		}
	})
}

// A removed service keeps its connection until the calls in flight have ended.
func TestAReloadClosesTheConnectionOfARemovedService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcessor(t)
		started, release := make(chan struct{}), make(chan struct{})
		p.body = func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) {
			close(started)
			<-release
			return immediate(typev3.StatusCode_Forbidden, "no"), nil
		}
		engine := startServer(t, fakeEngine())
		r, from := newReloadRig(t, "# %s\n"+hookedYAML(engine, p.line(", timeout: 60s")))
		results := make(chan httpAnswer)
		go func() { results <- r.post("/v1/chat/completions", chatBody("small", "Hi", "")) }()
		<-started
		hook := r.control.Snapshot().Hooks.Hooks[0]
		from.write("store: { sql: \"\" }\nclassifier: { preset: none }\n" +
			strings.Replace(hookedYAML(engine), "hooks_timeout: 60s\n", "", 1))
		r.reload()
		if r.control.Snapshot().Hooks != nil || !hook.Retired() {
			t.Error("the hook is still there")
		}
		close(release)
		if got := <-results; got.status != http.StatusForbidden {
			t.Errorf("in flight: %d %s", got.status, got.body)
		}
		synctest.Wait()
		if p.streams != 0 {
			t.Errorf("%d streams are open", p.streams)
		}
	})
}

// A client that leaves ends the stream.
func TestALeavingClientEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcessor(t)
		p.body = func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) {
			time.Sleep(10 * time.Second)
			return nil, nil
		}
		r, _ := newHookRig(t, "hooks_timeout: 60s\n"+plain, p.line(", timeout: 60s"))
		r.leaveAfter(time.Second, "/v1/chat/completions", chatBody("small", "Hi", ""))
		synctest.Wait()
		if d := r.last(); d.Hooks[0].Result != "cancelled" || d.DurationMs != 1000 {
			t.Errorf("the record is %+v", d)
		}
	})
}
