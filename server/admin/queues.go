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
	Name       string                `json:"name" doc:"Of its tier or pool."`
	Tier       bool                  `json:"tier" doc:"One of the tiers, which are listed in their order; else a pool."`
	Depth      int                   `json:"depth" doc:"Requests that wait."`
	MaxDepth   int                   `json:"max_depth" doc:"So many of each class may wait; 0: nobody waits."`
	Bytes      int64                 `json:"bytes" doc:"Of their bodies."`
	MaxBytes   int64                 `json:"max_bytes" doc:"0: no bound."`
	Throughput throughputState       `json:"throughput"`
	Drain      *float64              `json:"drain_ms" doc:"Until all that wait now have gone, by the throughput; null: nothing goes."`
	Classes    map[string]classState `json:"classes" doc:"By name."`
}

type throughputState struct {
	PerSecond float64 `json:"per_second" doc:"Requests that end and so make room."`
	Sure      bool    `json:"sure" doc:"Measured; else what prompts and answers of that length should take."`
}

// classState is one class of a queue. Its totals count since the gateway started.
type classState struct {
	Depth    int              `json:"depth"`
	Oldest   float64          `json:"oldest_ms" doc:"How long the one that came first has waited; 0: nobody waits."`
	MaxWait  float64          `json:"max_wait_ms"`
	Tokens   int64            `json:"tokens" doc:"Of the prompts that wait and their expected answers."`
	Drain    *float64         `json:"drain_ms" doc:"As the queue's, for those that wait in this class and the more urgent ones."`
	Entered  int64            `json:"entered" doc:"Requests that had to wait: granted, left, put out, or still waiting."`
	Granted  int64            `json:"granted" doc:"Requests that had a worker after a wait."`
	Promoted int64            `json:"promoted" doc:"Those granted that went as the class above, for they had waited past age."`
	Left     int64            `json:"left" doc:"Requests whose client left while they waited."`
	PutOut   int64            `json:"put_out" doc:"Requests shed after a wait."`
	Shed     map[string]int64 `json:"shed" doc:"Requests answered 503, at once or after a wait, by reason."`
}

type waiterState struct {
	Position  int      `json:"position" doc:"1 goes next, if the worker that is free suits it."`
	RequestID string   `json:"request_id"`
	Tenant    string   `json:"tenant"`
	Class     string   `json:"class" enum:"interactive,background,batch"`
	Waited    float64  `json:"waited_ms"`
	Tokens    int64    `json:"tokens" doc:"Of its prompt and its expected answer."`
	Estimated *float64 `json:"estimated_ms" doc:"Until its turn, by position and throughput, if nobody more urgent comes; null: nothing goes."`
}

type queueView struct {
	QueueState
	Waiting []waiterState `json:"waiting" nullable:"false"`
	Matched int           `json:"matched" doc:"How many the filters let through, those beyond limit among them; of the first 10,000 that wait."`
}

// maxLooked is how many that wait are looked at for those whom filters let through:
// nobody enters or leaves meanwhile, and so many take some 10 ms.
const maxLooked = 10_000

func (a *workerAPI) listQueues(context.Context, *struct{}) (*reply[page[QueueState]], error) {
	now := time.Now()
	return whole(mapped(a.control.Snapshot().Pools, func(p *control.Pool) QueueState { return queueState(p, now) })), nil
}

func (a *workerAPI) getQueue(_ context.Context, in *struct {
	Tier   string `path:"tier" maxLength:"200"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many that wait."`
	Tenant string `query:"tenant" maxLength:"63" doc:"Only this tenant's."`
	Class  string `query:"class" enum:"interactive,background,batch" doc:"Only those of the class."`
}) (*reply[queueView], error) {
	p := a.control.Snapshot().ByName[in.Tier]
	if p == nil {
		return nil, notFound("tier or pool", in.Tier)
	}
	now := time.Now()
	view := queueView{QueueState: queueState(p, now), Waiting: []waiterState{}}
	look, all := maxLooked, in.Tenant == "" && in.Class == ""
	if all {
		look = in.Limit
	}
	for _, w := range p.WaitQueue.List(now, look) {
		class := tenants.Class(w.Class).String()
		if in.Tenant != "" && w.Tenant != in.Tenant || in.Class != "" && class != in.Class {
			continue
		}
		if view.Matched++; view.Matched <= in.Limit {
			view.Waiting = append(view.Waiting, waiterState{Position: w.Position, RequestID: w.ID, Tenant: w.Tenant, Class: class,
				Waited: millis(w.Waited), Tokens: w.Tokens, Estimated: estimate(w.Expected, true)})
		}
	}
	if all {
		view.Matched = view.Depth
	}
	return &reply[queueView]{Body: view}, nil
}

// estimate returns a time in milliseconds as the answer shows it: a queue says 0
// where somebody waits and nothing is known.
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
	st := classState{Depth: c.Depth, Oldest: millis(c.Oldest), MaxWait: millis(maxWait), Tokens: c.Tokens, Drain: estimate(c.Drain, c.Depth > 0),
		Entered: c.Entered, Granted: c.Dispatched, Promoted: c.Promoted, Left: c.Abandoned, PutOut: c.Expired, Shed: map[string]int64{}}
	for i, reason := range queue.ShedReasons() {
		st.Shed[reason] = c.Shed[i]
	}
	return st
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
