package kvcache

import (
	"time"

	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
)

// Counts are numbers since the worker was added.
type Counts struct {
	Batches, Stored, Removed, Cleared int64 // events by kind
	Rejected                          int64 // events that could not be used, except Unnamed
	Unnamed                           int64 // stores of a LoRA adapter without its name
	Resets                            int64 // times that the index of a stream was emptied
	Happened                          [kvstream.Happenings]int64
}

func (c *Counts) add(b *kvevents.Batch) {
	c.Batches++
	for i := range b.Events {
		switch b.Events[i].Kind {
		case kvevents.Stored:
			c.Stored++
		case kvevents.Removed:
			c.Removed++
		case kvevents.Cleared:
			c.Cleared++
		}
	}
	for _, n := range b.Rejected {
		c.Rejected += int64(n)
	}
	unnamed := int64(b.Rejected[kvevents.UnnamedAdapter])
	c.Rejected -= unnamed
	c.Unnamed += unnamed
}

func (c *Counts) merge(o *Counts) {
	c.Batches += o.Batches
	c.Stored += o.Stored
	c.Removed += o.Removed
	c.Cleared += o.Cleared
	c.Rejected += o.Rejected
	c.Unnamed += o.Unnamed
	c.Resets += o.Resets
	for i, n := range o.Happened {
		c.Happened[i] += n
	}
}

// View is the state of a worker's streams at one moment. Numbers are sums over its ranks.
type View struct {
	Streams   int       // sources that are read
	Live      bool      // all streams are live
	Known     bool      // the worker has an entry in Lookup
	Since     time.Time // of the last change of a stream; zero before the first
	Fault     string    // cause of a stream that is not live
	BlockSize int       // in tokens; 0 before the first event
	Blocks    int       // in the index
	LastGap   time.Time // last gap or restart; zero without
	Lag       time.Duration
	Index     kvindex.Counts
	Counts    Counts
}

// View returns the state of the worker's streams.
func (w *Worker) View() View {
	all := w.pool.caches
	all.mu.Lock()
	defer all.mu.Unlock()
	v := View{Streams: len(w.ranks), Live: len(w.ranks) > 0, Known: len(w.ranks) > 0}
	v.Counts = w.ended
	v.Index = w.endedIndex
	for _, r := range w.ranks {
		r.addTo(&v)
	}
	return v
}

func (r *rank) addTo(v *View) {
	v.Live = v.Live && r.live.Load()
	v.Known = v.Known && r.known()
	v.BlockSize = max(v.BlockSize, int(r.blockSize.Load()))
	v.Blocks += r.index.Len()
	addIndex(&v.Index, r.index.Counts())
	r.mu.Lock()
	defer r.mu.Unlock()
	v.Counts.merge(&r.counts)
	if r.since.After(v.Since) {
		v.Since = r.since
	}
	if r.lastGap.After(v.LastGap) {
		v.LastGap = r.lastGap
	}
	if r.fault != "" {
		v.Fault = r.fault
	}
	v.Lag = max(v.Lag, r.lag)
}

func addIndex(sum *kvindex.Counts, c kvindex.Counts) {
	sum.Stored += c.Stored
	sum.Removed += c.Removed
	sum.Unknown += c.Unknown
	sum.Evicted += c.Evicted
	sum.Unusable += c.Unusable
	sum.Resettled += c.Resettled
	sum.Aged += c.Aged
}
