package sim

import (
	"errors"
	"testing"
	"time"

	"tierway/queue"
)

// TestShedClientsRetryAndSucceed: twice as many clients arrive at once as there are slots and
// places in the queue, so that half of the first attempts are shed. The Retry-After values
// spread the retries over the time in which the queue drains: all requests are answered within
// the two retries of the official SDKs, and hardly any needs both.
func TestShedClientsRetryAndSucceed(t *testing.T) {
	const depth, workers = 100, 2
	var b table
	b.row("engine", "before the burst", "requests", "shed at first", "failed", "attempts", "retry-after p50", "longest",
		"all over after")
	for _, engine := range []struct {
		name string
		Engine
	}{
		{"as the priors", Engine{MaxInflight: places}},
		{"half as fast", Engine{MaxInflight: places, Rate: 4000, Step: 45 * time.Millisecond}},
		{"twice as fast", Engine{MaxInflight: places, Rate: 20_000, Step: 8 * time.Millisecond}},
	} {
		for _, warm := range []bool{true, false} {
			q := defaults()
			q.MaxDepth = depth
			q.MaxWait[0] = time.Minute
			request := plain("burst", 0)
			request.Retries = 2
			loads := []Load{Burst{At: time.Minute, Count: 2 * (depth + workers*places), Make: always(request)}}
			before := "nothing"
			if warm {
				before = "a minute"
				service := engine.Service(batchPrompt, batchOutput, places)
				loads = append(loads, Poisson{Rate: workers * places / service.Seconds() / 2, Until: 50 * time.Second,
					Make: always(plain("before", 0))})
			}
			r := play(t, Config{Seed: 7, Engines: identical(workers, engine.Engine), Policy: leastLoad(), Queue: q,
				Loads: loads})
			s := r.Stats(ofKind("burst", 0, r.End))
			first, retryAfter := 0, Times{}
			for _, rec := range r.Records {
				for i, err := range rec.Sheds {
					var shed *queue.ShedError
					if errors.As(err, &shed) && i == 0 {
						first++
						retryAfter = append(retryAfter, shed.RetryAfter)
					}
				}
			}
			retryAfter.Sort()
			b.row(engine.name, before, s.Submitted, first, s.Shed, s.Attempts, retryAfter.Quantile(0.5), retryAfter.Max(), r.End)
			if 2*first < s.Submitted {
				t.Errorf("%s after %s: of %d clients only %d were shed", engine.name, before, s.Submitted, first)
			}
			if s.Shed > 0 || s.Attempts > 1.6 {
				t.Errorf("%s after %s: of %d clients %d failed, and the mean took %.2f attempts", engine.name, before, s.Submitted,
					s.Shed, s.Attempts)
			}
		}
	}
	b.log(t, "twice as many clients at once as can be held, with the retries of the SDKs")
}
