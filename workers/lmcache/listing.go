package lmcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	workersPath = "/controller/workers"
	keysPath    = "/controller/key-stats"
	// warnAfter is the number of polls without an instance after which the log has a warning: engines register
	// while they start.
	warnAfter = 3
)

// Instance is an instance of LMCache: an engine with its cache.
type Instance struct {
	ID   string
	Keys int64 // chunks in its caches, of all its workers together
}

// Listing is what a controller lists. It is immutable.
type Listing struct {
	Instances []Instance // in the order of their IDs
	Counted   bool       // the numbers of keys are known
}

// Listing returns the answer to the last poll; nil if that failed, or none has ended.
func (k *Controller) Listing() *Listing { return k.listing.Load() }

// poll reads the workers, and the numbers of their keys.
func (k *Controller) poll(ctx context.Context) {
	l, err := k.list(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil && k.c.Lookups {
		// Look-ups need no list, which old versions do not have.
		if _, answered := errors.AsType[statusError](err); !answered {
			k.suspend(err)
		}
		err = nil
	}
	k.record(l, err)
}

func (k *Controller) list(ctx context.Context) (*Listing, error) {
	text, err := k.call(ctx, k.c.Timeout, http.MethodGet, workersPath, nil)
	if status, ok := errors.AsType[statusError](err); ok && status == http.StatusNotFound {
		return nil, fmt.Errorf("%w: LMCache before 0.3.10 has no list of workers: use mode: prefix_lookup, or check "+
			"controller_url", err)
	}
	if err != nil {
		return nil, err
	}
	l, err := readWorkers(text)
	if err != nil || l.Counted || k.c.Lookups || len(l.Instances) == 0 {
		return l, err
	}
	text, err = k.call(ctx, k.c.Timeout, http.MethodGet, keysPath, nil)
	if status, ok := errors.AsType[statusError](err); ok && status != http.StatusServiceUnavailable {
		return l, nil // a version without this endpoint
	}
	if err != nil {
		return nil, err
	}
	return l, l.readKeys(text)
}

// readWorkers reads the list of workers. The keys are known if each worker states its number of keys.
func readWorkers(text []byte) (*Listing, error) {
	var answer struct {
		Workers []struct {
			Instance string   `json:"instance_id"`
			Keys     *float64 `json:"key_count"`
		} `json:"workers"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("reading the controller's list of workers: %w", err)
	}
	if answer.Workers == nil {
		return nil, errors.New("the controller's answer has no list of workers")
	}
	l := &Listing{Counted: len(answer.Workers) > 0}
	for _, w := range answer.Workers {
		if w.Keys == nil {
			l.Counted = false
		}
		l.add(w.Instance, w.Keys)
	}
	l.sort()
	return l, nil
}

func (l *Listing) readKeys(text []byte) error {
	var answer struct {
		Instances []struct {
			Instance string   `json:"instance_id"`
			Keys     *float64 `json:"key_count"`
		} `json:"instances"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("reading the controller's numbers of keys: %w", err)
	}
	for _, i := range answer.Instances {
		l.add(i.Instance, i.Keys)
		l.Counted = l.Counted || i.Keys != nil
	}
	l.sort()
	return nil
}

// mostKeys bounds a number of keys.
const mostKeys = 1 << 53

func (l *Listing) add(id string, keys *float64) {
	at := slices.IndexFunc(l.Instances, func(i Instance) bool { return i.ID == id })
	if at < 0 {
		at, l.Instances = len(l.Instances), append(l.Instances, Instance{ID: id})
	}
	if keys != nil && *keys > 0 {
		l.Instances[at].Keys = int64(min(mostKeys, float64(l.Instances[at].Keys)+*keys))
	}
}

func (l *Listing) sort() {
	slices.SortFunc(l.Instances, func(a, b Instance) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
}

// known returns the number of instances that are workers of the pool.
func (k *Controller) known(l *Listing) (n int) {
	for _, i := range l.Instances {
		if k.c.Known(i.ID) {
			n++
		}
	}
	return n
}

// record stores the result of a poll, and logs its changes.
func (k *Controller) record(l *Listing, err error) {
	k.listing.Store(l)
	k.mu.Lock()
	defer k.mu.Unlock()
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if !k.polled || (fault == "") != (k.fault == "") {
		k.since = time.Now()
		switch {
		case err != nil:
			k.c.Log.Warn("the LMCache controller cannot be polled; "+k.without(), "url", k.url, "cause", fault)
		case k.polled:
			k.c.Log.Info("the LMCache controller answers again", "url", k.url)
		}
	}
	k.polled, k.fault = true, fault
	if l == nil {
		return
	}
	if k.known(l) > 0 {
		k.empty, k.warned = 0, false
	} else if k.empty++; k.empty >= warnAfter && !k.warned {
		k.warned = true
		message := "the LMCache controller lists no worker: engines need enable_controller, controller_pull_url and " +
			"controller_reply_url in their LMCache configuration, and heartbeats if it removes silent ones; " + k.without()
		if len(l.Instances) > 0 {
			message = "the LMCache controller lists no worker of the pool: lmcache_worker_map must name each " +
				"lmcache_instance_id; " + k.without()
		}
		k.c.Log.Warn(message, "url", k.url, "instances", len(l.Instances))
	}
	if !l.Counted && !k.c.Lookups && len(l.Instances) > 0 && !k.uncount {
		k.uncount = true
		k.c.Log.Warn("the LMCache controller states no numbers of keys, so the fallback policy selects the workers: use "+
			"mode: prefix_lookup, or another version of LMCache", "url", k.url)
	}
}

// without states what happens without the controller's answers.
func (k *Controller) without() string {
	if k.c.Lookups {
		return "routing uses the gateway's history"
	}
	return "the fallback policy selects the workers"
}
