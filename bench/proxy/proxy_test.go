package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tierway/bench/processes"
	"tierway/e2e/loopback"
)

// serveInTest runs serve on a loopback listener until the test ends.
func serveInTest(t *testing.T, serve func(net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return l.Addr().String()
}

// serveBytes sends the same bytes in response to every request and then closes the connection.
func serveBytes(t *testing.T, raw string) string {
	return serveInTest(t, func(l net.Listener) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return nil
			}
			_, _ = c.Read(make([]byte, 2*largeBytes))
			_, _ = io.WriteString(c, raw)
			c.Close()
		}
	})
}

func TestRequestShapesHaveTheStatedSizes(t *testing.T) {
	want := map[string]int{"400 B": 400, "48 KB": 48 * 1024, "streams": 400}
	for _, s := range shapes() {
		if len(s.body) != want[s.name] {
			t.Errorf("the body of %s has %d bytes, want %d", s.name, len(s.body), want[s.name])
		}
	}
	if n := len(answer()); n != 400 {
		t.Errorf("the answer has %d bytes, want 400", n)
	}
	if n := len(stream(events)); n != events+1 {
		t.Errorf("a stream has %d events with [DONE], want %d", n, events+1)
	}
}

func TestWorkerAnswersEveryShapeOverOneConnection(t *testing.T) {
	addr := serveInTest(t, newFixedWorker().serve)
	c, err := dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for range 3 {
		for _, s := range slices.Concat(shapes(), cpuShapes()[2:4]) {
			body, err := c.do(httpRequest(addr, "key", s.body))
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			if err := s.check(body); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
	}
}

func TestIncompleteAnswersCountAsFailures(t *testing.T) {
	whole := string(newFixedWorker().whole)
	events := strings.Join(stream(events), "")
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct{ name, shape, raw, want string }{
		{"status 503", "400 B", strings.Replace(whole, "200 OK", "503 Service Unavailable", 1), "status 503"},
		{"truncated body", "400 B", whole[:len(whole)-1], "cut short"},
		{"changed body", "400 B", strings.Replace(whole, "xxx", "xyx", 1), "are not the worker's"},
		{"no answer", "400 B", "", "status line"},
		{"not HTTP", "400 B", "SSH-2.0-OpenSSH_9.2\r\n", "status line"},
		{"no length", "400 B", "HTTP/1.1 200 OK\r\n\r\n", "Content-Length"},
		{"Connection: close", "400 B", strings.Replace(whole, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1),
			"kept alive"},
		{"stream without its last chunk", "streams", chunked + "5\r\ndata:\r\n", "chunk's size"},
		{"chunk without a size", "streams", chunked + "zz\r\n", "chunk's size"},
		{"chunk longer than its size", "streams", chunked + "2\r\nabc\r\n0\r\n\r\n", "longer than its size"},
		{"missing event", "streams", plainStream(strings.Replace(events, "data: ", "", 1)), "has 64 events"},
		{"no [DONE]", "streams", plainStream(strings.Replace(events, "[DONE]", "[GONE]", 1)), "[DONE]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := serveBytes(t, c.raw)
			r := new(loader).run(job{Addr: addr, Shape: c.shape, Connections: 1, Seconds: 0.02})
			if r.Failed == 0 || r.Done != 0 || !strings.Contains(r.Failure, c.want) {
				t.Errorf("got %+v, want failures only, with %q", r, c.want)
			}
		})
	}
}

func plainStream(body string) string { return string(plain("200 OK", "text/event-stream", body)) }

func TestLoadCountsCompleteAnswers(t *testing.T) {
	addr := serveInTest(t, newFixedWorker().serve)
	for _, j := range []job{
		{Addr: addr, Shape: "streams", Connections: 2, Seconds: 0.05},
		{Addr: addr, Shape: "400 B", Connections: 2, Seconds: 0.05, Rate: 1000},
	} {
		r := new(loader).run(j)
		if r.Failed != 0 || r.Done == 0 || r.P50 <= 0 || r.P99 < r.P50 {
			t.Errorf("%+v has the result %+v", j, r)
		}
		if j.Rate > 0 && r.Done != 50 {
			t.Errorf("an open loop of 0.05 s at 1000/s sent %d requests, not 50", r.Done)
		}
	}
}

