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

// soak is how long a test's load lasts.
func soak(t *testing.T) time.Duration { t.Helper(); return rig.Soak(t, 2*time.Second) }

// rounds is all when the soak is whole, else few.
func rounds(t *testing.T, few, all int) int {
	t.Helper()
	if soak(t) >= rig.FullSoak {
		return all
	}
	return few
}

// stateRig is a rig with any number of gateways.
type stateRig struct {
	*rig.Rig
	gateways []*gateway.Process
}

// says answers a stream with streamText, other requests with rig.AnswerText.
func says(_ string, body []byte) engines.Script {
	if strings.Contains(string(body), `"stream":true`) {
		return engines.Script{Text: streamText}
	}
	return engines.Script{Text: rig.AnswerText}
}

// newRig starts n engines; gateways are started by serve.
func newRig(t *testing.T, n int, c engines.Config) *stateRig {
	t.Helper()
	if c.Script == nil {
		c.Script = says
	}
	return &stateRig{Rig: rig.New(t, n, c, rig.Settings{
		"auth":     auth("app", ""),
		"policy":   `{ name: round_robin }`,
		"log":      `{ access: false }`,
		"timeouts": `{ first_byte: 30s, idle: 30s }`,
	}).Listen()}
}

// tier is one tier of a configuration, of some of the workers.
func (r *stateRig) tier(name, model string, weight int, workers ...int) string {
	var some []*rig.Worker
	for _, i := range workers {
		some = append(some, r.Workers[i])
	}
	return rig.Tier(name, fmt.Sprintf("weight: %d", weight), "model: "+model, some...)
}

// auth is a configuration's section of that name: one tenant with tenantKey and
// with limits in YAML, if any.
func auth(tenant, limits string) string {
	if limits != "" {
		limits = ", limits: { " + limits + " }"
	}
	return "{ keys: [ { name: " + tenant + ", sha256: " + rig.Digest(rig.TenantKey) + limits + " } ] }"
}

// stores is a configuration's section of that name; empty is without.
func stores(sql, redis string) string { return fmt.Sprintf("{ sql: %q, redis: %q }", sql, redis) }

// serve starts one more gateway and returns when it can serve. When the test ends it
// must be quiet.
func (r *stateRig) serve(own rig.Settings) *gateway.Process {
	r.T.Helper()
	p := r.start(own)
	p.WaitUntilReady()
	return p
}

// start is serve of a gateway that may have nothing to serve with yet.
func (r *stateRig) start(own rig.Settings) *gateway.Process {
	r.T.Helper()
	return r.took(gateway.StartAt(r.T, gateway.Address(r.T), gateway.Address(r.T), r.Settings(own).String()))
}

// took makes a gateway one of the rig's.
func (r *stateRig) took(p *gateway.Process) *gateway.Process {
	r.gateways = append(r.gateways, p)
	r.T.Cleanup(func() { r.quietIn(p) })
	return p
}

// quietIn is QuietIn, after which no row of the ledger waits and none was dropped.
func (r *stateRig) quietIn(p *gateway.Process) {
	r.T.Helper()
	r.WaitUntilQuietIn(p)
	rig.Eventually(r.T, func() error {
		m, err := p.Metrics()
		if p.Alive() && (err != nil || m.Sum("tierway_ledger_spooled_rows")+m.Sum("tierway_ledger_dropped_rows_total") != 0) {
			return fmt.Errorf("rows of the ledger wait or were dropped (%w)", err)
		}
		return nil
	})
}

// metric waits until a series of a gateway has a value, and returns how long that
// took.
func metric(t *testing.T, p *gateway.Process, name string, want float64, most time.Duration) time.Duration {
	t.Helper()
	return rig.Within(t, most, func() error {
		m, err := p.Metrics()
		if err != nil {
			return err
		}
		if _, there := m[name]; !there {
			return errors.New("there is no " + name)
		}
		if got := m.Sum(name); got != want {
			return fmt.Errorf("%s is %v, not %v", name, got, want)
		}
		return nil
	})
}

// pause waits while a load goes on.
func pause(d time.Duration) { <-time.After(d) }
