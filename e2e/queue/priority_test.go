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

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// replies collects the replies to the clients of one class or tenant, in the order of arrival.
type replies struct {
	mu  sync.Mutex
	all []rig.Reply
}

func (c *replies) add(a rig.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, a)
}

func (c *replies) answers() []rig.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// keepOutstanding keeps n requests outstanding until ctx ends. It drops the replies that arrive
// afterwards. Each prompt is new, so that no engine has it in its cache.
func (c *replies) keepOutstanding(ctx context.Context, clients *sync.WaitGroup, r *queueRig, n int,
	body func(i int64) string, headers ...string) {
	for range n {
		clients.Go(func() {
			for ctx.Err() == nil {
				a := r.send(ctx, body(r.NextID()), headers...)
				if ctx.Err() != nil {
					return
				}
				c.add(a)
				if a.CheckOK() != nil {
					return // one bad reply fails the test
				}
			}
		})
	}
}

// sendEvery sends a request at each interval until ctx ends, without waiting for the earlier
// ones, and then waits for all replies.
func (c *replies) sendEvery(ctx context.Context, r *queueRig, every time.Duration, body func(i int64) string,
	headers ...string) {
	var open sync.WaitGroup
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			open.Go(func() { c.add(r.send(r.T.Context(), body(r.NextID()), headers...)) })
		case <-ctx.Done():
		}
	}
	open.Wait()
}

// servedBetween returns how many requests were served between two times. A request that was
// served partly in that time counts partly.
func servedBetween(all []rig.Reply, from, to time.Time) (n float64) {
	for _, a := range all {
		begin := a.Sent.Add(max(queued(a), 0))
		if both := min(a.Done.Sub(from), to.Sub(from)) - max(begin.Sub(from), 0); both > 0 {
			n += float64(both) / float64(max(a.Done.Sub(begin), 1))
		}
	}
	return n
}

// quantile returns the q-quantile of the durations: the smallest one that a share of at least q
// does not exceed; 0 without durations.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
}

// times returns a figure of each reply.
func times(all []rig.Reply, figure func(rig.Reply) time.Duration) []time.Duration {
	out := make([]time.Duration, len(all))
	for i, a := range all {
		out[i] = figure(a)
	}
	return out
}

// duration returns a quantile of the replies' total durations.
func (c *replies) duration(q float64) time.Duration {
	return quantile(times(c.answers(), rig.Reply.Duration), q).Round(time.Millisecond)
}

// service returns the time of a request without its wait in the queue.
func service(a rig.Reply) time.Duration { return a.Duration() - max(queued(a), 0) }

// The engines of the measurement have as many slots as the gateway uses. An answer of
// batchTokens takes half a second while all slots are busy.
const (
	places      = 4 // slots of an engine
	batchTokens = 20
	urgentShare = 4 // an urgent answer is shorter by this factor
	perToken    = 15 * time.Millisecond
)

// contest is one measurement: only batch requests between from and beside, batch and urgent
// requests between beside and to.
type contest struct {
	batch, urgent    replies
	from, beside, to time.Time
}

// newContestRig returns a rig of two engines for a contest.
func newContestRig(t *testing.T, maxInflight int) *queueRig {
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

// run runs the contest: n batch requests are outstanding all the time; after a while, urgent
// requests arrive at a tenth of the capacity for d.
func (c *contest) run(r *queueRig, n int, d time.Duration) {
	ctx, stop := context.WithCancel(r.T.Context())
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	c.batch.keepOutstanding(ctx, &clients, r, n, func(i int64) string { return chat(fmt.Sprintf("%d is a batch", i)) },
		"X-Request-Priority", "batch")
	c.waitForBatch(r, 4*places) // by then the gateway has learned the engines' speed
	c.from = time.Now()
	rig.Pause(ctx, d/2)
	c.beside = time.Now()
	capacity := servedBetween(c.batch.answers(), c.from, c.beside) / c.beside.Sub(c.from).Seconds()
	every := time.Duration(float64(time.Second) / (capacity * urgentShare / 10))
	some, end := context.WithTimeout(ctx, d)
	defer end()
	c.urgent.sendEvery(some, r, every, func(i int64) string { return chat(fmt.Sprintf("%d is urgent", i)) },
		"X-Request-Priority", "interactive")
	c.to = time.Now()
	c.waitForBatch(r, 4*places) // so that requests in progress count too
}

// waitForBatch waits until n more batch requests are answered.
func (c *contest) waitForBatch(r *queueRig, n int) {
	n += len(c.batch.answers())
	for late := time.Now().Add(rig.Patience); len(c.batch.answers()) < n; rig.Pause(r.T.Context(), rig.Pace) {
		if time.Now().After(late) {
			r.T.Errorf("only %d batch requests were answered, %v ago it was %d fewer", len(c.batch.answers()), rig.Patience, n)
			return
		}
	}
}

// figures are the results of a contest.
type figures struct {
	service         time.Duration // median service time of batch requests
	wait            time.Duration // p99 of the urgent requests' waits
	alone, together float64       // batch requests per second without and beside urgent ones
	urgent          int           // urgent requests
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
	f.alone = servedBetween(batch, c.from, c.beside) / c.beside.Sub(c.from).Seconds()
	f.together = servedBetween(batch, c.beside, c.to) / c.to.Sub(c.beside).Seconds()
	f.urgent = len(urgent)
	return f
}

// TestInteractiveGoesFirst saturates two engines with batch requests and then adds interactive
// requests at a tenth of the capacity. These wait no longer than one batch request takes, and
// batch loses only the capacity that they need. For comparison, the test logs the figures
// without a queue, where engines serve in the order of arrival.
func TestInteractiveGoesFirst(t *testing.T) {
	bubble.TestAlone(t, func(t *testing.T) {
		d, full := soak(t)
		const keeps = 0.85
		n := 60
		if full {
			n = 500
		} else {
			d /= 2
		}
		var queued, open contest
		var both sync.WaitGroup
		with, without := newContestRig(t, places), newContestRig(t, 0)
		both.Go(func() { queued.run(with, n, d) })
		both.Go(func() { open.run(without, n, d) })
		both.Wait()
		q, o := queued.figures(t), open.figures(t)
		t.Logf("%d batch requests outstanding, %d urgent ones; with the queue: urgent p50 %v, p99 %v whole, p99 wait %v of "+
			"a batch request's %v; batch %.1f/s alone, %.1f/s beside them (%.0f %%)",
			n, q.urgent, queued.urgent.duration(0.5), queued.urgent.duration(0.99), q.wait, q.service, q.alone, q.together,
			100*q.together/q.alone)
		t.Logf("without a queue, in the same time: %d urgent ones p50 %v, p99 %v whole", o.urgent, open.urgent.duration(0.5),
			open.urgent.duration(0.99))
		if q.urgent < 10 {
			t.Errorf("only %d urgent requests were sent", q.urgent)
		}
		if rig.Soaking() {
			return // the figures of real time depend on the machine
		}
		if q.wait > q.service {
			t.Errorf("urgent requests wait %v (p99), a batch request is served in %v", q.wait, q.service)
		}
		if q.together < keeps*q.alone {
			t.Errorf("batch requests: %.1f/s beside urgent ones and %.1f/s alone", q.together, q.alone)
		}
	})
}