func TestRefusedConnectionCountsAsFailure(t *testing.T) {
	addr, err := loopback.Address() // no process listens on it
	if err != nil {
		t.Fatal(err)
	}
	r := new(loader).run(job{Addr: addr, Shape: "400 B", Connections: 3, Seconds: 1})
	if r.Failed != 3 || r.Done != 0 {
		t.Errorf("got %+v, want 3 failures", r)
	}
}

func TestHeldStreamsStayOpenUntilTheNextJob(t *testing.T) {
	addr := serveInTest(t, newFixedWorker().serve)
	var l loader
	if r := l.run(job{Addr: addr, Hold: 5}); r.Done != 5 || r.Failed != 0 {
		t.Fatalf("got %+v, want 5 streams", r)
	}
	if len(l.held) != 5 {
		t.Fatalf("%d streams are held, want 5", len(l.held))
	}
	if got := l.held[0].body; !bytes.Equal(got, []byte(stream(events)[0])) {
		t.Errorf("a held stream had %q, want the first event", got)
	}
	l.run(job{Addr: addr, Shape: "400 B", Connections: 1, Seconds: 0.01})
	if len(l.held) != 0 {
		t.Errorf("%d streams are still held", len(l.held))
	}
}

func TestEachJobHasOneResultInOrder(t *testing.T) {
	addr := serveInTest(t, newFixedWorker().serve)
	in := `{"Addr":"` + addr + `","Shape":"400 B","Connections":1,"Seconds":0.01} {"Shape":"none","Connections":1}`
	var out strings.Builder
	if err := serveJobs(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], "no shape is named") {
		t.Errorf("got %q, want two results, the second a refusal", lines)
	}
}

