package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tierway/queue"
	"tierway/routing"
)

// waits is the default queue.
func waits() queue.Config {
	return queue.Config{MaxDepth: 1000, MaxBytes: 256 << 20, AgedShare: 0.2, Displace: true,
		MaxWait: [queue.Classes]time.Duration{10 * time.Second, time.Minute, 10 * time.Minute},
		Age:     [queue.Classes]time.Duration{0, 10 * time.Second, 30 * time.Second}}
}

func saturates() routing.Saturation {
	return routing.Saturation{Waiting: 5, KVUsage: 0.9, StaleAfter: 5 * time.Second}
}

// withTier is a file with one tier that has the keys.
func withTier(keysOfTier string) string {
	return keys + "tiers: [{name: small, model: m, " + keysOfTier + ` workers: [{name: w, url: "http://h:1"}]}]` + "\n"
}

func TestQueueKeysAreInheritedOneByOne(t *testing.T) {
	file := "queue: {max_depth: 7, max_wait: {batch: 2m}, age: {interactive: 1s}, max_bytes: 64MiB, displace: true, " +
		"engine_wait: 3s}\nsaturation: {waiting: 9, stale_after: 6s}\n"
	ofFile, fileSaturates := waits(), saturates()
	ofFile.MaxDepth, ofFile.MaxBytes, ofFile.Displace, ofFile.EngineWait = 7, 64<<20, true, 3*time.Second
	ofFile.MaxWait[2], ofFile.Age[0] = 2*time.Minute, time.Second
	fileSaturates.Waiting, fileSaturates.StaleAfter = 9, 6*time.Second
	for tier, change := range map[string]func(q *queue.Config, s *routing.Saturation){
		"":                              func(*queue.Config, *routing.Saturation) {},
		"queue: {}, saturation: {},":    func(*queue.Config, *routing.Saturation) {},
		"queue: , saturation: ,":        func(*queue.Config, *routing.Saturation) {},
		"queue: {heartbeat_after: 1s},": func(*queue.Config, *routing.Saturation) {},
		"queue: {max_depth: 1},": func(q *queue.Config, _ *routing.Saturation) {
			q.MaxDepth = 1
		},
		"queue: {max_depth: 0},": func(q *queue.Config, _ *routing.Saturation) {
			q.MaxDepth = 0
		},
		"queue: {max_bytes: 33554432},": func(q *queue.Config, _ *routing.Saturation) {
			q.MaxBytes = 32 << 20
		},
		"queue: {max_bytes: 0},": func(q *queue.Config, _ *routing.Saturation) {
			q.MaxBytes = 0
		},
		"queue: {displace: false},": func(q *queue.Config, _ *routing.Saturation) {
			q.Displace = false
		},
		"queue: {aged_share: 0},": func(q *queue.Config, _ *routing.Saturation) {
			q.AgedShare = 0
		},
		"queue: {aged_share: 0.999},": func(q *queue.Config, _ *routing.Saturation) {
			q.AgedShare = 0.999
		},
		"queue: {engine_wait: 0s},": func(q *queue.Config, _ *routing.Saturation) {
			q.EngineWait = 0
		},
		"queue: {max_wait: {}, age: },": func(*queue.Config, *routing.Saturation) {},
		"queue: {max_wait: {interactive: 0s}},": func(q *queue.Config, _ *routing.Saturation) {
			q.MaxWait[0] = 0
		},
		"queue: {max_wait: {background: 20s}},": func(q *queue.Config, _ *routing.Saturation) {
			q.MaxWait[1] = 20 * time.Second
		},
		"queue: {age: {interactive: 0s, background: 1500ms}},": func(q *queue.Config, _ *routing.Saturation) {
			q.Age[0], q.Age[1] = 0, 1500*time.Millisecond
		},
		"queue: {age: {batch: 0}},": func(q *queue.Config, _ *routing.Saturation) { q.Age[2] = 0 },
		"saturation: {waiting: 0},": func(_ *queue.Config, s *routing.Saturation) {
			s.Waiting = 0
		},
		"saturation: {kv_usage: 0},": func(_ *queue.Config, s *routing.Saturation) {
			s.KVUsage = 0
		},
		"saturation: {kv_usage: 1, stale_after: 20s},": func(_ *queue.Config, s *routing.Saturation) {
			s.KVUsage, s.StaleAfter = 1, 20*time.Second
		},
	} {
		src := withTier(tier) + file
		got := parsed(t, src, nil).ResolvedPools()[0]
		wantQueue, wantSaturation := ofFile, fileSaturates
		change(&wantQueue, &wantSaturation)
		if diff := cmp.Diff(wantQueue, got.Queue); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tier, diff)
		}
		if diff := cmp.Diff(wantSaturation, got.Saturation); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tier, diff)
		}
	}
	p := parsed(t, withTier(""), nil).ResolvedPools()[0]
	if diff := cmp.Diff(waits(), p.Queue); diff != "" || p.Saturation != saturates() ||
		p.HeartbeatAfter != 15*time.Second {
		t.Errorf("by default: %+v, %v (-want +got):\n%s", p.Saturation, p.HeartbeatAfter, diff)
	}
}

