package engines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// chunkSizes returns the sizes of a chunked body's chunks: one a write and flush.
func chunkSizes(raw string) []int64 {
	_, body, _ := strings.Cut(raw, "\r\n\r\n")
	var sizes []int64
	for {
		var n int64
		line, rest, ok := strings.Cut(body, "\r\n")
		if _, err := fmt.Sscanf(line, "%x", &n); !ok || err != nil || n == 0 || int64(len(rest)) < n+2 {
			return sizes
		}
		sizes = append(sizes, n)
		body = rest[n+2:]
	}
}

func TestWritesAreAsLargeAsOrdered(t *testing.T) {
	r := newRig(t)
	plain := chunkSizes(r.ask(t, streamBody).raw)
	if len(plain) != 10 {
		t.Errorf("10 events came in %d writes", len(plain))
	}
	r.set(t, Fault{Kind: FaultBatch, Every: 4})
	if got := chunkSizes(r.ask(t, streamBody).raw); len(got) != 3 { // 4, 4 and 2 events
		t.Errorf("batches of four came in %d writes", len(got))
	}
	r.set(t, Fault{Kind: FaultBytewise})
	for _, n := range chunkSizes(r.ask(t, streamBody).raw) {
		if n != 1 {
			t.Fatalf("a write of %d bytes", n)
		}
	}
}

func TestHangsEndWhenTheClientLeaves(t *testing.T) {
	for after, want := range map[int]string{0: "", 3: "bbbb"} {
		r := newRig(t)
		r.set(t, Fault{Kind: FaultHang, After: after})
		conn := r.dial(t)
		send(t, conn, "", streamBody)
		if want == "" {
			until(t, func() bool { return r.c.Stats().Hits[FaultHang] == 1 })
		} else {
			var got strings.Builder
			buf := make([]byte, 4096)
			for !strings.Contains(got.String(), want) {
				n, err := conn.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				got.Write(buf[:n])
			}
		}
		if r.c.Stats().Open != 1 {
			t.Errorf("after %d events: %d open", after, r.c.Stats().Open)
		}
		conn.Close()
		until(t, func() bool { return r.c.Stats().Open == 0 })
		if got := r.c.Stats().Cancelled; got != 1 {
			t.Errorf("after %d events: %d cancelled", after, got)
		}
	}
}

func TestEndlessAnswersEndWithTheClient(t *testing.T) {
	for _, body := range []string{wholeBody, streamBody} {
		r := newRig(t)
		r.set(t, Fault{Kind: FaultEndless})
		conn := r.dial(t)
		send(t, conn, "", body)
		if n, err := io.CopyN(io.Discard, conn, 4<<20); err != nil {
			t.Errorf("the answer ended after %d bytes: %v", n, err)
		}
		conn.Close()
		until(t, func() bool { return r.c.Stats().Open == 0 })
	}
}

func TestStaleHitsOnlyReusedConnections(t *testing.T) {
	r := newRig(t)
	r.set(t, Fault{Kind: FaultStale})
	conn := r.dial(t)
	reader := bufio.NewReader(conn)
	send(t, conn, "", wholeBody)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("a fresh connection: %v, %v", resp, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	send(t, conn, "", wholeBody)
	if b, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a reused connection answered %q, %v", b, err)
	}
	if r.e.Stats().Requests["/v1/chat/completions"] != 1 {
		t.Error("the engine saw the request that was dropped")
	}
}

func TestConnectionClosesAfterEachStream(t *testing.T) {
	r := newRig(t)
	r.set(t, Fault{Kind: FaultCloseEach})
	conn := r.dial(t)
	send(t, conn, "", streamBody) // the client would keep the connection
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || contentEvents(string(body)) != 6 || resp.Close || resp.Header.Get("Keep-Alive") == "" {
		t.Errorf("the stream was %q, %v, close promised: %v", body, err, resp.Close)
	}
	if b, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is still there: %q, %v", b, err)
	}
}

