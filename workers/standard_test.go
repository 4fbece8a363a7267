package workers

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tierway/http1"
	"tierway/memnet"
)

// loopback has the servers of tests outside of bubbles.
var loopback = memnet.New()

// senderTo returns a standard Sender for a URL. It is closed when the test ends.
func senderTo(t *testing.T, url string, roots *x509.CertPool) *standard {
	t.Helper()
	to, err := parseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	dial := loopback.Dial
	if to.scheme == "unix" {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", to.socket)
		}
		to.scheme, to.host = "http", socketHost
	}
	s := newStandard(standardConfig{address: to, connectTimeout: 5 * time.Second, rootCAs: roots, dial: dial})
	t.Cleanup(s.Close)
	return s
}

// tlsEngine starts an HTTPS server and returns a Sender that trusts it.
func tlsEngine(t *testing.T, http2 bool, handler http.HandlerFunc) *standard {
	t.Helper()
	engine := loopback.NewUnstartedServer(handler)
	engine.EnableHTTP2 = http2
	engine.StartTLS()
	t.Cleanup(engine.Close)
	roots := x509.NewCertPool()
	roots.AddCert(engine.Certificate())
	return senderTo(t, engine.URL, roots)
}

func plainEngine(t *testing.T, handler http.HandlerFunc) *standard {
	t.Helper()
	engine := loopback.NewServer(handler)
	t.Cleanup(engine.Close)
	return senderTo(t, engine.URL, nil)
}

// scriptedEngine accepts connections one after the other. script serves each of them; number counts
// them from 0.
func scriptedEngine(t *testing.T, script func(number int, conn net.Conn, r *bufio.Reader)) (url string) {
	t.Helper()
	listener, err := loopback.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for number := 0; ; number++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			script(number, conn, bufio.NewReader(conn))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return "http://" + listener.Addr().String()
}

func readRequest(r *bufio.Reader) (body string, err error) {
	request, err := http.ReadRequest(r)
	if err != nil {
		return "", err
	}
	all, err := io.ReadAll(request.Body)
	return string(all), err
}

func postRequest(path string, pieces ...string) *http1.Request {
	r := &http1.Request{Method: http.MethodPost, Path: path, Header: http.Header{"Content-Type": {"application/json"}}}
	for _, piece := range pieces {
		r.Body = append(r.Body, []byte(piece))
	}
	return r
}

