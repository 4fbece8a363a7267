package state

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// streamText is the answer of every stream.
const streamText = rig.AnswerText + " " + rig.AnswerText + " " + rig.AnswerText

func TestMain(m *testing.M) {
	os.Exit(backends.Main(backends.RunnerFunc(func() int { return rig.Main(m) })))
}

// soak returns the duration of a test's load.
func soak(t *testing.T) time.Duration { t.Helper(); return rig.Soak(t, 2*time.Second) }

// rounds returns all for a full soak, otherwise few.
func rounds(t *testing.T, few, all int) int {
	t.Helper()
	if soak(t) >= rig.FullSoak {
		return all
	}
	return few
}

// fullSoak returns the duration of a full soak's load; 0 in a shorter one, for tests that go on as soon as the load
// has reached what they need.
func fullSoak(t *testing.T) time.Duration {
	t.Helper()
	if d := soak(t); d >= rig.FullSoak {
		return d
	}
	return 0
}

// stateRig is a rig with any number of gateways.
type stateRig struct {
	*rig.Rig
	gateways []*gateway.Process
}

// answerScript answers a stream with streamText, other requests with rig.AnswerText.
func answerScript(_ string, body []byte) engines.Script {
	if strings.Contains(string(body), `"stream":true`) {
		return engines.Script{Text: streamText}
	}
	return engines.Script{Text: rig.AnswerText}
}

// newRig starts n engines. Tests start gateways with serve or start.
func newRig(t *testing.T, n int, c engines.Config) *stateRig {
	t.Helper()
	if c.Script == nil {
		c.Script = answerScript
	}
	return &stateRig{Rig: rig.New(t, n, c, rig.Settings{
		"auth":     auth("app", ""),
		"policy":   `{ name: round_robin }`,
		"log":      `{ access: false }`,
		"timeouts": `{ first_byte: 30s, idle: 30s }`,
	}).Listen()}
}

// tier returns one tier of a configuration with the workers of the given indexes.
func (r *stateRig) tier(name, model string, weight int, workers ...int) string {
	var some []*rig.Worker
	for _, i := range workers {
		some = append(some, r.Workers[i])
	}
	return rig.Tier(name, fmt.Sprintf("weight: %d", weight), "model: "+model, some...)
}

// auth returns the setting auth: one tenant with rig.TenantKey and limits in YAML, which may be empty.
func auth(tenant, limits string) string {
	if limits != "" {
		limits = ", limits: { " + limits + " }"
	}
	return "{ keys: [ { name: " + tenant + ", sha256: " + rig.Digest(rig.TenantKey) + limits + " } ] }"
}

// stores returns the setting store. An empty URL turns a store off. Requests wait for Redis as long as a machine can be
// busy, so that no gateway decides without a Redis that is up.
func stores(sql, redis string) string {
	if redis == "" {
		return fmt.Sprintf("{ sql: %q }", sql)
	}
	return fmt.Sprintf("{ sql: %q, redis: %q, redis_timeout: 30s }", sql, redis)
}

// hastyStores is stores for tests of a Redis that hangs, whose gateways wait as short as by default.
func hastyStores(sql, redis string) string { return fmt.Sprintf("{ sql: %q, redis: %q }", sql, redis) }

// serve starts one more gateway and returns when it is ready. The test fails unless the gateway is
// quiet at its end.
func (r *stateRig) serve(own rig.Settings) *gateway.Process {
	r.T.Helper()
	p := r.start(own)
	p.WaitUntilReady()
	return p
}

// start is serve without the wait for readiness.
func (r *stateRig) start(own rig.Settings) *gateway.Process {
	r.T.Helper()
	return r.addGateway(gateway.StartAt(r.T, gateway.Address(r.T), gateway.Address(r.T), r.Settings(own).String()))
}

// addGateway adds a gateway to the rig.
func (r *stateRig) addGateway(p *gateway.Process) *gateway.Process {
	r.gateways = append(r.gateways, p)
	r.T.Cleanup(func() { r.waitUntilIdleAndWritten(p) })
	return p
}

// waitUntilIdleAndWritten is WaitUntilIdleIn. It also waits until all ledger rows are written and
// checks that none was dropped.
func (r *stateRig) waitUntilIdleAndWritten(p *gateway.Process) {
	r.T.Helper()
	r.WaitUntilIdleIn(p)
	rig.Eventually(r.T, func() error {
		m, err := p.Metrics()
		if p.Alive() && (err != nil || m.Sum("tierway_ledger_spooled_rows")+m.Sum("tierway_ledger_dropped_rows_total") != 0) {
			return fmt.Errorf("ledger rows are not yet written or were dropped (%w)", err)
		}
		return nil
	})
}

// waitForMetric waits until a metric of a gateway has a value, and returns the time that it took.
func waitForMetric(t *testing.T, p *gateway.Process, name string, want float64, most time.Duration) time.Duration {
	t.Helper()
	return rig.Within(t, most, func() error {
		m, err := p.Metrics()
		if err != nil {
			return err
		}
		if _, there := m[name]; !there {
			return errors.New("the metrics have no " + name)
		}
		if got := m.Sum(name); got != want {
			return fmt.Errorf("%s is %v, want %v", name, got, want)
		}
		return nil
	})
}

// pause waits while a load runs.
func pause(d time.Duration) { <-time.After(d) }
