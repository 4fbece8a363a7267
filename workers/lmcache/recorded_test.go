package lmcache

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recording has the answers of a real controller. Two instances were registered with LMCache's own messages: vllm-0
// with the first two chunks of a prompt, and vllm-1 with all three. A missing answer is 404.
type recording struct {
	workers, keys, lookup string
}

const (
	recordedLookup = `{"event_id":"Lookup77f57fa3-54d7-4a9e-900f-c41fd5f6d59a","layout_info":` +
		`{"vllm-0":["LocalCPUBackend",512],"vllm-1":["LocalCPUBackend",768]}}`
	recordedMiss = `{"event_id":"Lookup6a7f91a7-1206-49c1-b58d-8dbba1040359","layout_info":{}}`
)

// recordings are by LMCache's version. In 0.5.6, vllm-1 has two GPUs.
var recordings = map[string]recording{
	"0.5.6": {
		workers: `{"workers":[{"instance_id":"vllm-0","worker_id":0,"ip":"127.0.0.1","port":28500,"peer_init_url":null,` +
			`"registration_time":1795943190.3202555,"last_heartbeat_time":1795943190.4580746,"key_count":2},` +
			`{"instance_id":"vllm-1","worker_id":0,"ip":"127.0.0.1","port":28501,"peer_init_url":null,` +
			`"registration_time":1795943190.415728,"last_heartbeat_time":1795943190.415728,"key_count":3},` +
			`{"instance_id":"vllm-1","worker_id":1,"ip":"127.0.0.1","port":28502,"peer_init_url":null,` +
			`"registration_time":1795943190.447179,"last_heartbeat_time":1795943190.447179,"key_count":3}],"total_count":3}`,
		keys: `{"total_key_count":8,"total_instance_count":2,"total_worker_count":3,"instances":[{"instance_id":"vllm-0",` +
			`"key_count":2,"worker_count":1},{"instance_id":"vllm-1","key_count":6,"worker_count":2}]}`,
		lookup: recordedLookup,
	},
	"0.3.10.post2": {
		workers: `{"workers":[{"instance_id":"vllm-0","worker_id":0,"ip":"127.0.0.1","port":28500,"peer_init_url":null,` +
			`"registration_time":1795944812.1256576,"last_heartbeat_time":1795944812.1256576},{"instance_id":"vllm-1",` +
			`"worker_id":0,"ip":"127.0.0.1","port":28501,"peer_init_url":null,"registration_time":1795944812.1267622,` +
			`"last_heartbeat_time":1795944812.1267622}],"total_count":2}`,
		lookup: recordedLookup,
	},
	"0.3.9.post2": {lookup: recordedLookup},
}

// ServeHTTP answers as the controller did, and as strictly: it reads only JSON that is declared as such.
func (c recording) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	answer := map[string]string{"GET /controller/workers": c.workers, "GET /controller/key-stats": c.keys,
		"POST /lookup": c.lookup}[r.Method+" "+r.URL.Path]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case answer == "":
		w.WriteHeader(http.StatusNotFound)
		answer = `{"detail":"Not Found"}`
	case r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json":
		w.WriteHeader(http.StatusUnprocessableEntity)
		answer = `{"detail":[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or ` +
			`object to extract fields from","input":"x"}]}`
	case r.Method == http.MethodPost && string(body) != `{"tokens":[1000,1001,1002]}`:
		answer = recordedMiss
	}
	_, _ = io.WriteString(w, answer) // the client may be gone
}

// TestRecordedAnswersAreRead (L1): those of versions with and without key_count, and of one without a list.
func TestRecordedAnswersAreRead(t *testing.T) {
	matches := []Match{{"vllm-0", "LocalCPUBackend", 512}, {"vllm-1", "LocalCPUBackend", 768}}
	for version, want := range map[string]struct {
		listing *Listing // with occupancy
		state   State
		looksUp State // with prefix_lookup
	}{
		"0.5.6": {&Listing{Instances: []Instance{{"vllm-0", 2}, {"vllm-1", 6}}, Counted: true}, StateUp, StateUp},
		"0.3.10.post2": {&Listing{Instances: []Instance{{"vllm-0", 0}, {"vllm-1", 0}}}, StateUncounted,
			StateUp},
		"0.3.9.post2": {nil, StateDown, StateUp},
	} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, _ := connect(t, recordings[version], Config{})
				if got := fmt.Sprint(k.Listing()); got != fmt.Sprint(want.listing) || k.View().State != want.state {
					t.Errorf("occupancy: %s, %+v, want %v, %s", got, k.View(), want.listing, want.state)
				}
				if v := k.View(); want.listing == nil && !strings.Contains(v.Fault, "use mode: prefix_lookup") {
					t.Errorf("the fault %q has no way out", v.Fault)
				}
				k, _ = connect(t, recordings[version], Config{Lookups: true})
				got, ok := k.Lookup(t.Context(), []uint32{1000, 1001, 1002}, true, nil)
				slices.SortFunc(got, func(a, b Match) int { return strings.Compare(a.Instance, b.Instance) })
				if !ok || !slices.Equal(got, matches) || k.View().State != want.looksUp {
					t.Errorf("prefix_lookup: %v, %v, %+v", got, ok, k.View())
				}
				if got, ok := k.Lookup(t.Context(), []uint32{5}, true, nil); !ok || len(got) > 0 {
					t.Errorf("of another prompt: %v, %v", got, ok)
				}
			})
		})
	}
}

// TestKeysOfTheStatisticsAreThoseOfTheList in LMCache 0.5.6.
func TestKeysOfTheStatisticsAreThoseOfTheList(t *testing.T) {
	c := recordings["0.5.6"]
	l, err := readWorkers([]byte(c.workers))
	if err != nil {
		t.Fatal(err)
	}
	var stats Listing
	if err := stats.readKeys([]byte(c.keys)); err != nil || !slices.Equal(stats.Instances, l.Instances) {
		t.Errorf("%v, %v, want %v", stats, err, l)
	}
}

// TestSinceIsTheLastChangeOfLookups too, if it is later than that of polls.
func TestSinceIsTheLastChangeOfLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{healthy: recordings["0.5.6"]}
		k, _ := connect(t, f, Config{Lookups: true, PollInterval: time.Hour})
		hang := faults()["hangs"]
		f.fault.Store(&hang)
		k.Lookup(t.Context(), []uint32{1}, true, nil)
		time.Sleep(10 * time.Second)
		f.fault.Store(nil)
		time.Sleep(lastProbe)
		if v := k.View(); v.State != StateUp || time.Since(v.Since) > lastProbe {
			t.Errorf("%+v at %v", v, time.Now())
		}
	})
}
