package hooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tierway/openai"
	"tierway/workers"
)

// extProcMethod is the only method of the service.
const extProcMethod = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"

const (
	// reconnectDelay and reconnectDelayMax are the pauses between attempts to connect to a service that is down. gRPC's
	// defaults are 1 s and 2 min, for which a restarted service would get no requests.
	reconnectDelay    = 100 * time.Millisecond
	reconnectDelayMax = time.Second
	// pingAfter and pingTimeout detect a server that vanished. Servers of gRPC may close connections with pings more often
	// than every five minutes without calls; these pings are sent during calls only.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// extProc calls a service by Envoy's external processing. A stream carries one request.
type extProc struct {
	peer      *workers.Peer
	target    target
	maxAnswer int64 // longest answer in bytes

	mu     sync.Mutex // guards the rest
	conn   *grpc.ClientConn
	users  int // calls in flight
	closed bool
}

// acquire returns the connection of a call, which the caller releases.
func (e *extProc) acquire() (*grpc.ClientConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil {
		conn, err := e.newConn()
		if err != nil {
			return nil, err
		}
		e.conn = conn
	}
	e.users++
	return e.conn, nil
}

// newConn returns a connection that is opened by its first call.
func (e *extProc) newConn() (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if e.target.secure {
		transport = freshTLS{insecure.NewCredentials(), e.peer.TLSConfig}
	}
	host := e.target.server[strings.Index(e.target.server, "://")+len("://"):]
	return grpc.NewClient("passthrough:///"+host,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return e.peer.Dial(ctx) }),
		grpc.WithTransportCredentials(transport),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: reconnectDelay, Multiplier: 2,
			Jitter: 0.2, MaxDelay: reconnectDelayMax}, MinConnectTimeout: reconnectDelayMax}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithUserAgent("tierway"))
}

// release ends a call. The last one of a closed caller closes the connection.
func (e *extProc) release() {
	e.mu.Lock()
	e.users--
	conn := e.takeIdleLocked()
	e.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // nobody uses it
	}
}

func (e *extProc) close() {
	e.mu.Lock()
	e.closed = true
	conn := e.takeIdleLocked()
	e.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

// takeIdleLocked returns the connection if it is to be closed now.
func (e *extProc) takeIdleLocked() *grpc.ClientConn {
	if !e.closed || e.users > 0 {
		return nil
	}
	conn := e.conn
	e.conn = nil
	return conn
}

// freshTLS are TLS credentials with a configuration that is read for each connection, so that new certificates need no
// restart.
type freshTLS struct {
	credentials.TransportCredentials
	config func() (*tls.Config, error)
}

func (f freshTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	c, err := f.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, raw)
}

func (f freshTLS) Info() credentials.ProtocolInfo { return credentials.NewTLS(nil).Info() }

func (f freshTLS) Clone() credentials.TransportCredentials { return f }

// call sends the headers and then the body of a request, and applies the answers to both. A service that closes the
// stream without an answer has nothing to say about the rest.
func (e *extProc) call(ctx context.Context, r *Request) Reply {
	conn, err := e.acquire()
	if err != nil {
		return failed("no connection")
	}
	defer e.release()
	ctx, cancel := context.WithCancel(e.outgoing(ctx, r.Trace)) // ends the stream
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, extProcMethod,
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(int(min(e.maxAnswer, math.MaxInt32))),
		grpc.MaxCallSendMsgSize(math.MaxInt32))
	if err != nil {
		return failed(grpcCause(err))
	}
	x := &requestStream{stream: stream, memory: r.Memory}
	defer x.end()
	if x.send(headersMessage(r)) && x.receive(headersAnswer) && !x.bodySent {
		if x.send(bodyMessage(r.Body)) {
			x.receive(bodyAnswer)
		}
	}
	return x.reply
}

// outgoing returns the context of a call with its metadata.
func (e *extProc) outgoing(ctx context.Context, trace http.Header) context.Context {
	md := metadata.MD{}
	if key := e.peer.Key(); key != "" {
		md.Set("authorization", "Bearer "+key)
	}
	for name, values := range trace {
		md.Set(name, values...)
	}
	return metadata.NewOutgoingContext(ctx, md)
}

type requestStream struct {
	stream   grpc.ClientStream
	memory   openai.Memory
	held     int64 // reserved bytes that reply does not use
	bodySent bool  // the answer to the headers replaces the body, which is not sent
	reply    Reply
}

