package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
)

// crew is what the clients of one class got: every answer, in the order in which
// they came.
type crew struct {
	mu  sync.Mutex
	all []rig.Reply
}

func (c *crew) add(a rig.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, a)
}

func (c *crew) answers() []rig.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// keep lets n clients of a rig ask without a pause until ctx ends: n requests are
// outstanding all the time. What is outstanding then is left. Each prompt is
// another one, so that no engine has it in its cache.
func (c *crew) keep(ctx context.Context, clients *sync.WaitGroup, r *queueRig, n int, body func(i int64) string,
	headers ...string) {
	for range n {
		clients.Go(func() {
			for ctx.Err() == nil {
				a := r.ask(ctx, body(r.NextID()), headers...)
				if ctx.Err() != nil {
					return
				}
				c.add(a)
				if a.CheckOK() != nil {
					return // one is enough to fail the test
				}
			}
		})
	}
}

// pace asks every so often, whatever became of the requests before, until ctx
// ends, and waits for all answers.
func (c *crew) pace(ctx context.Context, r *queueRig, every time.Duration, body func(i int64) string,
	headers ...string) {
	var open sync.WaitGroup
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			open.Go(func() { c.add(r.ask(r.T.Context(), body(r.NextID()), headers...)) })
		case <-ctx.Done():
		}
	}
	open.Wait()
}

// work is how many requests were served from one moment to another; one that was
// served in part of it counts in part.
func work(all []rig.Reply, from, to time.Time) (n float64) {
	for _, a := range all {
		begin := a.Sent.Add(max(queued(a), 0))
		if both := min(a.Done.Sub(from), to.Sub(from)) - max(begin.Sub(from), 0); both > 0 {
			n += float64(both) / float64(max(a.Done.Sub(begin), 1))
		}
	}
	return n
}

// quantile is the smallest value that at least the share q does not exceed; 0 of
// none.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
}

// times are a figure of all answers.
func times(all []rig.Reply, figure func(rig.Reply) time.Duration) []time.Duration {
	out := make([]time.Duration, len(all))
	for i, a := range all {
		out[i] = figure(a)
	}
	return out
}

// took is a quantile of whole answers' times.
func (c *crew) took(q float64) time.Duration {
	return quantile(times(c.answers(), rig.Reply.Duration), q).Round(time.Millisecond)
}

// service is how long a request was served, once it had waited.
func service(a rig.Reply) time.Duration { return a.Duration() - max(queued(a), 0) }

// The engines of the measurement: as many slots as the gateway uses, and answers
// of batchTokens that take half a second where all slots are busy.
const (
	places      = 4
	batchTokens = 20
	urgentShare = 4 // an urgent answer is so many times shorter
	perToken    = 15 * time.Millisecond
)

// contest is one measurement: batch requests alone from the first moment, beside
// urgent ones from the second, until the third.
type contest struct {
	batch, urgent    crew
	from, beside, to time.Time
}

// busy is a rig of two engines for a contest.
func busy(t *testing.T, maxInflight int) *queueRig {
	t.Helper()
	r := newRig(t, 2, engines.Config{Slots: places, PerToken: perToken,
		Script: func(_ string, body []byte) engines.Script {
			if strings.Contains(string(body), "urgent") {
				return engines.Script{Tokens: batchTokens / urgentShare}
			}
			return engines.Script{Tokens: batchTokens}
		}})
	r.Serve(rig.Settings{
		"tiers":    r.Tiers(fmt.Sprintf("max_inflight: %d", maxInflight), ""),
		"queue":    `{ max_wait: { interactive: 60s, background: 60s, batch: 10m } }`,
		"timeouts": `{ first_byte: 300s, idle: 300s }`,
	})
	return r
}

