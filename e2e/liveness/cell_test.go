package liveness

import (
	"testing"
	"testing/synctest"
	"time"
)

// The times of a cell. Its load begins when the first health checks have ended.
const (
	firstChecks = time.Second
	warmUp      = 20 * time.Second // load before the fault
	idleGap     = 4 * time.Second  // end of the warm-up without requests, before a fault of an idle worker
	faultTime   = 40 * time.Second
	watchTime   = 50 * time.Second // after the recovery: 100 requests show the share of a recovered worker
	settledFrom = 5 * time.Second  // of the warm-up: the gateway has learned the speed of its workers
)

// The bounds that each cell must keep.
const (
	detectionTime = 10 * time.Second // plus the prediction: from then on a sick worker gets few requests
	sickPart      = 20               // at most one in this number of requests is sent to the sick worker
	recoveryTime  = 30 * time.Second // from then on a recovered worker has its share
	sharePart     = 2                // of its fair share at least one in this number
)

// observation is what a cell shows. Its times are those of the fault.
type observation struct {
	cell
	sick       string
	prediction time.Duration // longest time to content before the fault
	requests   int           // since the fault
	failed     int           // of them
	refused    int           // connections
	late       int           // requests that were sent to the sick worker after the detection
	lateOf     int           // requests in this time
	longest    time.Duration // longest silence of an attempt on the sick worker
	before     float64       // share of the sick worker before the fault
	after      float64       // share of the sick worker after its recovery
	eligible   bool          // at the end
	stopped    bool          // the fault has begun
	cost       time.Duration // processor time
	log        string        // of the gateway
}

// observe runs a cell.
func observe(t *testing.T, k cell) (o observation) {
	before := processorTime()
	synctest.Test(t, func(t *testing.T) { o = runCell(t, k) })
	o.cost = processorTime() - before
	return o
}

// runCell runs a cell in a bubble.
func runCell(t *testing.T, k cell) observation {
	engines := make([]engineConfig, k.workers)
	for i := range engines {
		engines[i] = usualEngine()
	}
	c, f := newCluster(t, k.policy, engines...), faultNamed(k.fault)
	l := usualLoad(k.stream, k.prefix, k.tenants)
	time.Sleep(firstChecks)
	begin := time.Now()
	failing, recovered := begin.Add(warmUp), begin.Add(warmUp+faultTime)
	if f.idle {
		l.drive(c, failing.Add(-idleGap))
		time.Sleep(idleGap)
	}
	l.drive(c, failing)
	sick := c.busiest(begin)
	if err := f.begin(sick); err != nil {
		t.Fatal(err)
	}
	l.drive(c, recovered)
	if err := f.end(sick); err != nil {
		t.Fatal(err)
	}
	l.drive(c, recovered.Add(watchTime))
	o := observation{cell: k, sick: sick.name, eligible: c.eligible(sick), log: c.log.String()}
	o.refused = c.wire.refusals(sick.address)
	o.countServed(l.wait(), failing)
	o.countAttempts(c.wire.all(), sick, begin, recovered)
	return o
}

// countServed counts the requests since the fault.
func (o *observation) countServed(all []served, failing time.Time) {
	for _, s := range all {
		if s.began.Before(failing) {
			continue
		}
		o.requests++
		if s.err != nil {
			o.failed++
		}
	}
}

// countAttempts counts the attempts on the sick worker. Its fault begins when its engine stops.
func (o *observation) countAttempts(all []attempt, sick *process, begin, recovered time.Time) {
	sick.mu.Lock()
	failing := sick.stoppedAt
	sick.mu.Unlock()
	o.stopped = !failing.IsZero()
	for _, a := range all {
		if a.began.Before(failing) && !a.contentAt.IsZero() && a.contentAt.Before(failing) {
			o.prediction = max(o.prediction, a.contentAt.Sub(a.began))
		}
		if a.address == sick.address && a.began.Before(recovered) {
			o.longest = max(o.longest, a.silence(time.Now()))
		}
	}
	o.late, o.lateOf = countBetween(all, sick, failing.Add(detectionTime+o.prediction), recovered)
	o.before = share(countBetween(all, sick, begin.Add(settledFrom), failing))
	o.after = share(countBetween(all, sick, recovered.Add(recoveryTime), recovered.Add(watchTime)))
}

// countBetween counts the attempts of a worker, and those of all workers, that began in a time.
func countBetween(all []attempt, w *process, from, to time.Time) (own, of int) {
	for _, a := range all {
		if a.began.Before(from) || !a.began.Before(to) {
			continue
		}
		of++
		if a.address == w.address {
			own++
		}
	}
	return own, of
}

func share(own, of int) float64 { return float64(own) / max(float64(of), 1) }
