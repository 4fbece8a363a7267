package config

import (
	"fmt"
	"time"

	"tierway/openai"
	"tierway/tenants"
	"tierway/workers"
)

// checkQueues warns of impossible waits and of limits without effect, in the file's sections
// and in those of tiers and pools.
func (d *decoder) checkQueues(f *File) {
	file := f.Queue
	d.checkAges("queue", file)
	d.checkWaits("queue", file, f.Timeouts.Total)
	d.checkBodies("queue", file, f)
	d.checkStale("", f.Saturation, f.Health)
	read := false // some worker's metrics are read
	for _, s := range f.sections() {
		waits := overlay(s.Queue, file)
		d.checkAges(s.path+".queue", waits)
		d.checkWaits(s.path+".queue", waits, f.Timeouts.Total)
		d.checkBodies(s.path+".queue", waits, f)
		if openai.Engine(s.Engine).HasMetrics() {
			d.checkStale(s.path+".", overlay(s.Saturation, f.Saturation), f.healthOf(s.Health))
		}
		off := f.healthOf(s.Health).Path == "off"
		read = read || !off
		d.checkUnread(s.path+".", off)
	}
	d.checkUnread("", !read && len(f.Tiers)+len(f.Pools) > 0)
}

// checkAges warns of requests that reach their maximum wait before they can be promoted.
func (d *decoder) checkAges(path string, q Queue) {
	waits, ages := q.MaxWait.config(), q.Age.config()
	for i, class := range tenants.Classes() {
		wait, age := waits[i], ages[i]
		at := path + ".age." + class
		switch {
		case age == 0:
		case wait == 0 && d.written(at):
			d.warn(at, fmt.Sprintf("%v has no effect: max_wait.%s is 0s, so %s requests do not wait", age, class, class),
				fmt.Sprintf("set max_wait.%s above 0s, or remove the key", class))
		case wait == 0 || age < wait:
		case d.written(at):
			d.warn(at, fmt.Sprintf("%v is not below max_wait.%s (%v), so %s requests are never promoted", age, class, wait,
				class),
				fmt.Sprintf("lower it, raise max_wait.%s, or set age: {%s: 0s} to turn promotion off", class, class))
		case d.written(path + ".max_wait." + class):
			d.warn(path+".max_wait."+class, fmt.Sprintf("%v is not above age.%s (%v), so %s requests are never promoted", wait,
				class, age, class),
				fmt.Sprintf("raise it, lower age.%s, or set age: {%s: 0s} to turn promotion off", class, class))
		}
	}
}

// checkWaits warns of waits that exceed the total time of a request.
func (d *decoder) checkWaits(path string, q Queue, total Total) {
	waits, totals := q.MaxWait.config(), [...]time.Duration{total.Interactive, total.Background, total.Batch}
	for i, class := range tenants.Classes() {
		at, end := path+".max_wait."+class, "timeouts.total."+class
		switch {
		case waits[i] <= totals[i]:
		case d.written(at):
			d.warn(at, fmt.Sprintf("%v exceeds %s (%v), which ends the wait earlier", waits[i], end, totals[i]),
				fmt.Sprintf("set at most %v, or raise %s", totals[i], end))
		case path == "queue" && d.written(end):
			d.warn(end, fmt.Sprintf("%v is below %s (%v), so it ends waits earlier", totals[i], at, waits[i]),
				fmt.Sprintf("raise it, or set at most %v for %s", totals[i], at))
		}
	}
	at, wait, shortest := path+".engine_wait", valueOf(q.EngineWait), min(total.Interactive, total.Background, total.Batch)
	if wait > shortest && d.written(at) {
		d.warn(at, fmt.Sprintf("%v exceeds the shortest timeouts.total (%v)", wait, shortest),
			fmt.Sprintf("set at most %v, or raise timeouts.total", shortest))
	}
}

// checkBodies warns of bodies that are accepted but can never wait.
func (d *decoder) checkBodies(path string, q Queue, f *File) {
	maxWaiting := valueOf(q.MaxBytes)
	if maxWaiting == 0 || maxWaiting >= f.MaxBodyBytes {
		return
	}
	if at := path + ".max_bytes"; d.written(at) {
		d.warn(at, fmt.Sprintf("%v is less than max_body_bytes (%v), so a request with a longer body cannot wait", maxWaiting,
			f.MaxBodyBytes),
			fmt.Sprintf("set at least %v, or 0 for no limit", f.MaxBodyBytes))
	} else if path == "queue" {
		d.warn("max_body_bytes", fmt.Sprintf("%v exceeds queue.max_bytes (%v), so a request with a longer body cannot wait",
			f.MaxBodyBytes, maxWaiting),
			"raise queue.max_bytes, or set queue: {max_bytes: 0} for no limit")
	}
}

// checkUnread warns of saturation thresholds without health checks, which read the metrics.
func (d *decoder) checkUnread(section string, off bool) {
	if at := section + "saturation"; off && d.written(at) {
		d.warn(at, "has no effect: health.path is off, so metrics are never read", "remove it, or change health.path")
	}
}

// shortestStale is the lowest useful stale_after. The metrics of a busy worker are read three
// times within stale_after, but at most every 100 ms.
const shortestStale = 300 * time.Millisecond

// checkStale warns of metrics that expire between two readings.
func (d *decoder) checkStale(section string, s Saturation, h workers.Health) {
	at := section + "saturation.stale_after"
	if s.StaleAfter >= shortestStale || h.Path == "off" || valueOf(s.Waiting) == 0 && valueOf(s.KVUsage) == 0 ||
		!d.written(at) {
		return
	}
	d.warn(at,
		fmt.Sprintf("%v is below %v, the shortest period in which metrics are read three times: they expire between readings",
			s.StaleAfter, shortestStale), fmt.Sprintf("set at least %v", shortestStale))
}
