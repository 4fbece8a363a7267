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

// A job is what the load process does next.
type job struct {
	Addr        string
	Key         string
	Shape       string
	Connections int
	Seconds     float64
	Rate        float64 // requests a second, open loop; 0 is a closed loop
	Hold        int     // open so many streams and keep them until the next job; the rest is ignored
}

// A result is what a job came to.
type result struct {
	Done    int     // whole answers
	Failed  int     // everything else
	Failure string  // the first of them
	PerSec  float64 // whole answers a second
	P50     float64 // microseconds
	P99     float64
	CPU     float64 // microseconds of the target's processor time per whole answer, with -cpu
}

// loader runs jobs one after the other.
type loader struct{ held []*client }

// serveJobs reads jobs from r and writes a result for each to w, a JSON document
// each, until r ends.
func serveJobs(r io.Reader, w io.Writer) error {
	var l loader
	defer l.release()
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
	l.release()
	if j.Hold > 0 {
		return l.hold(j)
	}
	s, err := shapeNamed(j.Shape)
	if err != nil {
		return result{Failed: 1, Failure: err.Error()}
	}
	request := httpRequest(j.Addr, j.Key, s.body)
	parts := make([]tally, j.Connections)
	begin := time.Now()
	end := begin.Add(time.Duration(j.Seconds * float64(time.Second)))
	var wg sync.WaitGroup
	for i := range parts {
		due := everyAt(begin, j, i)
		wg.Go(func() { parts[i].fill(j.Addr, request, s.check, end, due) })
	}
	wg.Wait()
	return sum(parts, time.Since(begin))
}

// everyAt is when connection i sends its n-th request in an open loop: the
// connections take turns. It is nil in a closed loop.
func everyAt(begin time.Time, j job, i int) func(n int) time.Time {
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

// fill sends requests until end. A failure costs the connection, so a new one is
// made; a target that refuses those ends it.
func (t *tally) fill(addr string, request []byte, check func([]byte) error, end time.Time, due func(int) time.Time) {
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
				start = time.Now() // the wake-up's lateness is the generator's, not the target's
			} else {
				start = at // the connection was still busy: waiting for it counts
			}
		} else if n > 0 && !start.Before(end) { // the first one is sent however late the start was
			return
		}
		if c == nil {
			var err error
			if c, err = dial(addr); err != nil {
				t.fail(err)
				return
			}
		}
		body, err := c.do(request)
		free = time.Now()
		if err == nil {
			err = check(body)
		}
		if err != nil {
			t.fail(err)
			c.close()
			c = nil
			continue
		}
		t.took = append(t.took, free.Sub(start))
	}
}

func (t *tally) fail(err error) {
	t.failed++
	if t.first == nil {
		t.first = err
	}
}

func sum(parts []tally, elapsed time.Duration) result {
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

// quantile is the q-th of sorted durations in microseconds, 0 of none.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))]) / float64(time.Microsecond)
}

// hold opens j.Hold streams, each until its first event is there.
func (l *loader) hold(j job) result {
	var r result
	request := httpRequest(j.Addr, j.Key, question(smallBytes, streamMark+holdMark))
	for range j.Hold {
		c, err := dial(j.Addr)
		if err == nil {
			l.held = append(l.held, c)
			err = c.open(request)
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

// open sends request and returns once the first event of its stream is there.
func (c *client) open(request []byte) error {
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

func (l *loader) release() {
	for _, c := range l.held {
		c.close()
	}
	l.held = nil
}
