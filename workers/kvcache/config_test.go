package kvcache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// announcedByTwoRanks is the answer of vLLM 0.32 with --data-parallel-size 2, shortened.
const announcedByTwoRanks = `{"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5558",
	"replay_endpoint":"tcp://*:5658","buffer_steps":10000,"topic":"kv"},"0":{"enable_kv_cache_events":true,
	"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":null,"topic":"kv"}}`

func TestSourcesComeFromPortThenEngineThenTopic(t *testing.T) {
	for name, c := range map[string]struct {
		config    Config
		host      string
		announced string
		want      []Source
	}{
		"nothing is known":     {host: "h", announced: `{}`},
		"off":                  {Config{Enabled: new(false), Port: 1}, "h", announcedByTwoRanks, nil},
		"the publisher is off": {Config{}, "h", `{"0":{"enable_kv_cache_events":false,"publisher":"zmq","endpoint":"tcp://*:1"}}`, nil},
		"another transport":    {Config{}, "h", `{"0":{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:1"}}`, nil},
		"inside the engine":    {Config{}, "h", `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"inproc://a"}}`, nil},
		"no port":              {Config{}, "h", `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:kv"}}`, nil},
		"two ranks": {Config{}, "h", announcedByTwoRanks, []Source{
			{Rank: 0, Address: "tcp://h:5557", Topic: "kv"},
			{Rank: 1, Address: "tcp://h:5558", Replay: "tcp://h:5658", Topic: "kv"}}},
		"an engine that connects": {Config{}, "::1", `{"0":{"enable_kv_cache_events":true,"publisher":"zmq",
			"endpoint":"tcp://gateway:5557","replay_endpoint":"tcp://127.0.0.1:5558","topic":"a"}}`,
			[]Source{{Replay: "tcp://[::1]:5558", Topic: "a"}}},
		"a socket file here": {Config{}, "127.0.0.1", `{"0":{"enable_kv_cache_events":true,"publisher":"zmq",
			"endpoint":"ipc:///a","replay_endpoint":"ipc:///b"}}`, []Source{{Address: "ipc:///a", Replay: "ipc:///b"}}},
		"a socket file elsewhere": {Config{}, "h", `{"0":{"enable_kv_cache_events":true,"publisher":"zmq",
			"endpoint":"ipc:///a"}}`, nil},
		"a port": {Config{Port: 7, ReplayPort: 9, Ranks: 2, Topic: "t"}, "", announcedByTwoRanks, []Source{
			{Rank: 0, Address: "tcp://127.0.0.1:7", Replay: "tcp://127.0.0.1:9", Topic: "t"},
			{Rank: 1, Address: "tcp://127.0.0.1:8", Replay: "tcp://127.0.0.1:10", Topic: "t"}}},
		"a topic": {Config{ReplayPort: 9, Topic: "t"}, "h", `{}`, []Source{{Replay: "tcp://h:9", Topic: "t"}}},
	} {
		t.Run(name, func(t *testing.T) {
			announced, err := ParseSources([]byte(c.announced))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, c.config.Sources(c.host, announced)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func FuzzParseSources(f *testing.F) {
	f.Add([]byte(announcedByTwoRanks))
	f.Add([]byte(`{"detail":"Not Found"}`))
	f.Add([]byte(`[{"0":1}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		announced, err := ParseSources(body)
		if err != nil && announced != nil {
			t.Fatal("sources beside an error")
		}
		for i, s := range (Config{}).Sources("10.0.0.7", announced) {
			if i > 0 && s.Rank < announced[i-1].Rank {
				t.Errorf("rank %d after %d", s.Rank, announced[i-1].Rank)
			}
			// The gateway connects to the worker's host, or to no address at all.
			for _, address := range [...]string{s.Address, s.Replay} {
				if address != "" && (len(address) < 15 || address[:15] != "tcp://10.0.0.7:") {
					t.Errorf("the address is %s", address)
				}
			}
		}
	})
}
