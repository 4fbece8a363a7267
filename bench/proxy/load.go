package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// job is one load that the load process runs.
type job struct {
	Addr        string
	Key         string
	Shape       string
	Connections int
	Seconds     float64
	Rate        float64 // requests per second of an open loop; 0: closed loop
	Count       int     // requests of a closed loop instead of Seconds, at least; 0: Seconds
	Hold        int     // streams to open and keep until the next job; needs only Addr and Key
	Keys        int     // number of keys, of which each request has another one; 0: Key
	Sessions    int     // number of sessions, of which each request has another one; 0: no session
}

// result is the result of a job.
type result struct {
	Done    int     // complete answers
	Failed  int     // failed requests
	Failure string  // error of the first failed request
	PerSec  float64 // complete answers per second
	P50     float64 // microseconds
	P99     float64
	CPU     float64 // microseconds of the target's processor time per complete answer, with -cpu

	Allocated float64 // allocations of the target per complete answer, with -cpu; 0: not known
}

// loader runs jobs one after the other.
type loader struct{ held []*client }

// serveJobs reads jobs from r and writes a result for each to w, as JSON documents, until r
// ends.
func serveJobs(r io.Reader, w io.Writer) error {
	var l loader
	defer l.closeHeld()
	in, out := json.NewDecoder(r), json.NewEncoder(w)
	for {
		var j job
		if err := in.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a job: %w", err)
		}
		if err := out.Encode(l.run(j)); err != nil {
			return fmt.Errorf("writing a result: %w", err)
		}
	}
}

func (l *loader) run(j job) result {
	l.closeHeld()
	if j.Hold > 0 {
		return l.holdStreams(j)
	}
	s, err := shapeNamed(j.Shape)
	if err != nil {
		return result{Failed: 1, Failure: err.Error()}
	}
	keys, err := keysOf(j.Keys)
	if err != nil {
		return result{Failed: 1, Failure: err.Error()}
	}
	if len(keys) > 0 {
		j.Key = keys[0]
	}
	request := httpRequest(j.Addr, j.Key, s.body, sessionHeaders(j.Sessions)...)
	parts := make([]tally, j.Connections)
	begin := time.Now()
	end := begin.Add(time.Duration(j.Seconds * float64(time.Second)))
	if j.Count > 0 {
		end = begin.Add(time.Hour)
	}
	var wg sync.WaitGroup
	for i := range parts {
		due := sendTimes(begin, j, i)
		own := newVaried(request, len(s.body), s.vary, keys, j.Sessions)
		own.next = uint64(begin.UnixNano())*uint64(j.Connections) + uint64(i)
		own.step = uint64(j.Connections)
		if j.Count > 0 {
			own.left = (j.Count + j.Connections - 1) / j.Connections
		}
		wg.Go(func() { parts[i].sendUntil(j.Addr, own, s.check, end, due) })
	}
	wg.Wait()
	return resultOf(parts, time.Since(begin))
}

// sendTimes returns when connection i sends its n-th request in an open loop, in which the
// connections take turns. It returns nil for a closed loop.
func sendTimes(begin time.Time, j job, i int) func(n int) time.Time {
	if j.Rate <= 0 {
		return nil
	}
	return func(n int) time.Time {
		return begin.Add(time.Duration(float64(n*j.Connections+i) / j.Rate * float64(time.Second)))
	}
}

// tally is one connection's share of a result.
type tally struct {
	took   []time.Duration
	failed int
	first  error
}

// sendUntil sends requests until end. After a failed request it opens a new connection; if the
// target refuses it, sendUntil returns.
func (t *tally) sendUntil(addr string, request *varied, check func([]byte) error, end time.Time,
	due func(int) time.Time) {
	var c *client
	defer func() {
		if c != nil {
			c.close()
		}
	}()
	t.took = make([]time.Duration, 0, 1<<14)
	free := time.Now()
	for n := 0; ; n++ {
		start := free
		if due != nil {
			at := due(n)
			if !at.Before(end) {
				return
			}
			if wait := time.Until(at); wait > 0 {
				time.Sleep(wait)
				start = time.Now() // a late wake-up does not count against the target
			} else {
				start = at // the connection was still busy: the wait for it counts
			}
		} else if n > 0 && (!start.Before(end) || n == request.left) { // the first request is sent even after a late start
			return
		}
		if c == nil {
			var err error
			if c, err = dial(addr); err != nil {
				t.addFailure(err)
				return
			}
		}
		body, err := c.do(request.bytes())
		free = time.Now()
		if err == nil {
			err = check(body)
		}
		if err != nil {
			t.addFailure(err)
			c.close()
			c = nil
			continue
		}
		t.took = append(t.took, free.Sub(start))
	}
}

func (t *tally) addFailure(err error) {
	t.failed++
	if t.first == nil {
		t.first = err
	}
}

func resultOf(parts []tally, elapsed time.Duration) result {
	var r result
	var took []time.Duration
	for _, t := range parts {
		took = append(took, t.took...)
		r.Failed += t.failed
		if r.Failure == "" && t.first != nil {
			r.Failure = t.first.Error()
		}
	}
	r.Done = len(took)
	r.PerSec = float64(r.Done) / elapsed.Seconds()
	slices.Sort(took)
	r.P50, r.P99 = quantile(took, 0.50), quantile(took, 0.99)
	return r
}

// quantile returns the q-quantile of sorted durations in microseconds; 0 without durations.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))]) / float64(time.Microsecond)
}

// holdStreams opens j.Hold streams and reads the first event of each.
func (l *loader) holdStreams(j job) result {
	var r result
	request := httpRequest(j.Addr, j.Key, question(smallBytes, streamMark+holdMark))
	for range j.Hold {
		c, err := dial(j.Addr)
		if err == nil {
			l.held = append(l.held, c)
			err = c.openStream(request)
		}
		if err != nil {
			r.Failed++
			r.Failure = err.Error()
			return r
		}
		r.Done++
	}
	return r
}

// openStream sends a request and reads the first event of its stream.
func (c *client) openStream(request []byte) error {
	if err := c.send(request); err != nil {
		return err
	}
	h, err := c.readHead()
	if err != nil {
		return err
	}
	if h.status != 200 || !h.chunked {
		return fmt.Errorf("status %d and no stream", h.status)
	}
	c.body = c.body[:0]
	_, err = c.readChunk()
	return err
}

func (l *loader) closeHeld() {
	for _, c := range l.held {
		c.close()
	}
	l.held = nil
}