func TestPoolsHaveTheSameQueueDefaultsAsTiers(t *testing.T) {
	f := parsed(t,
		keys+
			`pools: [{name: p, models: [n], serves: [chat], queue: {max_depth: 3}, saturation: {waiting: 1}, workers: [{name: x, url: "http://h:2", max_inflight: 4, max_tokens_inflight: 65536}]}]`, nil)
	want, full := waits(), saturates()
	want.MaxDepth, full.Waiting = 3, 1
	p := f.ResolvedPools()[0]
	if diff := cmp.Diff(want, p.Queue); diff != "" || p.Saturation != full {
		t.Errorf("%+v (-want +got):\n%s", p.Saturation, diff)
	}
	if w := p.Workers[0]; w.MaxTokensInflight != 65536 || w.MaxInflight != 4 {
		t.Errorf("the worker is %v, bounded by %d tokens and %d requests", w, w.MaxTokensInflight, w.MaxInflight)
	}
	q, err := FromFlags([]string{"m"}, []string{"http://h:1"}, nil, "", "")
	if err != nil || cmp.Diff(waits(), q.ResolvedPools()[0].Queue) != "" ||
		q.ResolvedPools()[0].Saturation != saturates() {
		t.Errorf("without a file requests wait as in %v (%v)", q, err)
	}
}

