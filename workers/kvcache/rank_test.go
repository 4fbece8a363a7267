package kvcache

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
)

// idleRank returns the stream of a worker that nothing reads.
func idleRank(t *testing.T, o Options) (*Pool, *rank) {
	t.Helper()
	pool := New(o).NewPool()
	w := pool.Add("w", "w")
	w.Configure(Config{Port: 1}, "h", nil)
	return pool, w.ranks[0]
}

// TestWorkerWithBlocksOfAnUnnamedAdapterHasNoEntry: an entry of 0 tokens would say that such a worker has
// no block of the adapter.
func TestWorkerWithBlocksOfAnUnnamedAdapterHasNoEntry(t *testing.T) {
	var log lines
	pool, r := idleRank(t, Options{Log: log.logger()})
	r.SetLive(true)
	r.Report(kvstream.Begun, nil)
	store := &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Hashes: []uint64{1, 2, 3},
		Tokens: prompt(3), BlockSize: blockSize}}}
	unnamed := &kvevents.Batch{}
	unnamed.Rejected[kvevents.UnnamedAdapter] = 2
	unnamed.Rejected[kvevents.Unknown] = 1
	for name, end := range map[string]func(){
		"a cleared cache": func() { r.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Cleared}}}) },
		"a reset":         func() { r.Reset(); r.Report(kvstream.Begun, nil) },
	} {
		r.Apply(store)
		if cached(pool)["w"].Tokens != 3*blockSize {
			t.Fatalf("before: %+v", cached(pool))
		}
		r.Apply(unnamed)
		r.Apply(store)
		if all := cached(pool); len(all) > 0 || r.worker.View().Known {
			t.Errorf("%+v with blocks of an unnamed adapter", all)
		}
		end()
		r.Apply(store)
		if cached(pool)["w"].Tokens != 3*blockSize {
			t.Errorf("after %s: %+v", name, cached(pool))
		}
	}
	if c := r.worker.View().Counts; c.Unnamed != 4 || c.Rejected != 2 {
		t.Errorf("%+v", c)
	}
	if log.count("unnamed_adapter") != 1 || !log.has("lora_name") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestFlappingStreamIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		_, r := idleRank(t, Options{Log: log.logger()})
		r.Report(kvstream.Lost, errors.New("no engine yet"))
		if log.count("KV events cannot be read") != 1 {
			t.Errorf("before the first connection: %s", log.String())
		}
		time.Sleep(logEvery)
		r.SetLive(true)
		lose := func() { r.SetLive(false); r.Report(kvstream.Lost, errors.New("a cut")) }
		for range 10 {
			lose()
			r.SetLive(true)
		}
		if log.count("KV events are lost") != 1 || log.count("KV events are read") != 2 {
			t.Errorf("in one moment: %s", log.String())
		}
		lose()
		time.Sleep(logEvery)
		r.Report(kvstream.Lost, errors.New("no route")) // of the next attempt to connect
		if log.count("KV events are lost") != 2 || !log.has("no route") {
			t.Errorf("a minute later: %s", log.String())
		}
		r.SetLive(true)
		r.SetLive(false) // a replay
		r.SetLive(true)
		if log.count("KV events are read") != 3 || log.count("\n") != 6 {
			t.Errorf("at the end: %s", log.String())
		}
	})
}
