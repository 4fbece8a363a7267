package checks

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/config"
)

// TestComposePutsNginxInFrontOfTwoEqualGateways: the profile gateways starts all services. The names in
// deploy/nginx.conf lead to two gateways, which differ in names and published ports only.
func TestComposePutsNginxInFrontOfTwoEqualGateways(t *testing.T) {
	all := services(t)
	for name, s := range all {
		if first := name == "tierway"; first != (len(s.Profiles) == 0) || !first && !slices.Contains(s.Profiles, "gateways") {
			t.Errorf("%s has the profiles %q", name, s.Profiles)
		}
	}
	conf := string(read(t, "deploy/nginx.conf"))
	nginx := all["nginx"]
	if want := []string{"./deploy/nginx.conf:/etc/nginx/nginx.conf:ro"}; !slices.Equal(nginx.Volumes, want) {
		t.Errorf("nginx has the volumes %q, want %q", nginx.Volumes, want)
	}
	listen := regexp.MustCompile(`(?m)^\s*listen (\d+);$`).FindStringSubmatch(conf)
	if listen == nil || len(nginx.Ports) != 1 || !strings.HasSuffix(nginx.Ports[0], ":"+listen[1]) {
		t.Errorf("nginx listens on %q and publishes %q", listen, nginx.Ports)
	}
	servers := regexp.MustCompile(`(?m)^\s*server ([a-z0-9-]+):8080 `).FindAllStringSubmatch(conf, -1)
	var reached []string
	for _, m := range servers {
		for name, s := range all {
			if slices.Contains(s.Networks["default"].Aliases, m[1]) {
				reached = append(reached, name)
			}
		}
	}
	if !slices.Equal(reached, []string{"tierway", "tierway-2"}) || !slices.Equal(nginx.DependsOn, reached) {
		t.Errorf("nginx sends requests to %q and waits for %q", reached, nginx.DependsOn)
	}
	one, two := all["tierway"], all["tierway-2"]
	for _, s := range []*service{&one, &two} {
		s.Ports, s.Profiles, s.Networks = nil, nil, nil
	}
	if !reflect.DeepEqual(one, two) {
		t.Errorf("the gateways differ: %+v and %+v", one, two)
	}
}

// TestProxiesWaitLongerThanTheGateway: no timeout of the proxies ends an answer that the gateway's
// defaults allow, and a gateway that stops is noticed within its accept_grace.
func TestProxiesWaitLongerThanTheGateway(t *testing.T) {
	nginx, haproxy := string(read(t, "deploy/nginx.conf")), string(read(t, "deploy/haproxy.cfg"))
	of := func(text, key string) time.Duration {
		t.Helper()
		m := regexp.MustCompile(`(?m)^[^#]*\b` + key + `[ =](\d+s)\b`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("there is no %s", key)
		}
		d, err := time.ParseDuration(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := config.Default()
	longest := max(d.Timeouts.Total.Interactive, d.Timeouts.Total.Background, d.Timeouts.Total.Batch,
		d.Timeouts.FirstByte, d.Timeouts.Idle)
	for key, got := range map[string]time.Duration{
		"proxy_read_timeout": of(nginx, "proxy_read_timeout"),
		"timeout server":     of(haproxy, "timeout server"),
		"timeout client":     of(haproxy, "timeout client"),
		"hard-stop-after":    of(haproxy, "hard-stop-after"),
	} {
		if got <= longest || got <= d.Drain.Timeout {
			t.Errorf("%s is %v: the gateway may take %v for an answer and %v for a drain", key, got, longest, d.Drain.Timeout)
		}
	}
	// nginx counts whole seconds.
	if got := of(nginx, "fail_timeout") + time.Second; got >= d.Drain.AcceptGrace {
		t.Errorf("nginx does not use a gateway for %v after a failure, and accept_grace is %v", got, d.Drain.AcceptGrace)
	}
	if got := of(haproxy, "inter"); got >= d.Drain.AcceptGrace {
		t.Errorf("HAProxy notices a drain after %v, and accept_grace is %v", got, d.Drain.AcceptGrace)
	}
}