func TestWaitsAndBoundsAreChecked(t *testing.T) {
	cases := map[string]struct {
		src  string
		want []string
	}{
		"what the design has": {withTier(`queue: { max_depth: 1000, max_wait: { interactive: 10s, background: 60s, batch: 10m }, age: { background: 10s, batch: 30s },
             aged_share: 0.2, max_bytes: 256MiB, displace: false, engine_wait: 0s, heartbeat_after: 15s }, saturation: { waiting: 5, kv_usage: 0.9, stale_after: 5s },`), nil},
		"impossible": {withTier("") +
			`queue: {max_depth: -1, max_wait: {interactive: -1s, batch: 5, urgent: 1s}, age: {batch: "soon"}, aged_share: 1, max_bytes: -4, displace: 1, engine_wait: never, heartbeat_after: 0s}
saturation: {waiting: 1.5, kv_usage: 90, stale_after: 0s, running: 3}
`, []string{
			`3:20: queue.max_depth: want an integer of 0 or more, got "-1"`,
			`3:48: queue.max_wait.interactive: want a duration, got "-1s"`,
			`3:60: queue.max_wait.batch: want a duration, got "5" (add a unit, such as 5s)`,
			`3:63: queue.max_wait.urgent: unknown key (known: interactive, background, batch)`,
			`3:89: queue.age.batch: want a duration, got "soon" (write a number with a unit, such as 250ms, 5s, 2m or 1h30m)`,
			`3:110: queue.aged_share: want a number of 0 or more and below 1, got "1"`,
			`3:124: queue.max_bytes: want a size, got "-4" (write a number with a unit, such as 32MiB, or bytes, such as 33554432)`,
			`3:138: queue.displace: want true or false, got "1" (write true or false)`,
			`3:154: queue.engine_wait: want a duration, got "never" (write a number with a unit, such as 250ms, 5s, 2m or 1h30m)`,
			`3:178: queue.heartbeat_after: want a duration above 0, got "0s"`,
			`4:23: saturation.waiting: want an integer of 0 or more, got "1.5"`,
			`4:38: saturation.kv_usage: want a number from 0 to 1, got "90"`,
			`4:55: saturation.stale_after: want a duration above 0, got "0s"`,
			`4:59: saturation.running: unknown key (known: waiting, kv_usage, stale_after)`,
		}},
		"one wait for all classes": {withTier("queue: {max_wait: 10s},"), []string{
			`2:51: tiers[0].queue.max_wait: want a section of keys, got a single value`,
		}},
		"bounds of workers and weights of tenants": {`auth: {keys: [{name: a, sha256: ` + digestA +
			`, weight: 0}, {name: b, sha256: ` + digestB + `, weight: 1001}]}
tiers: [{name: small, model: m, workers: [{name: w, url: "http://h:1", max_tokens_inflight: -1}, {name: x, url: "http://h:2", max_tokens_inflight: 3000000000}]}]
`, []string{
			`1:107: auth.keys[0].weight: want an integer from 1 to 1000, got "0"`,
			`1:203: auth.keys[1].weight: want an integer from 1 to 1000, got "1001"`,
			`2:93: tiers[0].workers[0].max_tokens_inflight: want an integer of 0 or more, got "-1"`,
			`2:148: tiers[0].workers[1].max_tokens_inflight: want an integer of 0 or more, got "3000000000" (the maximum is 2147483647)`,
		}},
		"a class that is never promoted": {withTier("queue: {age: {background: 60s, batch: 9m}},") +
			"queue: {max_wait: {interactive: 10s, batch: 20s}, age: {interactive: 11s}}\n", []string{
			`2:59: warning: tiers[0].queue.age.background: 1m0s is not below max_wait.background (1m0s), so background requests are never promoted (lower it, raise max_wait.background, or set age: {background: 0s} to turn promotion off)`,
			`2:71: warning: tiers[0].queue.age.batch: 9m0s is not below max_wait.batch (20s), so batch requests are never promoted (lower it, raise max_wait.batch, or set age: {batch: 0s} to turn promotion off)`,
			`3:45: warning: queue.max_wait.batch: 20s is not above age.batch (30s), so batch requests are never promoted (raise it, lower age.batch, or set age: {batch: 0s} to turn promotion off)`,
			`3:70: warning: queue.age.interactive: 11s is not below max_wait.interactive (10s), so interactive requests are never promoted (lower it, raise max_wait.interactive, or set age: {interactive: 0s} to turn promotion off)`,
		}},
		"a class that never waits": {withTier("queue: {max_wait: {batch: 0s}},") +
			"queue: {max_wait: {background: 0s}, age: {background: 5s}}\n", []string{
			`3:55: warning: queue.age.background: 5s has no effect: max_wait.background is 0s, so background requests do not wait (set max_wait.background above 0s, or remove the key)`,
		}},
		"a wait that total ends": {withTier("queue: {max_wait: {interactive: 11m, background: 600s}, engine_wait: 31s},") +
			"timeouts: {total: {batch: 30s}}\n", []string{
			`2:65: warning: tiers[0].queue.max_wait.interactive: 11m0s exceeds timeouts.total.interactive (10m0s), which ends the wait earlier (set at most 10m0s, or raise timeouts.total.interactive)`,
			`2:102: warning: tiers[0].queue.engine_wait: 31s exceeds the shortest timeouts.total (30s) (set at most 30s, or raise timeouts.total)`,
			`3:27: warning: timeouts.total.batch: 30s is below queue.max_wait.batch (10m0s), so it ends waits earlier (raise it, or set at most 30s for queue.max_wait.batch)`,
		}},
		"bodies that never wait": {withTier("queue: {max_bytes: 16MiB},"), []string{
			`2:52: warning: tiers[0].queue.max_bytes: 16MiB is less than max_body_bytes (32MiB), so a request with a longer body cannot wait (set at least 32MiB, or 0 for no limit)`,
		}},
		"long bodies that never wait": {withTier("queue: {max_bytes: 0},") + "max_body_bytes: 512MiB\n", []string{
			`3:17: warning: max_body_bytes: 512MiB exceeds queue.max_bytes (256MiB), so a request with a longer body cannot wait (raise queue.max_bytes, or set queue: {max_bytes: 0} for no limit)`,
		}},
		"what is as long as it may be": {withTier(
			"queue: {max_wait: {interactive: 600s}, engine_wait: 600s, max_bytes: 32MiB},"), nil},
		"once for all tiers": {withTier("queue: {max_depth: 5},") + "queue: {max_wait: {interactive: 5m}, engine_wait: 5m, " +
			"max_bytes: 1MiB}\ntimeouts: {total: {interactive: 1m}}\nmax_body_bytes: 2MiB\n", []string{
			`3:33: warning: queue.max_wait.interactive: 5m0s exceeds timeouts.total.interactive (1m0s), which ends the wait earlier (set at most 1m0s, or raise timeouts.total.interactive)`,
			`3:51: warning: queue.engine_wait: 5m0s exceeds the shortest timeouts.total (1m0s) (set at most 1m0s, or raise timeouts.total)`,
			`3:66: warning: queue.max_bytes: 1MiB is less than max_body_bytes (2MiB), so a request with a longer body cannot wait (set at least 2MiB, or 0 for no limit)`,
		}},
		"a budget below the longest body": {withTier("") + "max_buffered_bytes: 100MiB\n", []string{
			`3:21: max_buffered_bytes: 100MiB is less than four times max_body_bytes (32MiB), so the longest body could not be read (set at least 128MiB, or lower max_body_bytes)`,
		}},
		"a budget of the longest body": {withTier("") + "max_buffered_bytes: 128MiB\n", nil},
		"a size that has to be one": {withTier("") + "max_body_bytes: 0\n", []string{
			`3:17: max_body_bytes: want a size above 0, got "0" (write a number with a unit, such as 32MiB, or bytes, such as 33554432)`,
		}},
		"metrics that are old before the next": {withTier("saturation: {stale_after: 250ms},"), []string{
			`2:59: warning: tiers[0].saturation.stale_after: 250ms is below 300ms, the shortest period in which metrics are read three times: they expire between readings (set at least 300ms)`,
		}},
		"checks that are seldom": {withTier("") + "health: {interval: 20s}\n", nil},
		"metrics that are not read": {withTier(`saturation: {stale_after: 100ms}, health: {path: "off"},`), []string{
			`2:45: warning: tiers[0].saturation: has no effect: health.path is off, so metrics are never read (remove it, or change health.path)`,
		}},
		"metrics that are not read anywhere": {withTier("") + `saturation: {waiting: 3}` + "\n" + `health: {path: "off"}` +
			"\n", []string{
			`3:13: warning: saturation: has no effect: health.path is off, so metrics are never read (remove it, or change health.path)`,
		}},
		"metrics that one tier reads": {withTier(`health: {path: auto},`) + `saturation: {waiting: 3}` + "\n" +
			`health: {path: "off"}` + "\n", nil},
		"engines without metrics": {withTier(`saturation: {stale_after: 100ms}, engine: ollama,`), nil},
		"no saturation":           {withTier(`saturation: {waiting: 0, kv_usage: 0, stale_after: 100ms},`), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(append([]string{}, c.want...), problemsOf(t, c.src, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Keys that a tier's queue omits come from the file's queue.
func TestQueueKeysComeFromTheTierOrTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFile(t)
		if len(f.Tiers) == 0 {
			return
		}
		tier, got := f.Tiers[0].Queue, f.ResolvedPools()[0]
		depth := valueOf(f.Queue.MaxDepth)
		if tier.MaxDepth != nil {
			depth = *tier.MaxDepth
		}
		age := valueOf(f.Queue.Age.Background)
		if tier.Age.Background != nil {
			age = *tier.Age.Background
		}
		if got.Queue.MaxDepth != depth || got.Queue.Age[1] != age {
			t.Fatalf("%d and %v of %+v in %+v", depth, age, tier, f.Queue)
		}
	})
}
