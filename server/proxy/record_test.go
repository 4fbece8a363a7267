package proxy

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/telemetry"
)

// TestTimePerOutputTokenCountsContentOnly: usage, end and trailer of a stream have no tokens.
func TestTimePerOutputTokenCountsContentOnly(t *testing.T) {
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
		a := &attempt{x: &exchange{resolution: intake.Resolution{Pool: &control.Pool{Series: series}}},
			usage: openai.Usage{Output: c.output}, moments: moments{firstAt: c.first, lastAt: first.Add(100 * time.Millisecond)}}
		if a.countPace(); !slices.Equal(got, c.want) {
			t.Errorf("%d tokens from %v: %v, want %v", c.output, c.first, got, c.want)
		}
	}
}

// TestErrorTypeOfAnAttemptIsTheCauseOfItsEnd: a departed client, a drain and a timeout are no connection
// failures, even if the request was not sent yet.
func TestErrorTypeOfAnAttemptIsTheCauseOfItsEnd(t *testing.T) {
	worker := &openai.Error{Code: openai.CodeWorkerError}
	for _, sent := range []bool{false, true} {
		for fault, want := range map[error]string{
			errClientGone: decisions.ErrorClientGone, ErrDrainCut: decisions.ErrorShutdown,
			errTotalTimeout:     decisions.ErrorTimeout,
			errFirstByteTimeout: decisions.ErrorTimeout, errIdleTimeout: decisions.ErrorTimeout,
		} {
			f := &failure{sent: sent, fault: excluded("%w", fault), err: worker}
			if got := (&attempt{outcome: outcome{failure: f}}).errorType(); got != want {
				t.Errorf("%v, sent %v: %q, want %q", fault, sent, got, want)
			}
		}
	}
	broke := errors.New("connection refused")
	for want, f := range map[string]*failure{
		decisions.ErrorConnect:  {fault: broke, err: worker},
		decisions.ErrorGateway:  {fault: excluded("%w", broke), err: worker},
		decisions.ErrorCut:      {sent: true, fault: broke, err: worker},
		"503":                   {status: 503, fault: broke, err: worker},
		decisions.ErrorProtocol: {sent: true, fault: broke, err: &openai.Error{Code: openai.CodeWorkerProtocol}},
	} {
		if got := (&attempt{outcome: outcome{failure: f}}).errorType(); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

func TestFullRecordIsKeptOnlyIfItIsStoredOrExported(t *testing.T) {
	for _, c := range []struct{ kept, sampled, want bool }{
		{want: false}, {kept: true, want: true}, {sampled: true, want: true},
	} {
		r := &records{}
		r.keeps.Store(c.kept)
		if got := r.keepsFull(c.sampled); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