func readAll(t *testing.T, answer *http1.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func wantPhase(t *testing.T, err error, want http1.Phase) {
	t.Helper()
	failed, ok := errors.AsType[*http1.SendError](err)
	if !ok || failed.Phase != want {
		t.Fatalf("error %v; want a SendError of phase %d", err, want)
	}
}

// wantPhaseBeforeAnswer accepts PhaseWrite and PhaseAwait: net/http may detect the end of a connection
// before it reports that the request is written.
func wantPhaseBeforeAnswer(t *testing.T, err error) {
	t.Helper()
	failed, ok := errors.AsType[*http1.SendError](err)
	if !ok || failed.Phase != http1.PhaseWrite && failed.Phase != http1.PhaseAwait {
		t.Fatalf("error %v; want a SendError of PhaseWrite or PhaseAwait", err)
	}
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestTLSExchangeArrivesAsWritten(t *testing.T) {
	for _, proto := range []string{"HTTP/2.0", "HTTP/1.1"} {
		send := tlsEngine(t, proto == "HTTP/2.0", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			for name := range r.Header {
				if !slices.Contains([]string{"Content-Type", "Content-Length", "X-Kept", "User-Agent", "Accept-Encoding"}, name) {
					t.Errorf("%s: header %s reached the worker", proto, name)
				}
			}
			if r.Header.Get("X-Kept") != "yes" || r.ContentLength != 11 || len(r.TransferEncoding) != 0 {
				t.Errorf("%s: got %v, length %d", proto, r.Header, r.ContentLength)
			}
			w.Header().Set("X-Proto", r.Proto)
			_, _ = io.WriteString(w, r.RequestURI+" "+r.Host+" "+string(body))
		})
		r := postRequest("/v1/a%2Fb/c?x=%20&&y", "hello ", "", "world")
		for name, value := range map[string]string{"X-Kept": "yes", "Connection": "close, X-Hop", "X-Hop": "1",
			"Upgrade": "h2c", "Te": "trailers",
			"Keep-Alive": "1", "Transfer-Encoding": "chunked", "Content-Length": "99", "Host": "evil",
			"Expect": "100-continue"} {
			r.Header.Set(name, value)
		}
		before := r.Header.Clone()
		answer, err := send.Send(t.Context(), r)
		if got, want := readAll(t, answer, err), "/v1/a%2Fb/c?x=%20&&y "+send.host+" hello world"; got != want {
			t.Errorf("%s: the worker received %q; want %q", proto, got, want)
		}
		if !r.BodyInUse {
			t.Errorf("%s: BodyInUse is false, but net/http may still read the body", proto)
		}
		if answer.Header.Get("X-Proto") != proto {
			t.Errorf("protocol %s; want %s", answer.Header.Get("X-Proto"), proto)
		}
		for name := range before {
			if !slices.Equal(before[name], r.Header[name]) {
				t.Errorf("Send changed the caller's header %s", name)
			}
		}
	}
}

func TestUnknownCertificateIsPhaseConnect(t *testing.T) {
	engine := loopback.NewUnstartedServer(http.NotFoundHandler())
	engine.Config.ErrorLog = discardLog()
	engine.StartTLS()
	t.Cleanup(engine.Close)
	_, err := senderTo(t, engine.URL, nil).Send(t.Context(), postRequest("/", "x"))
	wantPhase(t, err, http1.PhaseConnect)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var requests atomic.Int32
	send := plainEngine(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	answer, err := send.Send(t.Context(), &http1.Request{Method: http.MethodGet, Path: "/"})
	_ = readAll(t, answer, err)
	if answer.Status != http.StatusFound || requests.Load() != 1 {
		t.Errorf("status %d after %d requests; want the 302 after one", answer.Status, requests.Load())
	}
}

// TestProxyOfTheEnvironmentIsForHTTPS to servers of other networks: internal addresses and names are reached directly,
// as are those in NO_PROXY. The log names each worker that uses the proxy, without credentials.
func TestProxyOfTheEnvironmentIsForHTTPS(t *testing.T) {
	const proxy = "http://user:secret@proxy:3128"
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy)
	}
	t.Setenv("NO_PROXY", "203.0.113.0/24,.example.net")
	t.Setenv("no_proxy", "203.0.113.0/24,.example.net")
	for raw, want := range map[string]string{
		"https://api.example.com": proxy, "https://8.8.8.8:8443": proxy, "https://[2001:4860::1]": proxy,
		"https://internal.example.com": proxy, "https://notlocal.example": proxy, "https://172.32.0.1": proxy,
		"https://203.0.113.7": "", "https://a.example.net": "",
		"https://10.1.2.3:8443": "", "https://172.16.0.1": "", "https://192.168.1.1": "", "https://169.254.1.1": "",
		"https://127.0.0.2": "", "https://[fd00::1]:8443": "", "https://[fe80::1]": "", "https://[::1]": "",
		"https://[::ffff:10.0.0.1]": "", "https://localhost:8443": "", "https://vllm": "", "https://vllm.internal": "",
		"https://VLLM.Internal.": "", "https://vllm.ns.svc": "", "https://vllm.ns.svc.cluster.local:8000": "",
		"https://gpu1.local": "",
	} {
		log := &bytes.Buffer{}
		send := newSender(Spec{Config: Config{Name: "w", URL: raw}}, nil, slog.New(slog.NewTextHandler(log, nil)))
		current := send.(addressed).Sender.(*standard).current.Load()
		for _, transport := range []*http.Transport{current.kept, current.fresh} {
			request, err := http.NewRequest(http.MethodGet, raw, nil)
			if err != nil {
				t.Fatal(err)
			}
			var through *url.URL
			if transport.Proxy != nil {
				through, err = transport.Proxy(request)
			}
			if err != nil || through == nil && want != "" || through != nil && through.String() != want {
				t.Errorf("%s goes through %v, %v, want %q", raw, through, err, want)
			}
		}
		named := strings.Contains(log.String(), "worker=w proxy=proxy:3128")
		if text := log.String(); named != (want != "") || strings.Contains(text, "secret") {
			t.Errorf("%s: the log is %q", raw, text)
		}
	}
	plain := newSender(Spec{Config: Config{URL: "http://api.example.com"}}, nil, slog.New(slog.DiscardHandler))
	if _, direct := plain.(addressed).Sender.(*http1.Client); !direct {
		t.Errorf("the sender for http is %T", plain)
	}
}

