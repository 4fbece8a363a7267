package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"io"
	"log/slog"
	"sync/atomic"

	"tierway/config"
	"tierway/decisions"
	"tierway/pairing"
	"tierway/responsecache"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/server/learning"
	"tierway/spool"
	"tierway/telemetry"
)

// Proxy serves the data plane. It is safe for concurrent use.
type Proxy struct {
	control *control.Control
	log     *slog.Logger
	metrics *telemetry.Metrics
	traces  *telemetry.Traces // nil without
	records *records
	// learning writes features and labels; nil without learning.directory
	learning *learning.Store
	rand     func() uint64
	seed     maphash.Seed // seed of the hashes by which failed requests are compared

	intake  *intake.Intake
	budget  *retryBudget
	rooms   rooms
	cache   responsecache.Memory
	samples *pairing.Samples // requests to repeat
	buffers *bufferPools

	inflightCount atomic.Int64
	inflight      inflightRequests
	exhaustions   logLimiter // failed connections without a free file descriptor

	draining atomic.Bool
	isCut    atomic.Bool // the drain has ended
}

// Options are the parts of a Proxy.
type Options struct {
	Control *control.Control
	// Access receives one JSON line per request, in one Write that must not block. Nil: no access
	// log.
	Access       io.Writer
	Decisions    *decisions.Log
	DecisionFile *spool.File[*decisions.Decision] // nil without
	Learning     *learning.Store                  // nil without
	Traces       *telemetry.Traces                // nil without
	Samples      *pairing.Samples                 // receives the requests that are to be repeated; nil: none are
	Name         string                           // name of this process among gateways
	Log          *slog.Logger
	Metrics      *telemetry.Metrics
	Rand         func() uint64 // uniform; safe for concurrent use
}

// New builds a data plane on a Control, which may have no configuration in force yet.
func New(o Options) *Proxy {
	px := &Proxy{
		control:  o.Control,
		log:      o.Log,
		metrics:  o.Metrics,
		traces:   o.Traces,
		rand:     o.Rand,
		records:  newRecords(&o),
		learning: o.Learning,
		seed:     maphash.MakeSeed(),
		budget:   newRetryBudget(),
		samples:  o.Samples,
		buffers:  newBufferPools(),
	}
	px.intake = intake.New(intake.Options{Control: o.Control, Metrics: o.Metrics, Name: o.Name, Rand: o.Rand})
	o.Metrics.SetRequestLabels(control.Dialects, control.Outcomes)
	o.Metrics.SetCacheLabels(cacheReasons())
	telemetry.Observe(o.Metrics, func() telemetry.OldestRequest {
		return telemetry.OldestRequest{Age: px.inflight.oldest()}
	})
	if o.Control.Pools != nil {
		o.Control.Pools.OnStopped(px.leaveStopped)
	}
	o.Control.Follow(px.Configure)
	return px
}

// Configure applies the bounds of a configuration, and removes the kept answers of tenants and groups that no
// longer exist.
func (px *Proxy) Configure(f *config.File) {
	px.records.log.Resize(f.Decisions.Keep)
	px.records.keeps.Store(f.Decisions.Keep > 0 || px.records.file != nil)
	px.traces.SetSample(f.Telemetry.Sample)
	px.budget.configure(f.Retry.Budget)
	px.intake.Configure(f)
	px.cache.SetMax(int64(f.ResponseCache.MaxBytes))
	px.cache.Forget(px.control.Snapshot().KeepsAnswers)
}

// Drain makes every further answer close its connection.
func (px *Proxy) Drain() { px.draining.Store(true) }

// Draining reports whether Drain was called.
func (px *Proxy) Draining() bool { return px.draining.Load() }

// Cut records that the drain has ended. Queued requests are then answered with ErrDrainCut as the cause,
// instead of being dispatched.
func (px *Proxy) Cut() { px.isCut.Store(true) }

// Inflight returns the number of requests in flight, from their first byte to their last.
func (px *Proxy) Inflight() int64 { return px.inflightCount.Load() }

// BodyMemory returns the memory of request bodies.
func (px *Proxy) BodyMemory() telemetry.BodyMemory {
	held, limit := px.intake.BodyMemory()
	return telemetry.BodyMemory{Used: held, Limit: limit}
}

// Remembered returns the number of chats with a known tier and of stored responses with a known worker.
func (px *Proxy) Remembered() (chats, responses int) {
	return px.intake.Chats().Len(), px.intake.StoredCount()
}

// newID returns 128 random bits as 32 hexadecimal digits.
func (px *Proxy) newID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], px.rand())
	binary.BigEndian.PutUint64(b[8:], px.rand())
	return hex.EncodeToString(b[:])
}
