package kvaware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tierway/e2e/conversations"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

const (
	engineRate  = 10_000 // prompt tokens per second
	engineToken = 20 * time.Millisecond
	cacheTokens = 1_024_000
)

// fleet is engines of one kind.
type fleet struct {
	t       *testing.T
	config  engines.Config
	engines []*engines.Engine
	servers []*engines.Server
	events  [][2]string // addresses of their events and replays
}

// newFleet starts n engines with caches of that many tokens. speed multiplies their rates.
func newFleet(t *testing.T, n int, speed float64, cache int, chats []*conversations.Chat) *fleet {
	t.Helper()
	f := &fleet{t: t, config: engines.Config{
		Model: "sim", Prefill: engineRate * speed, PerToken: time.Duration(float64(engineToken) / speed),
		Interval: 16, CacheTokens: cache, Context: 1 << 18,
		Script: func(_ string, body []byte) engines.Script {
			return engines.Script{Tokens: conversations.OutputOf(body, chats)}
		},
	}}
	for i := range n {
		f.engines, f.servers = append(f.engines, nil), append(f.servers, nil)
		f.events = append(f.events, [2]string{"tcp://" + gateway.Address(t), "tcp://" + gateway.Address(t)})
		f.start(i, gateway.Address(t))
	}
	t.Cleanup(f.stop)
	return f
}

func (f *fleet) start(i int, addr string) {
	f.t.Helper()
	config := f.config
	config.Name, config.Seed = fmt.Sprintf("w%d", i), uint64(i)
	rig.Eventually(f.t, func() (err error) {
		e := engines.New(config)
		if err := e.PublishEvents(context.Background(), f.events[i][0], f.events[i][1]); err != nil {
			return err
		}
		f.engines[i] = e
		f.servers[i], err = engines.Start(e, addr)
		return err
	})
}

// restart ends an engine as a crash would, and starts one with an empty cache at the same addresses.
func (f *fleet) restart(i int) {
	f.t.Helper()
	f.servers[i].Kill()
	f.engines[i].Close()
	f.start(i, strings.TrimPrefix(f.servers[i].URL, "http://"))
}

func (f *fleet) stop() {
	for i, s := range f.servers {
		s.Kill()
		f.engines[i].Close()
	}
}

// policy is a policy of the gateway, or the router of the test.
type policy struct {
	name    string
	setting string // policy section of the gateway; empty: the router of the test
	events  bool   // the gateway reads events
	worker  string // further keys of each worker
}

// The engines, the gateway and the client share two cores, so tokenizing a long prompt takes longer than the
// default lookup_timeout of 5 ms.
const kvAware = `{ name: kv_aware, lookup_timeout: 20ms }`

var (
	withEvents    = policy{name: "kv_aware, events", setting: kvAware, events: true}
	withoutEvents = policy{name: "kv_aware, no events", setting: kvAware}
)

// serve starts a gateway before the engines. It returns when the events of all engines are read, if
// the policy uses them.
func (f *fleet) serve(p policy) *gateway.Process {
	f.t.Helper()
	var workers []string
	for i, s := range f.servers {
		workers = append(workers, fmt.Sprintf("{ name: w%d, url: %q, %s }", i, s.URL, p.worker))
	}
	g := gateway.Serve(f.t, rig.Settings{
		"auth":      `{ required: false }`,
		"store":     `{ sql: "" }`,
		"drain":     `{ accept_grace: 1ms, timeout: 20s }`,
		"health":    `{ interval: 30s, timeout: 30s }`,
		"kv_events": fmt.Sprintf(`{ enabled: %t }`, p.events),
		"policy":    p.setting,
		"tiers":     fmt.Sprintf(`[ { name: small, model: sim, workers: [ %s ] } ]`, strings.Join(workers, ", ")),
	}.String())
	rig.Eventually(f.t, func() error {
		m, err := g.Metrics()
		if err != nil {
			return err
		}
		if p.events && m.Sum("tierway_kv_events_up") != float64(len(f.engines)) {
			return errors.New("the events of some engine are not read")
		}
		return nil
	})
	return g
}

// lateness returns the delay of the ends of prefills, relative to their planned time.
func (f *fleet) lateness() float64 {
	var planned, late time.Duration
	for _, e := range f.engines {
		s := e.Stats()
		planned, late = planned+s.Prefill, late+s.Late
	}
	return late.Seconds() / max(planned.Seconds(), 1e-9)
}
