package routing

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"
)

// load is what gateways have booked on one worker.
type load struct {
	requests        int
	prefill, output int64   // tokens
	seconds         float64 // until the booked prefills end
}

// plus returns the sum of l and n times o.
func (l load) plus(o load, n int) load {
	return load{l.requests + n*o.requests, l.prefill + int64(n)*o.prefill, l.output + int64(n)*o.output,
		l.seconds + float64(n)*o.seconds}
}

// growth returns by how much each part of l exceeds that of o.
func (l load) growth(o load) load {
	return load{max(0, l.requests-o.requests), max(0, l.prefill-o.prefill), max(0, l.output-o.output),
		max(0, l.seconds-o.seconds)}
}

// otherGateways is what a pool has read of the other gateways that share its workers.
type otherGateways struct {
	count    int     // other gateways
	arrivals float64 // their requests per second, at the last report
	reported bool    // the last report has loads
}

// othersLoad is the load of the other gateways on one worker. Between two reports they are assumed to book as
// much as this gateway. Otherwise each of them would fill the same idle worker.
type othersLoad struct {
	reported load // sum of the last reports
	own      load // of this gateway, at the time of those
}

// ownLoadLocked returns what this gateway has booked on the worker.
func (w *Worker) ownLoadLocked(now time.Time) load {
	return load{w.inflight, w.pending, w.output, w.backlogLocked(now)}
}

// othersLoadLocked estimates what the other gateways have booked on the worker.
func (p *Pool) othersLoadLocked(w *Worker, now time.Time) load {
	if p.others.count == 0 {
		return load{}
	}
	return w.others.reported.plus(w.ownLoadLocked(now).growth(w.others.own), p.others.count)
}

// allInflight returns the requests in flight on the worker: this gateway's, and those that the others reported.
func (w *Worker) allInflight() int { return w.inflight + w.others.reported.requests }

// addOthersLocked adds the load of other gateways to a view of the worker.
func (p *Pool) addOthersLocked(v *View, w *Worker, now time.Time) {
	if p.others.count == 0 {
		return
	}
	l := p.othersLoadLocked(w, now)
	v.Inflight += l.requests
	v.PendingTokens += l.prefill
	v.OutputTokens += l.output
	v.OthersInflight, v.othersBacklog = l.requests, l.seconds
}

// loadVersion is the version of an encoded load. Gateways ignore loads of other versions.
const loadVersion = 1

// errMessage means that another gateway's message cannot be read: it is damaged, or of another version.
var errMessage = errors.New("a load or journal of another gateway is damaged or of another version")

// AppendLoad appends the load that this gateway has booked on the workers, for SetOtherGateways of other gateways.
// Its length is at most 48 bytes per worker.
func (p *Pool) AppendLoad(dst []byte, now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advanceTrafficLocked(now)
	dst = append(dst, loadVersion)
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(p.recentArrivalsLocked(now)))
	dst = binary.AppendUvarint(dst, uint64(len(p.workers)))
	for _, w := range p.workers {
		p.endDuePrefillsLocked(w, now)
		l := w.ownLoadLocked(now)
		dst = binary.LittleEndian.AppendUint64(dst, HashText(w.id))
		// Within the bounds that the receiver accepts: it ignores a load with any number above them.
		dst = binary.AppendUvarint(dst, uint64(min(max(0, l.requests), maxReported)))
		dst = binary.AppendUvarint(dst, uint64(booked(l.prefill)))
		dst = binary.AppendUvarint(dst, uint64(booked(l.output)))
		dst = binary.AppendUvarint(dst, uint64(min(max(0, l.seconds), maxReported)*1000))
	}
	return dst
}

// recentArrivalsLocked returns the requests per second of this gateway; 0 while it is idle, so that an idle gateway's
// load does not change.
func (p *Pool) recentArrivalsLocked(now time.Time) float64 {
	for _, w := range p.workers {
		if w.inflight > 0 || now.Sub(w.costs.recentAt) < time.Second {
			return p.traffic.arrivals
		}
	}
	return 0
}

// SetOtherGateways replaces what the pool knows of the other gateways: their number, and the last load that each has
// published. If a load cannot be read, SetOtherGateways ignores it and returns an error. Without any load, each other
// gateway counts as much as this one. With 0 gateways, the workers are this gateway's own.
func (p *Pool) SetOtherGateways(now time.Time, gateways int, loads ...[]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes++ // a waiting request may have another best worker; the queue's next tick offers it
	p.others = otherGateways{count: max(0, gateways)}
	for _, w := range p.workers {
		w.countInflightLocked(now)
		w.others = othersLoad{}
	}
	var wrong error
	for _, text := range loads {
		if err := p.addLoadLocked(text); err != nil {
			wrong = err
			continue
		}
		p.others.reported = true
	}
	if p.others.reported {
		for _, w := range p.workers {
			p.endDuePrefillsLocked(w, now)
			w.others.own = w.ownLoadLocked(now)
		}
	}
	return wrong
}

// maxReported bounds the requests that gateways report for one worker, and the seconds of its backlog.
const maxReported = 1 << 20

// addLoadLocked adds one encoded load to the workers that it names.
func (p *Pool) addLoadLocked(text []byte) error {
	r := messageReader{text: text}
	if r.byte() != loadVersion {
		return errMessage
	}
	arrivals := math.Float64frombits(r.uint64())
	if !(arrivals >= 0 && arrivals <= maxReported) {
		return errMessage
	}
	type workerLoad struct {
		worker *Worker
		load   load
	}
	loads := make([]workerLoad, 0, len(p.workers))
	for range r.partCount(len(text)) {
		w := p.findHashLocked(r.uint64())
		l := load{requests: int(r.boundedNumber(maxReported)), prefill: int64(r.boundedNumber(maxBooked)),
			output: int64(r.boundedNumber(maxBooked)), seconds: float64(r.boundedNumber(maxReported*1000)) / 1000}
		if w != nil {
			loads = append(loads, workerLoad{w, l})
		}
	}
	if r.wrong || len(r.text) > 0 {
		return errMessage
	}
	p.others.arrivals += arrivals
	for _, l := range loads {
		l.worker.others.reported = l.worker.others.reported.plus(l.load, 1)
	}
	return nil
}

// findHashLocked returns the worker with that hash of its ID, or nil.
func (p *Pool) findHashLocked(hash uint64) *Worker {
	i := slices.IndexFunc(p.workers, func(w *Worker) bool { return w.idHash == hash })
	if i < 0 {
		return nil
	}
	return p.workers[i]
}

// messageReader reads the parts of a message from left to right. After the first wrong part, all are 0.
type messageReader struct {
	text  []byte
	wrong bool
}

// nextBytes returns the next n bytes, or nil.
func (r *messageReader) nextBytes(n int) []byte {
	if r.wrong || n > len(r.text) {
		r.wrong = true
		return nil
	}
	part := r.text[:n]
	r.text = r.text[n:]
	return part
}

func (r *messageReader) byte() byte {
	if b := r.nextBytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *messageReader) uint64() uint64 {
	if b := r.nextBytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// boundedNumber returns a number of at most that size.
func (r *messageReader) boundedNumber(maxNumber uint64) uint64 {
	x, n := binary.Uvarint(r.text)
	if r.wrong || n <= 0 || x > maxNumber {
		r.wrong = true
		return 0
	}
	r.text = r.text[n:]
	return x
}

// partCount returns the number of parts that follow, each of at least one byte.
func (r *messageReader) partCount(maxParts int) int { return int(r.boundedNumber(uint64(maxParts))) }