func TestSpreadHasMedianAndExtremes(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{4, 1}, spread{2.5, 1, 4}},
		{[]float64{9, 1, 5}, spread{5, 1, 9}},
	} {
		rounds := make([][3]result, len(c.values))
		for i, v := range c.values {
			rounds[i][tierway].PerSec = v
		}
		if got := spreadOf(rounds, func(r [3]result) float64 { return r[tierway].PerSec }); got != c.want {
			t.Errorf("the spread of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestRatiosCompareFiguresOfTheSameRound(t *testing.T) {
	round := func(d, n, g float64) []result {
		return []result{{PerSec: d, P50: d}, {PerSec: n, P50: n}, {PerSec: g, P50: g}}
	}
	// The machine was half as fast in the second round: ratios stay what they are.
	up := throughputOf(shapes()[0], [][]result{round(1000, 500, 250), round(500, 250, 125)})
	if up.Ratio != (spread{0.5, 0.5, 0.5}) || up.NginxShare != (spread{0.5, 0.5, 0.5}) ||
		up.TierwayShare != (spread{0.25, 0.25, 0.25}) {
		t.Errorf("got %+v", up)
	}
	added := latencyOf([][]result{round(100, 150, 250)})
	if added.NginxAdded.Median != 50 || added.TierwayAdded.Median != 150 || added.Ratio.Median != 3 {
		t.Errorf("got %+v", added)
	}
	table := report{Throughput: []throughput{up, {Shape: "streams", Floor: 0.65, Ratio: spread{0.64, 0.6, 0.7}}},
		Latency: added}.String()
	for _, want := range []string{"0.50 (0.50–0.50)", "0.40 met", "0.65 MISSED", "at most 3.00 met"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestOptionsAreBounded(t *testing.T) {
	for _, args := range []string{"-rounds 0", "-seconds 0", "-seconds 61", "-connections 0", "-rate 0", "-streams 0",
		"-old bin/before", "more"} {
		if _, err := parseOptions(strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, err := parseOptions(strings.Fields("-rounds 7 -seconds 3 -json -memory"))
	if err != nil || o.rounds != 7 || o.seconds != 3 || !o.asJSON || !o.memory {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestWorkerReadsContentLength(t *testing.T) {
	for _, c := range []struct {
		head string
		want int
		fine bool
	}{
		{"POST / HTTP/1.1\r\ncontent-length: 12\r\n", 12, true},
		{"POST / HTTP/1.1\r\nContent-Length:7\r\n", 7, true},
		{"GET / HTTP/1.1\r\nHost: x\r\n", 0, true},
		{"POST / HTTP/1.1\r\nContent-Length: -1\r\n", 0, false},
		{"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 0, false},
	} {
		n, err := bodyLength([]byte(c.head))
		if n != c.want || (err == nil) != c.fine {
			t.Errorf("%q: got %d, %v", c.head, n, err)
		}
	}
}

func TestConfigurationsNameTheWorkerAndNoKey(t *testing.T) {
	for _, conf := range []string{nginxConf("dir", "127.0.0.1:1", "127.0.0.1:2"),
		tierwayConf("one", "127.0.0.1:2", "the-key", "")} {
		if !strings.Contains(conf, "127.0.0.1:2") || strings.Contains(conf, "the-key") {
			t.Errorf("the worker is missing or the key is included:\n%s", conf)
		}
	}
	if !slices.ContainsFunc(strings.Split(nginxConf("dir", "a", "b"), "\n"), func(l string) bool {
		return strings.TrimSpace(l) == "access_log off;"
	}) {
		t.Error("nginx logs")
	}
}

func TestWatchedRatiosCompareFiguresOfTheSameRound(t *testing.T) {
	var w watchedThroughput
	w.setRounds([][4]float64{{1000, 800, 760, 700}, {500, 400, 400, 450}, {2000, 1600, 1200, 1000}})
	for _, c := range []struct {
		what      string
		got, want spread
	}{
		{"capacity", w.Capacity, spread{1000, 500, 2000}},
		{"offered", w.Offered, spread{800, 400, 1600}},
		{"ratio", w.Ratio, spread{0.95, 0.75, 1}},
		{"most", w.Most, spread{0.7, 0.5, 0.9}},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
	if r := (watchedReport{Throughput: []watchedThroughput{w}}).String(); !strings.Contains(r, "0.95 (0.75–1.00)") {
		t.Errorf("the ratio is missing:\n%s", r)
	}
}

func TestCollectorCountsPostsAndBytes(t *testing.T) {
	in, endInput := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serveCollector(in, out) }()
	printed := json.NewDecoder(read)
	var addr string
	if err := printed.Decode(&addr); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		resp, err := http.Post("http://"+addr+"/v1/traces", "application/x-protobuf", strings.NewReader("1234567"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	var got collected
	go processes.CheckURL(t.Context(), "http://"+addr+"/counts") // the printed counts are checked
	if err := printed.Decode(&got); err != nil || got != (collected{Posts: 3, Bytes: 21}) {
		t.Errorf("%+v, %v", got, err)
	}
	endInput.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLostShareIsReadFromMetrics(t *testing.T) {
	const metrics = "# HELP tierway_trace_spans_total x\n" +
		"tierway_trace_spans_total{result=\"dropped\"} 10\ntierway_trace_spans_total{result=\"exported\"} 30\n" +
		"tierway_decisions_dropped_total 0\ntierway_decisions_written_total 5\n"
	if got := seriesShare(metrics, `tierway_trace_spans_total{result="dropped"}`,
		"tierway_trace_spans_total{"); got != 0.25 {
		t.Errorf("%g of the spans", got)
	}
	if got := seriesShare(metrics, "tierway_decisions_dropped_total", "tierway_decisions_dropped_total",
		"tierway_decisions_written_total"); got != 0 {
		t.Errorf("%g of the records", got)
	}
}