// TestRequestsGoThroughAProxy with CONNECT, so that the proxy sees no request and no key.
func TestRequestsGoThroughAProxy(t *testing.T) {
	engine := loopback.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host)
	}))
	engine.StartTLS()
	t.Cleanup(engine.Close)
	var connects atomic.Int32
	proxy := loopback.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "example.com:443" || r.Header.Get("Authorization") != "" {
			t.Errorf("the proxy got %s %s with %v", r.Method, r.Host, r.Header)
		}
		connects.Add(1)
		there, err := loopback.Dial(r.Context(), "tcp", engine.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(there, here)
			_ = there.Close()
		}()
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}))
	t.Cleanup(proxy.Close)
	through, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	to, err := parseAddress("https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	send := newStandard(standardConfig{address: to, rootCAs: authoritiesOf(engine), proxyDial: loopback.Dial,
		proxy: func(*url.URL) (*url.URL, error) { return through, nil },
		dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("the worker was dialled directly")
		}})
	t.Cleanup(send.Close)
	for _, fresh := range []bool{false, false, true} {
		r := postRequest("/", "x")
		r.Fresh = fresh
		r.Header.Set("Authorization", "Bearer secret")
		answer, err := send.Send(t.Context(), r)
		if got := readAll(t, answer, err); got != "example.com:443" {
			t.Errorf("got %q", got)
		}
	}
	if got := connects.Load(); got != 2 {
		t.Errorf("%d connections, want a kept one and a fresh one", got)
	}
}

func authoritiesOf(engine *httptest.Server) *x509.CertPool {
	return engine.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
}

func TestUnixSocketIsReached(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	engine := loopback.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+r.RequestURI)
	}))
	_ = engine.Listener.Close()
	engine.Listener = listener
	engine.Start()
	t.Cleanup(engine.Close)
	answer, err := senderTo(t, "unix://"+socket, nil).Send(t.Context(),
		&http1.Request{Method: http.MethodGet, Path: "/v1/models"})
	if got := readAll(t, answer, err); got != "localhost/v1/models" {
		t.Errorf("got %q", got)
	}
	_, err = senderTo(t, "unix://"+socket+".gone", nil).Send(t.Context(), postRequest("/", "x"))
	wantPhase(t, err, http1.PhaseConnect)
}

func TestRefusedConnectionIsPhaseConnect(t *testing.T) {
	_, err := senderTo(t, "http://127.0.0.1:1", nil).Send(t.Context(), postRequest("/", "x"))
	wantPhase(t, err, http1.PhaseConnect)
}

func TestInvalidPathsSendNothing(t *testing.T) {
	send := plainEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("a request reached the worker") })
	for _, path := range []string{"", "v1/models", "/%zz", "*", "http://evil/"} {
		_, err := send.Send(t.Context(), postRequest(path))
		wantPhase(t, err, http1.PhasePrepare)
	}
	_, err := send.Send(t.Context(), &http1.Request{Method: "GET", Path: "/", Header: http.Header{"X": {"a\r\nB: c"}}})
	wantPhase(t, err, http1.PhasePrepare)
}

func TestBrokenBodyIsASendError(t *testing.T) {
	for name, answer := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		url := scriptedEngine(t, func(_ int, conn net.Conn, r *bufio.Reader) {
			_, _ = readRequest(r)
			_, _ = io.WriteString(conn, answer)
		})
		got, err := senderTo(t, url, nil).Send(t.Context(), postRequest("/", "x"))
		if err != nil {
			t.Fatal(name, err)
		}
		body, err := io.ReadAll(got.Body)
		wantPhase(t, err, http1.PhaseBody)
		if string(body) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		_ = got.Body.Close()
	}
}

func TestEndlessHeaderIsCutOff(t *testing.T) {
	url := scriptedEngine(t, func(_ int, conn net.Conn, r *bufio.Reader) {
		_, _ = readRequest(r)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(conn, "X-More: "+strings.Repeat("x", 4000)+"\r\n"); err != nil {
				return
			}
		}
	})
	_, err := senderTo(t, url, nil).Send(t.Context(), postRequest("/", "x"))
	wantPhaseBeforeAnswer(t, err)
}

