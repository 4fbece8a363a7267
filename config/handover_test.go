package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/routing"
)

// handedOver is a tier with the given keys and workers. Each worker is written as its name and further keys.
func handedOver(section string, workers ...string) string {
	src := keys + "tiers:\n- name: t\n  model: m\n  " + section + "\n  workers:\n"
	for i, w := range workers {
		name, more, _ := strings.Cut(w, ", ")
		if more != "" {
			more = ", " + more
		}
		src += fmt.Sprintf("  - {name: %s, url: \"http://h%d:1\"%s}\n", name, i, more)
	}
	return src
}

func TestRolesAreStages(t *testing.T) {
	const whole, prefill, decodes = routing.StageWhole, routing.StagePrefill, routing.StageDecode
	kv := map[string]string{HandoverP2PNCCL: ", kv_address: "}
	for handover, want := range map[string][3]routing.Stages{
		HandoverNIXL:    {prefill, whole | decodes, whole | prefill | decodes},
		HandoverShared:  {prefill, whole | decodes, whole | prefill | decodes},
		HandoverP2PNCCL: {prefill, decodes, whole},
		HandoverSGLang:  {prefill, decodes, whole},
		"":              {},
	} {
		section, roles := "handover: "+handover, []string{"p, role: prefill", "d, role: decode", "b"}
		if handover == "" {
			section, roles = "context: 0", []string{"p", "d", "b"}
		}
		if address := kv[handover]; address != "" {
			roles[0] += address + "10.0.0.1:14579"
			roles[1] += address + "\"[fd00::1]:14579\""
		}
		p := parsed(t, handedOver(section, roles...), nil).ResolvedPools()[0]
		for i := range p.Workers {
			if got := p.Stages(&p.Workers[i]); got != want[i] {
				t.Errorf("%q: %s serves %b, want %b", handover, p.Workers[i].Name, got, want[i])
			}
		}
	}
}

func TestHandoverIsResolved(t *testing.T) {
	const policy = "policy: {name: least_load}"
	for name, c := range map[string]struct {
		section, prefill string
		threshold        int64
		lease            time.Duration
	}{
		"defaults": {"handover: sglang", "kv_aware", routing.AutoThreshold, 30 * time.Second},
		"own": {"handover: sglang\n  " + policy + "\n  prefill_policy: {name: consistent_hash}\n  " +
			"uncached_threshold: 512\n  handover_lease: 2m", "consistent_hash", 512, 2 * time.Minute},
		"policy of the tier":  {"handover: sglang\n  " + policy, "least_load", routing.AutoThreshold, 30 * time.Second},
		"local unless it can": {"handover: sglang\n  uncached_threshold: 0", "kv_aware", 0, 30 * time.Second},
		"none":                {"context: 0", "", 0, 0},
	} {
		workers := []string{"p, role: prefill", "q, role: prefill, bootstrap_port: 9000", "d, role: decode", "b"}
		if name == "none" {
			workers = []string{"b"}
		}
		f := parsed(t, handedOver(c.section, workers...), nil)
		p := f.ResolvedPools()[0]
		if p.PrefillPolicy.Name != c.prefill || p.UncachedThreshold != c.threshold || p.HandoverLease != c.lease {
			t.Errorf("%s: policy %q, threshold %d, lease %v", name, p.PrefillPolicy.Name, p.UncachedThreshold, p.HandoverLease)
		}
		if name == "none" {
			if p.Workers[0].Role != "" || p.Handover != "" {
				t.Errorf("none: role %q, hand-over %q", p.Workers[0].Role, p.Handover)
			}
			continue
		}
		var got []string
		for _, w := range p.Workers {
			got = append(got, fmt.Sprint(w.Name, " ", w.Role, " ", w.BootstrapPort))
		}
		if diff := cmp.Diff([]string{"p prefill 8998", "q prefill 9000", "d decode 0", "b both 0"}, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if again := parsed(t, string(printed(f)), nil).ResolvedPools()[0]; again.PrefillPolicy.Name != c.prefill ||
			again.Handover != p.Handover || again.UncachedThreshold != c.threshold || again.HandoverLease != c.lease {
			t.Errorf("%s: the printed file has another hand-over:\n%s", name, printed(f))
		}
	}
}

// TestHandoverChangesOnlyWhatTheFileChanges: inherited values are no changes of their own.
func TestHandoverChangesOnlyWhatTheFileChanges(t *testing.T) {
	workers := []string{"p, role: prefill", "d, role: decode"}
	plain := parsed(t, handedOver("context: 0", "p", "d"), nil)
	nixl := parsed(t, handedOver("handover: nixl", workers...), nil)
	tuned := parsed(t, handedOver("handover: nixl\n  policy: {name: least_load}\n  prefill_policy: {name: cache_aware, "+
		"cache_threshold: 0.3}\n  uncached_threshold: 512", workers...), nil)
	for name, c := range map[string]struct {
		old, new *File
		want     []string
	}{
		"turned on": {plain, nixl, []string{"tiers[t].handover add nixl live", "tiers[t].workers[p].role add prefill live",
			"tiers[t].workers[d].role add decode live"}},
		"tuned": {nixl, tuned, []string{"tiers[t].policy.name replace least_load live",
			"tiers[t].uncached_threshold add 512 live", "tiers[t].prefill_policy.name replace cache_aware live",
			"tiers[t].prefill_policy.cache_threshold add 0.3 live"}},
	} {
		got := map[string]bool{}
		for _, c := range Changes(c.old, c.new) {
			got[fmt.Sprint(c.Path, " ", c.Op, " ", c.New, " ", c.Effect)] = true
		}
		want := map[string]bool{}
		for _, w := range c.want {
			want[w] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if back := Changes(nixl, plain); len(back) != 3 {
		t.Errorf("turned off: %v", back)
	}
}

// TestReplacedPolicyReplacesThePrefillPolicy: --policy applies to both stages.
func TestReplacedPolicyReplacesThePrefillPolicy(t *testing.T) {
	f := parsed(t, handedOver("handover: nixl\n  prefill_policy: {name: chwbl}", "p, role: prefill", "d"), nil)
	replaced, err := f.WithPolicy("round_robin")
	if err != nil {
		t.Fatal(err)
	}
	p := replaced.ResolvedPools()[0]
	if p.Policy.Name != "round_robin" || p.PrefillPolicy.Name != "round_robin" {
		t.Errorf("policies %s and %s", p.Policy.Name, p.PrefillPolicy.Name)
	}
	if at := replaced.Origins()["tiers[0].prefill_policy.name"]; at.Source != originEnvironment {
		t.Errorf("the origin is %+v", at)
	}
}