// hold runs the contest: n batch requests outstanding all the time, after a while
// urgent ones at a tenth of the capacity for d. The test must be one that can wait
// for it.
func (c *contest) hold(r *queueRig, n int, d time.Duration) {
	ctx, stop := context.WithCancel(r.T.Context())
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	c.batch.keep(ctx, &clients, r, n, func(i int64) string { return chat(fmt.Sprintf("%d is a batch", i)) },
		"X-Request-Priority", "batch")
	c.more(r, 4*places) // every place was given twice then: what is learned at the start is
	c.from = time.Now()
	rig.Pause(ctx, d/2)
	c.beside = time.Now()
	capacity := work(c.batch.answers(), c.from, c.beside) / c.beside.Sub(c.from).Seconds()
	every := time.Duration(float64(time.Second) / (capacity * urgentShare / 10))
	some, end := context.WithTimeout(ctx, d)
	defer end()
	c.urgent.pace(some, r, every, func(i int64) string { return chat(fmt.Sprintf("%d is urgent", i)) },
		"X-Request-Priority", "interactive")
	c.to = time.Now()
	c.more(r, 4*places) // so that what was being served is counted
}

// more waits until so many more batch requests were answered.
func (c *contest) more(r *queueRig, n int) {
	n += len(c.batch.answers())
	for late := time.Now().Add(rig.Patience); len(c.batch.answers()) < n; rig.Pause(r.T.Context(), rig.Pace) {
		if time.Now().After(late) {
			r.T.Errorf("only %d batch requests were answered, %v ago it was %d fewer", len(c.batch.answers()), rig.Patience, n)
			return
		}
	}
}

// figures are what a contest came to.
type figures struct {
	service         time.Duration // of a batch request, the median
	wait            time.Duration // of the urgent ones, p99
	alone, together float64       // batch requests a second
	urgent          int
}

func (c *contest) figures(t *testing.T) (f figures) {
	t.Helper()
	batch, urgent := c.batch.answers(), c.urgent.answers()
	for _, a := range slices.Concat(batch, urgent) {
		if err := a.CheckOK(); err != nil {
			t.Fatal(err)
		}
	}
	f.service = quantile(times(batch, service), 0.5)
	f.wait = quantile(times(urgent, queued), 0.99)
	f.alone = work(batch, c.from, c.beside) / c.beside.Sub(c.from).Seconds()
	f.together = work(batch, c.beside, c.to) / c.to.Sub(c.beside).Seconds()
	f.urgent = len(urgent)
	return f
}

// TestInteractiveGoesFirst: two engines saturated by batch requests, then urgent
// ones at a tenth of the capacity. These wait no longer than one batch request
// takes, and the batch loses no more than they need. The same without a queue,
// where engines serve in the order of arrival, is printed beside it.
func TestInteractiveGoesFirst(t *testing.T) {
	d, full := soak(t)
	n, waits, keeps := 60, 1.5, 0.75 // few requests: one that is late is the p99
	if full {
		n, waits, keeps = 500, 1, 0.85
	} else {
		d /= 2
	}
	var queued, open contest
	var both sync.WaitGroup
	with, without := busy(t, places), busy(t, 0)
	both.Go(func() { queued.hold(with, n, d) })
	both.Go(func() { open.hold(without, n, d) })
	both.Wait()
	q, o := queued.figures(t), open.figures(t)
	t.Logf("%d batch requests outstanding, %d urgent ones; with the queue: urgent p50 %v, p99 %v whole, p99 wait %v of "+
		"a batch request's %v; batch %.1f/s alone, %.1f/s beside them (%.0f %%)",
		n, q.urgent, queued.urgent.took(0.5), queued.urgent.took(0.99), q.wait, q.service, q.alone, q.together,
		100*q.together/q.alone)
	t.Logf("without a queue, in the same time: %d urgent ones p50 %v, p99 %v whole", o.urgent, open.urgent.took(0.5),
		open.urgent.took(0.99))
	if q.urgent < 10 {
		t.Errorf("only %d urgent requests were asked", q.urgent)
	}
	if float64(q.wait) > waits*float64(q.service) {
		t.Errorf("the urgent wait %v (p99), a batch request is served in %v", q.wait, q.service)
	}
	if q.together < keeps*q.alone {
		t.Errorf("the batch has %.1f/s beside the urgent and %.1f/s alone", q.together, q.alone)
	}
}
