package proxy

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/control"
	"tierway/spool"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
)

// record is what an ended request leaves: its Decision, and the facts that single consumers need besides. It does not
// change.
type record struct {
	*decisions.Decision
	pool       *control.Pool // nil if the request ended before it had a pool
	dialect    openai.Dialect
	class      tenants.Class
	dispatched bool          // by the queue of its pool
	waited     time.Duration // in that queue, all waits together
	booking    booking
	spans      *endedSpans // nil if the request is not exported
}

// booking has the facts of a row of the ledger that are not in the Decision.
type booking struct {
	booked    bool // the ledger has a row for the request
	at        time.Time
	key       string // also of a disabled tenant
	model     string
	money     tenants.Money
	saved     tenants.Money // by the response cache
	fromCache bool
}

// endedSpans are the spans of a request that is exported.
type endedSpans struct {
	trace telemetry.TraceContext
	decisions.Trace
}

const (
	// ringSize bounds the records that wait for the consumers, in 200 KB. At more than 5,000 requests/s, half of them
	// arrive within ringDelay and end it.
	ringSize = 1024
	// ringBatch is how many records each consumer handles in a row.
	ringBatch = 128
	// ringDelay is the time for which a record waits for others, so that they share one wake-up of the consumers. A
	// crash loses the records of that time.
	ringDelay = 100 * time.Millisecond
)

// records passes the records of ended requests to their consumers, behind the requests. The consumers write to bounded
// buffers, each with its own rule for a full one; none of them waits.
type records struct {
	ring *spool.Ring[record]
	// A reload may turn this off and on.
	keeps atomic.Bool // full records are kept, not only log lines

	control *control.Control
	metrics *telemetry.Metrics
	rand    func() uint64
	log     *decisions.Log                   // the latest records, in memory
	access  *decisions.AccessLog             // nil without an access log
	file    *spool.File[*decisions.Decision] // nil without a file
}

func newRecords(o *Options) *records {
	r := &records{control: o.Control, metrics: o.Metrics, rand: o.Rand, log: o.Decisions, file: o.DecisionFile}
	if o.Access != nil {
		r.access = decisions.NewAccessLog(o.Access)
	}
	r.ring = spool.NewRing(spool.RingConfig[record]{Consume: r.consume, Size: ringSize, Batch: ringBatch,
		Delay: ringDelay})
	return r
}

// keepsFull reports whether the full record of a request is kept or exported, not only its log line. sampled means that
// the request is exported.
func (r *records) keepsFull(sampled bool) bool { return sampled || r.keeps.Load() }

// RunRecords passes the records of ended requests on until ctx ends, and then those that remain.
func (px *Proxy) RunRecords(ctx context.Context) { px.records.ring.Run(ctx) }

// FlushRecords returns when the records of all requests that have ended are in the metrics, the logs and the ledger's
// buffer.
func (px *Proxy) FlushRecords() { px.records.ring.Flush() }

// consume passes a batch to each consumer. Readers of the log see a record last, when the others have it.
func (r *records) consume(batch []record) {
	r.each("counting a request", batch, r.count)
	r.each("booking a request", batch, r.book)
	r.each("tracing a request", batch, func(one *record) {
		if one.spans != nil {
			one.spans.trace.End(one.spans.Trace)
		}
	})
	if r.access != nil {
		r.each("logging a request", batch, func(one *record) { r.access.Write(one.Decision) })
	}
	if r.file != nil {
		r.each("filing a request", batch, func(one *record) { r.file.Add(one.Decision) })
	}
	r.each("keeping a request", batch, func(one *record) { r.log.Add(one.Decision) })
}

// each calls a consumer for each record of a batch. A panic ends the step of one record.
func (r *records) each(work string, batch []record, step func(*record)) {
	for i := 0; i < len(batch); {
		r.control.Recoverer.Run(work, func() {
			for i < len(batch) {
				i++
				step(&batch[i-1])
			}
		})
	}
}

// count updates the metrics of ended requests.
func (r *records) count(one *record) {
	outcome := max(0, slices.Index(control.Outcomes, string(one.Result)))
	r.metrics.TenantEnded(one.Tenant, outcome, one.Usage.Prompt, one.Usage.Cached, one.Usage.Output)
	if one.Limit != "" {
		r.metrics.LimitRefused(one.Limit)
		r.metrics.TenantRefused(one.Tenant, one.Limit)
	}
	if one.pool == nil {
		r.metrics.EndedWithoutTier(int(one.dialect), outcome)
		return
	}
	one.pool.Series.Duration.Observe(one.DurationMs / 1000)
	one.pool.Series.Ended(int(one.dialect), outcome)
	if one.dispatched {
		one.pool.Waits.Dispatched(int(one.class), one.waited)
	}
}

// book writes the row of the ledger, and records the use of the key.
func (r *records) book(one *record) {
	b := &one.booking
	if !b.booked {
		return
	}
	if b.key != "" {
		r.control.Database.LastUsed.RecordUse(b.key, one.Time)
	}
	r.control.Stores.Ledger.Add(store.Row{
		// Version 7 is ordered by time, so that rows that are written together are stored together.
		ID:         control.FormatUUID(uint64(b.at.UnixMilli())<<16|r.rand()&0xffff, r.rand(), 7),
		RequestID:  one.RequestID,
		At:         b.at,
		Tenant:     one.Tenant,
		Key:        b.key,
		Class:      one.Class,
		Route:      one.Route,
		Tier:       one.Tier,
		Model:      b.model,
		Worker:     one.Worker,
		Outcome:    string(one.Result),
		Status:     one.Status,
		Code:       one.Code,
		Attempts:   len(one.Attempts),
		Prompt:     one.Usage.Prompt,
		Cached:     one.Usage.Cached,
		Output:     one.Usage.Output,
		Money:      b.money,
		FromCache:  b.fromCache,
		Saved:      b.saved,
		Estimated:  one.Estimated,
		DurationMs: int64(one.DurationMs),
	})
}
