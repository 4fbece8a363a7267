package admin

import (
	"context"
	"time"

	"tierway/queue"
	"tierway/server/control"
	"tierway/tenants"
)

// QueueState is one queue as GET /admin/queues shows it.
type QueueState struct {
	Name       string                `json:"name" doc:"Name of the tier or pool."`
	Tier       bool                  `json:"tier" doc:"true: a tier (tiers are listed in their order). false: an entry of pools."`
	Depth      int                   `json:"depth" doc:"Number of waiting requests."`
	MaxDepth   int                   `json:"max_depth" doc:"Maximum number of waiting requests in each class. 0: requests do not wait."`
	Bytes      int64                 `json:"bytes" doc:"Size of the bodies of the waiting requests."`
	MaxBytes   int64                 `json:"max_bytes" doc:"Maximum of bytes. 0: unlimited."`
	Throughput throughputState       `json:"throughput"`
	Drain      *float64              `json:"drain_ms" doc:"Estimated time until every waiting request is dispatched, by the throughput. null: no throughput is known."`
	Classes    map[string]classState `json:"classes" doc:"Waiting requests by class name."`
}

type throughputState struct {
	PerSecond float64 `json:"per_second" doc:"Number of requests that end per second. Each frees a slot."`
	Sure      bool    `json:"sure" doc:"true: measured. false: estimated from the lengths of prompts and answers."`
}

// classState is one class of a queue. Its totals count since the gateway started.
type classState struct {
	Depth      int              `json:"depth"`
	Oldest     float64          `json:"oldest_ms" doc:"Wait of the oldest waiting request. 0: no request waits."`
	MaxWait    float64          `json:"max_wait_ms"`
	Tokens     int64            `json:"tokens" doc:"Tokens of the waiting prompts and their expected answers."`
	Drain      *float64         `json:"drain_ms" doc:"Like the queue's drain_ms, for the requests of this class and of more urgent classes."`
	Entered    int64            `json:"entered" doc:"Requests that entered the queue: the sum of dispatched, abandoned, expired, moved and the waiting requests."`
	Dispatched int64            `json:"dispatched" doc:"Requests that were dispatched to a worker after a wait."`
	Promoted   int64            `json:"promoted" doc:"Dispatched requests that were promoted to the class above because they had waited longer than age."`
	Abandoned  int64            `json:"abandoned" doc:"Requests that waited until their client disconnected."`
	Expired    int64            `json:"expired" doc:"Requests that were rejected after a wait."`
	Moved      int64            `json:"moved" doc:"Requests that left for the queue of another tier, because no worker was up."`
	Shed       map[string]int64 `json:"shed" doc:"Requests that were rejected with 503, at once or after a wait, by reason."`
}

type waiterState struct {
	Position  int      `json:"position" doc:"Position in dispatch order. 1 is dispatched next, if the free worker suits it."`
	RequestID string   `json:"request_id"`
	Tenant    string   `json:"tenant"`
	Class     string   `json:"class" enum:"interactive,background,batch"`
	Waited    float64  `json:"waited_ms"`
	Tokens    int64    `json:"tokens" doc:"Tokens of the prompt and the expected answer."`
	Estimated *float64 `json:"estimated_ms" doc:"Estimated time until dispatch, by position and throughput, if no more urgent request arrives. null: no throughput is known."`
}

type queueView struct {
	QueueState
	Waiting []waiterState `json:"waiting" nullable:"false"`
	Matched int           `json:"matched" doc:"Number of requests that match the filters, including requests beyond limit, among the first 10,000 waiting requests."`
}

// maxScanned is the largest number of waiting requests that filters are applied to. The queue is
// locked meanwhile, for about 10 ms.
const maxScanned = 10_000

func (a *workerAPI) listQueues(context.Context, *struct{}) (*reply[page[QueueState]], error) {
	now := time.Now()
	return whole(mapped(a.control.Snapshot().Pools, func(p *control.Pool) QueueState { return queueState(p, now) })), nil
}

func (a *workerAPI) getQueue(_ context.Context, in *struct {
	Tier   string `path:"tier" maxLength:"200"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Maximum number of waiting requests to return."`
	Tenant string `query:"tenant" maxLength:"63" doc:"Only requests of this tenant."`
	Class  string `query:"class" enum:"interactive,background,batch" doc:"Only requests of this class."`
}) (*reply[queueView], error) {
	p := a.control.Snapshot().ByName[in.Tier]
	if p == nil {
		return nil, notFound("tier or pool", in.Tier)
	}
	now := time.Now()
	view := queueView{QueueState: queueState(p, now), Waiting: []waiterState{}}
	scan, all := maxScanned, in.Tenant == "" && in.Class == ""
	if all {
		scan = in.Limit
	}
	for _, w := range p.WaitQueue.List(now, scan) {
		class := tenants.Class(w.Class).String()
		if in.Tenant != "" && w.Tenant != in.Tenant || in.Class != "" && class != in.Class {
			continue
		}
		if view.Matched++; view.Matched <= in.Limit {
			view.Waiting = append(view.Waiting, waiterState{
				Position:  w.Position,
				RequestID: w.ID,
				Tenant:    w.Tenant,
				Class:     class,
				Waited:    millis(w.Waited),
				Tokens:    w.Tokens,
				Estimated: estimate(w.Expected, true),
			})
		}
	}
	if all {
		view.Matched = view.Depth
	}
	return &reply[queueView]{Body: view}, nil
}

// estimate returns d in milliseconds. It returns nil if requests wait and d is 0, which means that the
// time is unknown.
func estimate(d time.Duration, waits bool) *float64 {
	if waits && d <= 0 {
		return nil
	}
	return new(millis(d))
}

func queueState(p *control.Pool, now time.Time) QueueState {
	v := p.WaitQueue.View(now)
	_, sure := p.Routing.Throughput(now)
	st := QueueState{Name: p.Name, Tier: p.Tier, MaxDepth: p.Queue.MaxDepth, Bytes: v.Bytes, MaxBytes: p.Queue.MaxBytes,
		Throughput: throughputState{PerSecond: v.PerSecond, Sure: sure}, Classes: map[string]classState{}}
	var drain time.Duration
	for i, name := range tenants.Classes() {
		c := &v.Classes[i]
		st.Depth += c.Depth
		drain = max(drain, c.Drain)
		st.Classes[name] = classStateOf(c, p.Queue.MaxWait[i])
	}
	st.Drain = estimate(drain, st.Depth > 0)
	return st
}

func classStateOf(c *queue.ClassView, maxWait time.Duration) classState {
	st := classState{
		Depth:      c.Depth,
		Oldest:     millis(c.Oldest),
		MaxWait:    millis(maxWait),
		Tokens:     c.Tokens,
		Drain:      estimate(c.Drain, c.Depth > 0),
		Entered:    c.Entered,
		Dispatched: c.Dispatched,
		Promoted:   c.Promoted,
		Abandoned:  c.Abandoned,
		Expired:    c.Expired,
		Moved:      c.Moved,
		Shed:       map[string]int64{},
	}
	for i, reason := range queue.ShedReasons() {
		st.Shed[reason] = c.Shed[i]
	}
	return st
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
