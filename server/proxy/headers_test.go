package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestNoSpellingOfAWithheldHeaderReachesAWorker: CGI and WSGI read an underscore in a header's name as a
// hyphen.
func TestNoSpellingOfAWithheldHeaderReachesAWorker(t *testing.T) {
	from := http.Header{"X-Custom": {"kept"}, "X_custom": {"kept"}, "_": {"kept"}, "X-_-Y": {"kept"}}
	for name := range withheld {
		from[name] = []string{"a client's"}
		from[strings.ReplaceAll(name, "-", "_")] = []string{"a client's"}
	}
	for _, name := range []string{"X_Model_Tier", "x_model_tier", "X-Model_Tier", "X_Forwarded_For", "X-Forwarded_Host",
		"AUTHORIZATION", "X_Api_key",
		"Transfer_Encoding", "Content_length", "Traceparent", "Tracestate", "User_Agent", "Content_Type", "X_request_id",
		"Accept_encoding", "VIA", "X_Vllm_Priority", "X-data_parallel-rank", "X_dp_rank", "Endpoint_load_metrics_format",
		"x_prefiller_host_port"} {
		if strings.Contains(name, "_") {
			from[name] = []string{"a client's"}
		}
	}
	to := workerHeader(from, []string{"not a UUID"})
	for name := range to {
		if withheld[name] || strings.Contains(name, "_") && name != "X_custom" && name != "_" && name != "X-_-Y" {
			t.Errorf("the worker receives %s", name)
		}
	}
	for _, name := range []string{"X-Custom", "X_custom", "_", "X-_-Y"} {
		if !slices.Equal(to[name], []string{"kept"}) {
			t.Errorf("%s is missing: %v", name, slices.Sorted(maps.Keys(to)))
		}
	}
}

func TestCredentialsAndHopByHopHeadersDoNotReachAWorker(t *testing.T) {
	from := http.Header{"Authorization": {"x"}, "X-Api-Key": {"x"}, "Cookie": {"x"},
		"Connection": {"close, X-Named", "x-second"}, "X-Named": {"x"},
		"X-Second": {"x"}, "X-Tenant-Id": {"x"}, "Openai-Organization": {"x"}, "Accept-Encoding": {"gzip"},
		"Te":               {"trailers"},
		"X-Stainless-Lang": {"go"}, "Openai-Beta": {"a", "b"}, "Content-Type": {"application/json"}, "Traceparent": {"00-1"}}
	const id = "6f8f57e0-7ab1-4c11-9e1c-1f0d2c3b4a59"
	got := headerLines(workerHeader(from, []string{id}))
	want := "Content-Type: application/json\nOpenai-Beta: a, b\nTraceparent: 00-1\nX-Request-Id: " + id +
		"\nX-Stainless-Lang: go\n"
	if got != want {
		t.Errorf("sent:\n%s\nwant:\n%s", got, want)
	}
	if got := workerHeader(from, []string{"my-own-1"}).Get("X-Request-Id"); got != "" {
		t.Errorf("the worker receives the request id %q, which is not a UUID", got)
	}
}

// TestHeadersThatSteerEnginesDoNotReachAWorker: with them a batch key could overtake interactive
// requests, and any key could choose a rank or a host that the engine connects to.
func TestHeadersThatSteerEnginesDoNotReachAWorker(t *testing.T) {
	from := http.Header{"X-Custom": {"kept"}}
	for _, name := range []string{"X-Vllm-Priority", "x-vllm-anything", "X-data-parallel-rank",
		"X-Data-Parallel-Host-Port", "X-DP-Rank", "X-SGLang-Session-Id", "X-Prefiller-Host-Port", "X-Prefiller-Url",
		"X-Encoder-Hosts-Ports", "X-Gateway-Destination-Endpoint", "endpoint-load-metrics-format"} {
		from.Set(name, "-100")
	}
	if got := headerLines(workerHeader(from, []string{"not a UUID"})); got != "X-Custom: kept\n" {
		t.Errorf("the worker receives\n%s", got)
	}
}

// headerLines returns the lines of a header, sorted by name, without Via.
func headerLines(h http.Header) string {
	var lines []string
	for k, v := range h {
		if k != "Via" {
			lines = append(lines, k+": "+strings.Join(v, ", "))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
