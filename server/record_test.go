package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"tierway/decisions"
	"tierway/openai"
	"tierway/telemetry"
)

// What comes after the last content is no token: the usage, the end, the trailer.
func TestThePaceIsThatOfTheContent(t *testing.T) {
	first := time.Unix(100, 0)
	for _, c := range []struct {
		output int64
		first  time.Time
		want   []float64
	}{
		{11, first, []float64{0.01}},
		{1, first, nil},
		{0, first, nil},
		{11, time.Time{}, nil}, // a whole answer
	} {
		var got []float64
		series := &telemetry.Tier{TPOT: prometheus.ObserverFunc(func(v float64) { got = append(got, v) })}
		a := &attempt{x: &exchange{resolution: resolution{pool: &pool{series: series}}}, usage: openai.Usage{Output: c.output}, firstAt: c.first, lastAt: first.Add(100 * time.Millisecond)}
		if a.countPace(); !slices.Equal(got, c.want) {
			t.Errorf("%d tokens from %v: %v, want %v", c.output, c.first, got, c.want)
		}
	}
}

// An engine that does not say what it had cached makes no belief look wrong.
func TestPredictionsAreComparedWithWhatEnginesSay(t *testing.T) {
	prompt := strings.Repeat("the quick brown fox jumps over the lazy dog ", 200)
	for details, want := range map[string][]string{
		"": {"0", "0"},
		`,"prompt_tokens_details":{"cached_tokens":0}`:    {"0", "more"},
		`,"prompt_tokens_details":{"cached_tokens":1000}`: {"2000", "more"},
	} {
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if _, err := io.Copy(io.Discard, q.Body); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			say(t, w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2000,"completion_tokens":1`+details+`}}`)
		}))
		for range 2 {
			if a := r.post("/v1/chat/completions", fmt.Sprintf(`{"model":"small","messages":[{"role":"user","content":%q}]}`, prompt)); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		var got []string
		for _, name := range []string{"tierway_prefix_cached_tokens_total", "tierway_prefix_predicted_tokens_total"} {
			for line := range strings.Lines(r.scrape()) {
				if strings.HasPrefix(line, name+"{") {
					v := line[strings.LastIndexByte(line, ' ')+1 : len(line)-1]
					if name == "tierway_prefix_predicted_tokens_total" && v != "0" {
						v = "more"
					}
					got = append(got, v)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", details, diff)
		}
	}
}

// A client that left, a drain and a time that is over are nobody's failure to
// connect, however far the attempt had come.
func TestAnAttemptFailedByWhatCutIt(t *testing.T) {
	worker := &openai.Error{Code: openai.CodeWorkerError}
	for _, left := range []bool{false, true} {
		for blame, want := range map[error]string{
			errClientGone: decisions.ErrorClientGone, errDrainCut: decisions.ErrorShutdown, errTotalTimeout: decisions.ErrorTimeout,
			errFirstByteTimeout: decisions.ErrorTimeout, errIdleTimeout: decisions.ErrorTimeout,
		} {
			f := &failure{left: left, blame: excluded("%w", blame), err: worker}
			if got := (&attempt{f: f}).errorType(); got != want {
				t.Errorf("%v, sent %v: %q, want %q", blame, left, got, want)
			}
		}
	}
	broke := errors.New("connection refused")
	for want, f := range map[string]*failure{
		decisions.ErrorConnect:  {blame: broke, err: worker},
		decisions.ErrorGateway:  {blame: excluded("%w", broke), err: worker},
		decisions.ErrorCut:      {left: true, blame: broke, err: worker},
		"503":                   {status: 503, blame: broke, err: worker},
		decisions.ErrorProtocol: {left: true, blame: broke, err: &openai.Error{Code: openai.CodeWorkerProtocol}},
	} {
		if got := (&attempt{f: f}).errorType(); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

// A request whose trace is not exported pays for no record that nobody reads.
func TestARecordIsMadeForThoseWhoReadIt(t *testing.T) {
	for _, c := range []struct{ kept, sampled, want bool }{
		{want: false}, {kept: true, want: true}, {sampled: true, want: true},
	} {
		x := &exchange{s: &Server{}, caller: caller{trace: telemetry.TraceContext{On: true, Sampled: c.sampled}}}
		x.s.keepsRecords.Store(c.kept)
		if got := x.keepsRecords(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