// send sends a message. It returns false after a failure. If the service has closed the stream, receive finds out.
func (x *requestStream) send(m message) bool {
	if err := x.stream.SendMsg(m); err != nil && !errors.Is(err, io.EOF) {
		x.reply = failed(grpcCause(err))
		return false
	}
	return true
}

// receive reads the answer to the last message. It returns false if the exchange ends with it.
func (x *requestStream) receive(want answerKind) bool {
	for {
		var raw []byte
		err := x.stream.RecvMsg(&raw)
		switch {
		case errors.Is(err, io.EOF): // the service needs no more of the request
			return false
		case err != nil:
			x.reply = failed(grpcCause(err))
			return false
		}
		a, err := parseAnswer(raw)
		switch {
		case err != nil:
			x.reply = failed("the answer is not a valid ProcessingResponse")
			return false
		case a.kind == noAnswer && a.moreTime: // the hook's timeout applies all the same
			continue
		case a.kind == immediateAnswer:
			x.reject(a)
			return false
		case a.kind != want:
			x.reply = failed("the answer belongs to another message of the request")
			return false
		}
		return x.apply(a, want)
	}
}

// reject applies an immediate response. One with 5xx reports a failure of the service.
func (x *requestStream) reject(a processingAnswer) {
	if a.status >= http.StatusInternalServerError {
		x.reply = failed(fmt.Sprintf("the immediate response has the status %d", a.status))
		return
	}
	text := string(a.body[:min(len(a.body), 64<<10)])
	if e, ok := openai.RefusalOf(a.body); ok && e.Message != "" {
		text = e.Message
	}
	x.drop()
	x.reply = Reply{Result: Rejected, Reason: reasonOf(text), Ignored: x.reply.Ignored,
		Limited: a.status == http.StatusTooManyRequests}
	if x.reply.Limited {
		x.reply.RetryAfter = retryAfter(a.set)
	}
}

// longestRetryAfter bounds the Retry-After of a service that is passed to a client.
const longestRetryAfter = 24 * time.Hour

// retryAfter returns the wait in the headers of an immediate response; 0 if there is none in whole seconds.
func retryAfter(headers []Header) time.Duration {
	for _, h := range headers {
		if seconds, err := strconv.ParseUint(h.Value, 10, 32); err == nil && strings.EqualFold(h.Name, "Retry-After") {
			return min(time.Duration(seconds)*time.Second, longestRetryAfter)
		}
	}
	return 0
}

// apply applies the answer to the headers or to the body. It returns false if the exchange ends with it.
func (x *requestStream) apply(a processingAnswer, of answerKind) bool {
	for _, h := range a.set {
		x.reply.setHeader(h.Name, h.Value)
	}
	for _, name := range a.removed {
		x.reply.removeHeader(name)
	}
	replaces := of == bodyAnswer || a.replace
	switch {
	case x.reply.Result == Refused:
		return false
	case !replaces || !a.hasBody:
	case a.streamed:
		x.reply = failed("the answer streams the body, which was sent as a whole")
		return false
	case len(a.body) == 0:
		x.reply.refuse("it removes the body")
		return false
	default:
		if x.memory.Reserve(int64(len(a.body))) != nil {
			x.reply = failedMemory()
			return false
		}
		x.held += int64(len(a.body))
		x.reply.Body = a.body
	}
	if len(x.reply.Headers) > 0 || x.reply.Body != nil {
		x.reply.Result = Transformed
	}
	x.bodySent = a.replace
	return true
}

func (x *requestStream) drop() {
	if x.held > 0 {
		x.memory.Return(x.held)
	}
	x.held, x.reply.Body = 0, nil
}

// end ends the stream. The memory of a changed body passes to the caller of the hook.
func (x *requestStream) end() {
	_ = x.stream.CloseSend() // the stream ends anyway
	if x.reply.Result != Transformed {
		x.drop()
	}
}

// grpcCause describes a failed call by its status. The status's message is the service's text, which may repeat the
// request.
func grpcCause(err error) string {
	code := status.Code(err)
	if code == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "larger than max") {
		return "the answer is longer than max_body_bytes"
	}
	return "gRPC status " + code.String()
}

// rawCodec passes messages as they are encoded: message out, []byte in.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(message)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", v)
	}
	var all mem.BufferSlice
	for _, part := range m {
		all = append(all, mem.SliceBuffer(part))
	}
	return all, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	raw, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot receive into a %T", v)
	}
	*raw = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2. The name is part of the content type.
func (rawCodec) Name() string { return "proto" }
