package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// waitSeconds are the bounds of the histogram of waits in a queue: below 1 ms
// nobody waited, 600 s is the longest default of max_wait.
var waitSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}

// QueueGauges is what a scrape shows of one queue at that moment. Totals count
// since the gateway started.
type QueueGauges struct {
	Tier     string
	Bytes    int64 // bodies of all that wait
	Stale    int64 // seconds, summed over the workers, in which a worker's own metrics were too old to count
	MaxBytes int64 // of Bytes; 0 is no bound
	MaxDepth int   // requests of each class that may wait; 0: nobody waits
	Classes  []ClassGauges
}

// ClassGauges is what a scrape shows of one class of a queue.
type ClassGauges struct {
	Class    string
	Depth    int           // requests that wait
	Oldest   time.Duration // how long the one that waits longest has waited; 0 when nobody waits
	Entered  int64         // total of requests that had to wait
	Granted  int64         // total of those that had a worker after it
	Promoted int64         // total of those granted that went as the class above, having waited past age
	Left     int64         // total of those whose client left while they waited
	PutOut   int64         // total of those shed after a wait
	Shed     []ShedTotal   // at once or after a wait; each reason once, also those of nobody
}

// ShedTotal counts the requests that a queue refused for a reason.
type ShedTotal struct {
	Reason string // such as depth; from a fixed set
	Total  int64
}

// tierSeries are those of a whole queue, in the order of their values in Collect.
var tierSeries = []series{
	{"tierway_queue_bytes", "Bytes of the bodies of the requests that wait.", prometheus.GaugeValue},
	{"tierway_metrics_stale_seconds_total", "Seconds in which requests were given out without regard to a worker's own metrics, because those were older than saturation.stale_after; summed over the workers.", prometheus.CounterValue},
	{"tierway_queue_limit_bytes", "Bytes of bodies that may wait; 0 while there is no bound.", prometheus.GaugeValue},
	{"tierway_queue_limit_requests", "Requests of each class that may wait; 0 while nobody may.", prometheus.GaugeValue},
}

// classSeries are those of one class of a queue, in the order of their values in
// Collect.
var classSeries = []series{
	{"tierway_queue_depth", "Requests that wait for a worker.", prometheus.GaugeValue},
	{"tierway_queue_oldest_age_seconds", "How long the request that waits longest has waited; 0 when nobody waits.", prometheus.GaugeValue},
	{"tierway_queue_entered_total", "Requests that had to wait. Entered = granted + left + put out + depth.", prometheus.CounterValue},
	{"tierway_queue_granted_total", "Requests that had a worker after a wait.", prometheus.CounterValue},
	{"tierway_queue_promotions_total", "Requests that waited longer than their class's age and went as the class above.", prometheus.CounterValue},
	{"tierway_queue_left_total", "Requests whose client left while they waited.", prometheus.CounterValue},
	{"tierway_queue_put_out_total", "Requests shed after a wait.", prometheus.CounterValue},
}

// shedSeries counts the refused ones of one class by reason.
var shedSeries = []series{
	{"tierway_queue_shed_total", "Requests that the queue refused, at once or after a wait, by reason: depth and bytes (the queue was full), wait (max_wait was over), deadline (their turn would have come too late), displaced (for a newcomer), engine (nobody was up for engine_wait). Counts too where a request that a worker had failed was to wait for another one: its client is told what the worker did.", prometheus.CounterValue},
}

// ObserveQueues makes every scrape call read, which must be safe for concurrent
// use and quick. A tier and a class may be there once each. It is called once a
// process.
func (m *Metrics) ObserveQueues(read func() []QueueGauges) {
	m.observe(func(send send) {
		for _, q := range read() {
			send(tierSeries, []string{q.Tier}, float64(q.Bytes), float64(q.Stale), float64(q.MaxBytes), float64(q.MaxDepth))
			for _, k := range q.Classes {
				send(classSeries, []string{q.Tier, k.Class}, float64(k.Depth), k.Oldest.Seconds(),
					float64(k.Entered), float64(k.Granted), float64(k.Promoted), float64(k.Left), float64(k.PutOut))
				for _, s := range k.Shed {
					send(shedSeries, []string{q.Tier, k.Class, s.Reason}, float64(s.Total))
				}
			}
		}
	}, tierSeries, classSeries, shedSeries)
}

// Waits is the resolved tierway_queue_wait_seconds of one tier or pool.
type Waits struct {
	classes []prometheus.Observer
}

// Waits resolves the histogram of a tier for the names of all classes; Granted
// takes indexes into them.
func (m *Metrics) Waits(tier string, classes []string) *Waits {
	w := &Waits{classes: make([]prometheus.Observer, len(classes))}
	for i, c := range classes {
		w.classes[i] = m.waits.WithLabelValues(tier, c)
	}
	return w
}

// Granted counts a request that had a worker, once, with all its waits together:
// 0 for one that had its workers at once.
func (w *Waits) Granted(class int, wait time.Duration) { w.classes[class].Observe(wait.Seconds()) }
