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

// peers is what a pool knows of the other gateways that share its workers.
type peers struct {
	count    int     // other gateways
	arrivals float64 // their requests per second, at the last report
	reported bool    // the last report has loads
}

// peerLoad is the load of the other gateways on one worker. Between two reports they are assumed to book as
// much as this gateway. Otherwise each of them would fill the same idle worker.
type peerLoad struct {
	reported load // sum of the last reports
	own      load // of this gateway, at the time of those
}

// ownLoadLocked returns what this gateway has booked on the worker.
func (w *Worker) ownLoadLocked(now time.Time) load {
	return load{w.inflight, w.pending, w.output, w.backlogLocked(now)}
}

// peerLoadLocked estimates what the other gateways have booked on the worker.
func (p *Pool) peerLoadLocked(w *Worker, now time.Time) load {
	if p.peers.count == 0 {
		return load{}
	}
	return w.peers.reported.plus(w.ownLoadLocked(now).growth(w.peers.own), p.peers.count)
}

// allInflight returns the requests in flight on the worker: this gateway's, and those that the others reported.
func (w *Worker) allInflight() int { return w.inflight + w.peers.reported.requests }

// addPeersLocked adds the load of other gateways to a view of the worker.
func (p *Pool) addPeersLocked(v *View, w *Worker, now time.Time) {
	if p.peers.count == 0 {
		return
	}
	l := p.peerLoadLocked(w, now)
	v.Inflight += l.requests
	v.PendingTokens += l.prefill
	v.OutputTokens += l.output
	v.PeerInflight, v.peerBacklog = l.requests, l.seconds
}

// loadVersion is the version of an encoded load. Gateways ignore loads of other versions.
const loadVersion = 1

// errMessage means that another gateway's message cannot be read: it is damaged, or of another version.
var errMessage = errors.New("a message of another gateway has an unknown form")

// AppendLoad appends the load that this gateway has booked on the workers, for SetPeers of other gateways. Its
// length is at most 48 bytes per worker.
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

// SetPeers replaces what the pool knows of the other gateways: their number, and the last load that each has
// published. If a load cannot be read, SetPeers ignores it and returns an error. Without any load, each other gateway
// counts as much as this one. With 0 gateways, the workers are this gateway's own.
func (p *Pool) SetPeers(now time.Time, gateways int, loads ...[]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes++ // a waiting request may have another best worker; the queue's next tick offers it
	p.peers = peers{count: max(0, gateways)}
	for _, w := range p.workers {
		w.countInflightLocked(now)
		w.peers = peerLoad{}
	}
	var wrong error
	for _, text := range loads {
		if err := p.addLoadLocked(text); err != nil {
			wrong = err
			continue
		}
		p.peers.reported = true
	}
	if p.peers.reported {
		for _, w := range p.workers {
			p.endDuePrefillsLocked(w, now)
			w.peers.own = w.ownLoadLocked(now)
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
	for range r.count(len(text)) {
		w := p.findHashLocked(r.uint64())
		l := load{requests: int(r.bounded(maxReported)), prefill: int64(r.bounded(maxBooked)),
			output: int64(r.bounded(maxBooked)), seconds: float64(r.bounded(maxReported*1000)) / 1000}
		if w != nil {
			loads = append(loads, workerLoad{w, l})
		}
	}
	if r.wrong || len(r.text) > 0 {
		return errMessage
	}
	p.peers.arrivals += arrivals
	for _, l := range loads {
		l.worker.peers.reported = l.worker.peers.reported.plus(l.load, 1)
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

// take returns the next n bytes, or nil.
func (r *messageReader) take(n int) []byte {
	if r.wrong || n > len(r.text) {
		r.wrong = true
		return nil
	}
	part := r.text[:n]
	r.text = r.text[n:]
	return part
}

func (r *messageReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *messageReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// bounded returns a number of at most that size.
func (r *messageReader) bounded(most uint64) uint64 {
	x, n := binary.Uvarint(r.text)
	if r.wrong || n <= 0 || x > most {
		r.wrong = true
		return 0
	}
	r.text = r.text[n:]
	return x
}

// count returns the number of parts that follow, each of at least one byte.
func (r *messageReader) count(most int) int { return int(r.bounded(uint64(most))) }