func TestCancelEndsTheExchangeAndTheWorkerSeesIt(t *testing.T) {
	for _, inBody := range []bool{false, true} {
		for _, http2 := range []bool{false, true} {
			seen, came := make(chan struct{}), make(chan struct{})
			send := tlsEngine(t, http2, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				if inBody {
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
				}
				close(came)
				<-r.Context().Done()
				close(seen)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if !inBody {
				go func() {
					<-came
					cancel()
				}()
			}
			answer, err := send.Send(ctx, postRequest("/", "x"))
			if !inBody {
				wantPhaseBeforeAnswer(t, err)
			} else {
				if err != nil {
					t.Fatal(err)
				}
				cancel()
				_, err = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				wantPhase(t, err, http1.PhaseBody)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v does not wrap context.Canceled", err)
			}
			<-seen
		}
	}
}

// After an exchange the caller may reuse its buffers, even if the worker answered before it read them.
func TestBodyIsNotReadAfterTheExchange(t *testing.T) {
	body := &pieces{rest: [][]byte{[]byte("abc"), []byte("def")}}
	two := make([]byte, 2)
	if n, err := body.Read(two); n != 2 || err != nil || string(two) != "ab" {
		t.Fatalf("Read: %q, %v", two[:n], err)
	}
	body.stop()
	if n, err := body.Read(two); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Read after the end: %d bytes, %v; want an error", n, err)
	}
}

func TestPiecesReadAsOneBody(t *testing.T) {
	for size := 1; size < 9; size++ {
		body := &pieces{rest: [][]byte{[]byte("ab"), nil, []byte("cde"), {}, []byte("f")}}
		var got []byte
		chunk := make([]byte, size)
		for {
			n, err := body.Read(chunk)
			got = append(got, chunk[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || n == 0 {
				t.Fatalf("by %d: %d bytes, %v", size, n, err)
			}
		}
		if string(got) != "abcdef" {
			t.Errorf("by %d: %q", size, got)
		}
	}
}

func TestClosedSenderLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	release := make(chan struct{})
	engine := loopback.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-release
		_, _ = io.WriteString(w, "to the end")
	}))
	send := senderTo(t, engine.URL, nil)
	answer, err := send.Send(t.Context(), postRequest("/", "x"))
	if err != nil {
		t.Fatal(err)
	}
	send.Close()
	close(release)
	if got := readAll(t, answer, nil); got != "to the end" {
		t.Errorf("the exchange in flight returned %q", got)
	}
	engine.Listener.Close()
	goleak.VerifyNone(t, before)
	engine.Close()
}

func TestInvalidURLFailsEveryExchange(t *testing.T) {
	send := newSender(Spec{Config: Config{URL: "ftp://engine"}}, nil, slog.New(slog.DiscardHandler))
	_, err := send.Send(t.Context(), postRequest("/", "x"))
	wantPhase(t, err, http1.PhaseConnect)
	if !strings.Contains(err.Error(), "scheme") {
		t.Errorf("error %v does not name the cause", err)
	}
	send.Close()
}

// The law holds for both Senders.
func TestOutOfResourcesDiffersFromARefusedConnection(t *testing.T) {
	for cause, want := range map[error]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOBUFS: true, syscall.ENOMEM: true,
		syscall.ECONNREFUSED: false, syscall.EADDRNOTAVAIL: false, syscall.ETIMEDOUT: false,
	} {
		dial := func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", cause)}
		}
		tls := senderTo(t, "https://engine", nil)
		tls.current.Load().kept.DialContext, tls.current.Load().fresh.DialContext = dial, dial
		for name, s := range map[string]Sender{"http1": http1.New(http1.Config{Host: "engine", Dial: dial}),
			"standard": tls} {
			for _, fresh := range []bool{false, true} {
				r := postRequest("/", "{}")
				r.Fresh = fresh
				_, err := s.Send(t.Context(), r)
				wantPhase(t, err, http1.PhaseConnect)
				if OutOfResources(err) != want {
					t.Errorf("%s: %v: out of resources %v, want %v", name, err, !want, want)
				}
			}
		}
	}
}
