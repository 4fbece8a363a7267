package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/routing"
	"tierway/workers/kvcache"
)

// withEvents is a configuration of two workers with sections kv_events of the file, the tier and the
// first worker.
func withEvents(file, tier, worker string) string {
	return `auth: {required: false}
policy: {name: kv_aware}
kv_events: {` + file + `}
tiers:
  - name: a
    model: m
    kv_events: {` + tier + `}
    workers: [{name: w0, url: "http://h:1", kv_events: {` + worker + `}}, {name: w1, url: "http://g:2"}]
`
}

func TestEventsAreInheritedKeyByKey(t *testing.T) {
	f, err := Parse("f", []byte(withEvents("enabled: false", "port: 5557, topic: kv", "replay_port: 7000, enabled: true")),
		environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	specs := f.Specs()
	got := []*kvcache.Config{specs[0].KVEvents, specs[1].KVEvents}
	want := []*kvcache.Config{{Enabled: new(true), Port: 5557, ReplayPort: 7000, Topic: "kv"},
		{Enabled: new(false), Port: 5557, Topic: "kv"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEventSettingsAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ file, tier, worker, want string }{
		"nothing":       {},
		"a tier's port": {tier: "port: 5557, replay_port: 5558"},
		"ranks": {tier: "port: 5557, replay_port: 5657, ranks: 8, topic: kv",
			want: "tiers[0].kv_events.ranks: 8 ranks publish events, but an engine without ranks is one worker"},
		"topics":           {file: `listen: "127.0.0.1:5557"`, worker: "topic: kv@a"},
		"a topic when off": {tier: "enabled: false, topic: kv"},
		"ports that overlap": {tier: "port: 5557, replay_port: 5558, ranks: 2",
			want: `7:42: tiers[0].kv_events.replay_port: ports 5558 to 5559 of replays overlap with ports 5557 to 5558 of events`},
		"a worker's ranks": {tier: "port: 5557, replay_port: 5559", worker: "ranks: 4",
			want: `ports 5559 to 5562 of replays overlap with ports 5557 to 5560 of events`},
		"a port too high": {tier: "port: 65535, ranks: 2", want: "tiers[0].kv_events.port: 65535 is too high: rank 1 would " +
			"have port 65536"},
		"replay alone":    {worker: "replay_port: 5558", want: "replay_port: has no effect without port or topic"},
		"ranks alone":     {worker: "ranks: 2", want: "ranks: has no effect without port"},
		"no listener":     {worker: "topic: kv@a", want: `workers[0].kv_events.topic: "kv@a" has no effect`},
		"a shared topic":  {file: `listen: "127.0.0.1:5557"`, tier: "topic: kv", want: "the topic of two workers, w0 and w1"},
		"a taken port":    {file: `listen: "127.0.0.1:8081"`, want: "uses the same port as admin.listen"},
		"a bad address":   {file: `listen: "5557"`, want: `kv_events.listen: "5557" is not an address`},
		"no memory":       {file: "max_bytes: 0", want: "kv_events.max_bytes: want"},
		"a misspelt port": {worker: "prot: 5557, replay_port: 5558", want: "kv_events.prot: unknown key (did you mean port?)"},
		"a text as port":  {worker: `port: "abc"`, want: `got "abc"`},
		"little memory":   {file: "max_bytes: 512", want: "512 bytes hold too few blocks"},
		"the HTTP port":   {worker: "port: 1", want: "1 is the port that serves the requests of w0"},
		"a bad port":      {worker: "port: 99999", want: "kv_events.port: want an integer from 0 to 65535"},
		"a bad switch":    {worker: "enabled: auto", want: "kv_events.enabled: want true or false"},
		"another policy":  {tier: "port: 5557", want: "tiers[0].kv_events: has no effect: the policy random does not use"},
		"every interface": {file: `listen: ":5557"`, want: "accepts events from every network"},
	} {
		t.Run(name, func(t *testing.T) {
			source := withEvents(c.file, c.tier, c.worker)
			if name == "another policy" {
				source = strings.Replace(source, "kv_aware", "random", 1)
			}
			f, err := Parse("f", []byte(source), environment(nil))
			text := ""
			switch {
			case err != nil:
				text = err.Error()
			case len(f.Warnings()) > 0:
				text = f.Warnings()[0].String()
			}
			if (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

func TestTwoWorkersOfOneHostHaveTheirOwnEventPorts(t *testing.T) {
	for name, c := range map[string]struct{ tier, first, second, want string }{
		"one port": {tier: "port: 5557",
			want: "7:23: tiers[0].kv_events.port: h:5557 is the port of two workers, w0 and w1"},
		"a port each": {first: "port: 5557", second: "port: 5558"},
		"replays on the other's": {first: "port: 5557, replay_port: 5559", second: "port: 5558, replay_port: 5557",
			want: "h:5557 is the port of two"},
		"ranks reach into the other": {first: "port: 5557, ranks: 4", second: "port: 5560",
			want: "tiers[0].workers[1].kv_events.port: h:5560 is"},
		"one is off": {tier: "port: 5557", second: "enabled: false"},
	} {
		t.Run(name, func(t *testing.T) {
			source := strings.NewReplacer(`url: "http://h:1", kv_events: {}`, `url: "http://h:1", kv_events: {`+c.first+`}`,
				`url: "http://g:2"`, `url: "http://h:2", kv_events: {`+c.second+`}`).Replace(withEvents("", c.tier, ""))
			_, err := Parse("f", []byte(source), environment(nil))
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestOneEngineInTwoTiersHasOneEventPort: an engine that serves two models has a worker in both tiers.
func TestOneEngineInTwoTiersHasOneEventPort(t *testing.T) {
	source := withEvents("", "port: 5557", "") + `
  - {name: b, model: n, kv_events: {port: 5557}, workers: [{name: w2, url: "http://h:1"}]}
`
	if _, err := Parse("f", []byte(source), environment(nil)); err != nil {
		t.Error(err)
	}
}

func TestPoliciesThatUseEventsAreKnown(t *testing.T) {
	for _, name := range routing.Names() {
		p, err := routing.New(routing.Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if got := routing.UsesCaches(p); got != (routing.Config{Name: name}).UsesCaches() {
			t.Errorf("%s uses events: %v", name, got)
		}
	}
}

// TestRanksThatAreNotWorkersAreHintedAt: events of several ranks are worth most if each rank is a worker.
func TestRanksThatAreNotWorkersAreHintedAt(t *testing.T) {
	for name, c := range map[string]struct{ tier, worker, want string }{
		"of a tier": {"port: 5557, ranks: 2", "", "tiers[0].kv_events.ranks: 2 ranks publish events, but an engine without ranks is one worker"},
		"of a worker": {"", "port: 5557, ranks: 4",
			"tiers[0].workers[0].kv_events.ranks: 4 ranks publish events, but an engine without ranks is one"},
		"one rank": {"port: 5557", "", ""},
	} {
		f, err := Parse("f", []byte(withEvents("", c.tier, c.worker)), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := f.Warnings().Error()
		if !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "ranks publish") {
			t.Errorf("%s: %q", name, got)
		}
		if c.want != "" && !strings.Contains(got, "(set ranks: ") {
			t.Errorf("%s: no way out in %q", name, got)
		}
	}
}
