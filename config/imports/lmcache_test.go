package imports

import (
	"strings"
	"testing"

	"tierway/config"
)

// TestLMCacheFlagsAreTranslated: the fork has flags for all keys but the map.
func TestLMCacheFlagsAreTranslated(t *testing.T) {
	got, err := VLLMRouter([]byte("vllm-router --policy lmcache_aware --lmcache-controller-url http://c:9000 "+
		"--lmcache-poll-interval 5 --lmcache-cache-weight 0.6 --lmcache-lookup-mode prefix_lookup "+
		"--lmcache-controller-timeout-ms 1000 --worker-urls http://a:8000 --model-path m --host 127.0.0.1"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"name: lmcache_aware", "controller_url: http://c:9000", "poll_interval: 5s",
		"cache_weight: 0.6", "mode: prefix_lookup", "controller_timeout: 1000ms"} {
		if !strings.Contains(string(got.Config), line) {
			t.Errorf("%q is not in\n%s", line, got.Config)
		}
	}
	if len(got.LeftOut) != 0 {
		t.Errorf("left out: %v", got.LeftOut)
	}
}

// TestImportedPolicyWithoutAModeHasAWarning: the fork's default stays, and the check of the result names the way out.
func TestImportedPolicyWithoutAModeHasAWarning(t *testing.T) {
	for _, mode := range []string{"", " --lmcache-lookup-mode occupancy"} {
		got, err := VLLMRouter([]byte("vllm-router --policy lmcache_aware --worker-urls http://a:8000 --model-path m "+
			"--host 127.0.0.1"+mode), Options{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := config.Parse("config.yaml", got.Config, nil)
		if err != nil {
			t.Fatal(err)
		}
		warned := strings.Contains(f.Warnings().Error(), "policy.mode: missing, so occupancy applies")
		if warned != (mode == "") {
			t.Errorf("with%q: %v", mode, f.Warnings())
		}
	}
}
