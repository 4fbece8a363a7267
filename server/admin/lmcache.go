package admin

import (
	"net/url"

	"tierway/server/control"
	"tierway/telemetry"
	"tierway/workers/lmcache"
)

// lmcacheState is the state of LMCache's controller for a tier or pool.
type lmcacheState struct {
	State     string `json:"state" enum:"up,starting,down,no_workers,no_instance,no_counts,no_match" doc:"up: the controller is used. starting: it was not polled yet. down: it does not answer. no_workers: it lists no worker. no_instance: none of its instances is a worker of the pool. no_counts: it states no numbers of keys, which mode occupancy needs. no_match: 100 look-ups of repeated prompts in a row found nothing."`
	Since     string `json:"since,omitempty" doc:"Time of the last change between up and down."`
	Error     string `json:"error,omitempty" doc:"Why it is down."`
	URL       string `json:"url"`
	Instances int    `json:"instances" doc:"Instances of LMCache that the controller lists."`
	Workers   int    `json:"workers" doc:"Of these, workers of the pool."`
	Keys      int64  `json:"keys" doc:"Keys of these workers: chunks in their caches."`
	Matched   int64  `json:"matched" doc:"Look-ups with a match, since the policy was configured, as the numbers below."`
	Missed    int64  `json:"missed" doc:"Look-ups without a match."`
	Failed    int64  `json:"failed" doc:"Look-ups without an answer that can be used."`
	Suspended int64  `json:"suspended" doc:"Look-ups that were not sent after a failure, or because too many had no answer yet."`
}

// lmcacheOf returns the state of LMCache's controller; nil if the pool's policy does not use it.
func lmcacheOf(p *control.Pool) *lmcacheState {
	v, ok := p.LMCacheView()
	if !ok {
		return nil
	}
	n := &v.Counts
	return &lmcacheState{State: string(v.State), Since: seconds(v.Since), Error: v.Fault, URL: v.URL,
		Instances: v.Instances, Workers: v.Known, Keys: v.Keys, Matched: n.Matched, Missed: n.Missed,
		Failed: n.Failed + n.TimedOut, Suspended: n.Suspended + n.Skipped}
}

func lmcacheAttention(p *poolView) (items []AttentionItem) {
	s := lmcacheOf(p.Pool)
	if s == nil {
		return nil
	}
	without := "the fallback policy selects the workers"
	if p.LooksUp() {
		without = "routing uses the gateway's history"
	}
	var what string
	switch lmcache.State(s.State) {
	case lmcache.StateUp, lmcache.StateStarting:
		return nil
	case lmcache.StateDown:
		what = "LMCache's controller is down" + causeSuffix(s.Error)
	case lmcache.StateNoWorkers:
		what = "LMCache's controller lists no worker: engines need enable_controller in their LMCache configuration"
	case lmcache.StateForeign:
		what = "LMCache's controller lists no worker of the pool: lmcache_worker_map must name each lmcache_instance_id"
	case lmcache.StateUncounted:
		what = "LMCache's controller states no numbers of keys: write mode: prefix_lookup"
	case lmcache.StateNoMatch:
		what = "LMCache's controller finds no repeated prompt: engines and controller need the same image and " +
			"PYTHONHASHSEED, and engines a chunk_size of 256"
	}
	return []AttentionItem{{Severity: severityWarning, Subject: p.subject(), Message: what + "; " + without + ".",
		Link: "workers?pool=" + url.QueryEscape(p.Name)}}
}

// lmcacheSamples returns the number of a pool's look-ups in LMCache's controller by result; nil if there are none.
func lmcacheSamples(p *control.Pool) (out []telemetry.Sample) {
	if !p.LooksUp() {
		return nil
	}
	s := lmcacheOf(p)
	for _, r := range []struct {
		result string
		n      int64
	}{{"match", s.Matched}, {"miss", s.Missed}, {"failed", s.Failed}, {"suspended", s.Suspended}} {
		out = append(out, telemetry.Sample{Name: "lmcache_lookups", Unit: "1/s",
			Labels: []string{"tier", p.Name, "result", r.result}, Value: float64(r.n)})
	}
	return out
}
