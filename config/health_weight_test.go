package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/routing"
)

func TestHealthWeightIsInheritedKeyByKey(t *testing.T) {
	src := func(own, top string) string {
		return keys + "health_weight: {" + top + "}\n" +
			`tiers: [{name: t, model: m, health_weight: {` + own + `}, workers: [{name: w, url: "http://h:1"}]}]` + "\n"
	}
	for _, c := range []struct {
		own, top string
		want     routing.HealthWeight
	}{
		{"", "", routing.HealthWeight{}},
		{"", "enabled: true", routing.HealthWeight{Healthy: 0.9, Degraded: 0.7, Factor: 0.5}},
		{"enabled: true, factor: 0.1", "healthy: 0.95, factor: 0.2", routing.HealthWeight{Healthy: 0.95, Degraded: 0.7,
			Factor: 0.1}},
		{"enabled: false", "enabled: true", routing.HealthWeight{}},
	} {
		f, err := Parse("f", []byte(src(c.own, c.top)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if faults := schemaFaults(t, []byte(src(c.own, c.top))); len(faults) > 0 {
			t.Errorf("the schema refuses it: %v", faults)
		}
		if diff := cmp.Diff(c.want, f.ResolvedPools()[0].HealthWeight); diff != "" {
			t.Errorf("{%s} under {%s} (-want +got):\n%s", c.own, c.top, diff)
		}
	}
}

func TestHealthWeightIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"the defaults": {withTier("") + "health_weight: {enabled: true, healthy: 0.9, degraded: 0.7, factor: 0.5}\n", nil},
		"impossible": {withTier("") + "health_weight: {enabled: 1, healthy: 0, degraded: 2, factor: 0, floor: 1}\n", []string{
			`3:26: health_weight.enabled: want true or false, got "1" (write true or false)`,
			`3:38: health_weight.healthy: want a number above 0, up to 1, got "0"`,
			`3:51: health_weight.degraded: want a number above 0, up to 1, got "2"`,
			`3:62: health_weight.factor: want a number above 0, up to 1, got "0"`,
			`3:65: health_weight.floor: unknown key (known: enabled, healthy, degraded, factor)`,
		}},
		"rates in the wrong order": {withTier("health_weight: {degraded: 0.95},") +
			"health_weight: {enabled: true, healthy: 0.6}\n", []string{
			`2:59: tiers[0].health_weight.degraded: 0.95 is not below healthy (0.6) (lower it, or raise healthy)`,
			`3:41: health_weight.healthy: 0.6 is not above degraded (0.7) (raise it, or lower degraded)`,
		}},
		"nothing turns it on": {withTier("health_weight: {factor: 0.1},") + "health_weight: {factor: 0.2}\n", []string{
			`2:48: warning: tiers[0].health_weight: has no effect: enabled is false (set enabled: true, or remove the section)`,
			`3:16: warning: health_weight: has no effect: enabled is false (set enabled: true, or remove the section)`,
		}},
		"a tier turns it on": {withTier("health_weight: {enabled: true},") + "health_weight: {factor: 0.2}\n", nil},
		"it is off for now":  {withTier("health_weight: {factor: 0.1},") + "health_weight: {enabled: false}\n", nil},
	} {
		if diff := cmp.Diff(append([]string{}, c.want...), problemsOf(t, c.src, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