func TestFaultsHitSomeRequestsOnly(t *testing.T) {
	r := newRig(t)
	r.set(t, Fault{Kind: FaultStatus, Status: 500, Times: 2}, Fault{Kind: FaultStatus, Status: 418, Paths: []string{"/health"}})
	for i, want := range []int{500, 500, 200, 200} {
		if got := r.ask(t, wholeBody).status; got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	get := func(path string) int {
		status, _ := call(t, r.c, "GET", path, "")
		return status
	}
	if get("/health") != 418 || get("/v1/models") != 200 {
		t.Errorf("health %d, models %d", get("/health"), get("/v1/models"))
	}
	r.set(t)
	if get("/health") != 200 {
		t.Error("the fault is still in force")
	}
}

func TestControlRouteSetsFaults(t *testing.T) {
	r := newRig(t)
	status, body := call(t, r.c, "POST", "/ctl", `{"kind":"slow","delay":"250ms","times":3}`)
	if got := r.c.Stats().Faults; status != 200 || len(got) != 1 || got[0].Delay != 250*time.Millisecond || got[0].Times != 3 {
		t.Errorf("%d %s: %+v", status, body, got)
	}
	for _, wrong := range []string{`{"kind":"flood"}`, `{"kind":"status"}`, `{"kind":"slow","delay":"soon"}`, `{"kind":"error_first","form":"x"}`, `[{}]`, ``} {
		if status, body := call(t, r.c, "POST", "/ctl", wrong); status != 400 {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
	if len(r.c.Stats().Faults) != 1 {
		t.Error("a wrong order changed the faults")
	}
	if call(t, r.c, "POST", "/ctl", `[{"kind":"crlf"},{"kind":"status","status":503,"retry_after":"1"}]`); len(r.c.Stats().Faults) != 2 {
		t.Errorf("a list: %+v", r.c.Stats().Faults)
	}
	if got := r.ask(t, wholeBody); got.status != 503 || got.header.Get("Retry-After") != "1" {
		t.Errorf("%d %v", got.status, got.header)
	}
	call(t, r.c, "DELETE", "/ctl", "")
	_, body = call(t, r.c, "GET", "/ctl", "")
	if o := object(t, body); number(t, o, "requests") != 1 || number(t, o, "hits", "status") != 1 || len(r.c.Stats().Faults) != 0 {
		t.Errorf("counts %s", body)
	}
}

func TestKilledServerResetsEverything(t *testing.T) {
	e := New(Config{Model: "m", Script: func(string, []byte) Script { return Script{HoldAfter: 1} }})
	s, err := Start(e, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{s: s}
	conn, idle := r.dial(t), r.dial(t)
	send(t, conn, "", streamBody)
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for _, c := range []net.Conn{conn, idle} {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection ended with %v", err)
		}
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://")); err == nil {
		c.Close()
		t.Error("a killed server still listens")
	}
	if st := e.Stats(); st.Open != 0 || st.Running != 0 {
		t.Errorf("left behind: %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestOnlyLoopbackIsListenedOn(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:0", "127.0.0.1"} {
		if s, err := Start(http.NotFoundHandler(), addr); err == nil {
			s.Close()
			t.Errorf("%q was listened on", addr)
		}
	}
}

func FuzzFaults(f *testing.F) {
	f.Add(`{"kind":"slow","delay":"250ms"}`)
	f.Add(`[{"kind":"status","status":503,"retry_after":"2","paths":["/health"]},{"kind":"error_event","after":3,"form":"llamacpp"}]`)
	f.Add(`[null]`)
	f.Add(`{"kind":"slow","delay":"1e9h","times":-1}`)
	f.Fuzz(func(t *testing.T, raw string) {
		faults, err := readFaults(strings.NewReader(raw))
		if err != nil || NewChaos(nil).Set(faults...) != nil {
			return
		}
		b, err := json.Marshal(faults)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readFaults(bytes.NewReader(b))
		if err != nil || !reflect.DeepEqual(normal(again), normal(faults)) {
			t.Errorf("%s became %+v, then %+v (%v)", raw, faults, again, err)
		}
	})
}

// normal makes absent and empty lists of paths equal.
func normal(faults []Fault) []Fault {
	out := make([]Fault, len(faults))
	for i, f := range faults {
		if len(f.Paths) == 0 {
			f.Paths = nil
		}
		out[i] = f
	}
	return out
}
