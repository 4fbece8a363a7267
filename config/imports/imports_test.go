package imports

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/config"
)

// testCase is a configuration of another router with its translation.
type testCase struct {
	name, src string
	want      string // without its first line
	left      string // one line for each setting
}

// check translates the cases. Each result has no errors for `tierway check` and contains no key.
func check(t *testing.T, translate func([]byte, Options) (Result, error), cases []testCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := translate([]byte(c.src), Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := strings.Cut(string(got.Config), "\n")
			if diff := cmp.Diff(c.want, text); diff != "" {
				t.Errorf("config.yaml (-want +got):\n%s", diff)
			}
			var left strings.Builder
			for _, l := range got.LeftOut {
				left.WriteString(l.String() + "\n")
			}
			if diff := cmp.Diff(c.left, left.String()); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			if strings.Contains(text+left.String(), "sk-") {
				t.Error("a key is printed")
			}
			set := func(string) (string, bool) { return anyValue, true }
			if _, err := config.Parse("config.yaml", got.Config, set); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestVLLMRouterIsTranslated(t *testing.T) {
	check(t, VLLMRouter, []testCase{
		{name: "consistent_hash", src: `# Using CLI
vllm-router --policy consistent_hash --worker-urls http://worker1:8000,http://worker2:8000
`, want: `listen: 127.0.0.1:30000 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: consistent_hash # X-Request-ID, X-Correlation-ID and X-Trace-ID are no keys (session_keys); without a key, the first turn of the prompt decides
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: worker-0
        url: http://worker1:8000
      - name: worker-1
        url: http://worker2:8000
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "round_robin", src: `vllm-router --policy round_robin --worker-urls http://worker1:8000,http://worker2:8000
`, want: `listen: 127.0.0.1:30000 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: round_robin
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: worker-0
        url: http://worker1:8000
      - name: worker-1
        url: http://worker2:8000
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "random", src: `vllm-router --policy random --worker-urls http://worker1:8000,http://worker2:8000
`, want: `listen: 127.0.0.1:30000 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: random
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: worker-0
        url: http://worker1:8000
      - name: worker-1
        url: http://worker2:8000
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "power_of_two", src: `vllm-router --policy power_of_two --worker-urls http://worker1:8000,http://worker2:8000,http://worker3:8000
`, want: `listen: 127.0.0.1:30000 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: power_of_two
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: worker-0
        url: http://worker1:8000
      - name: worker-1
        url: http://worker2:8000
      - name: worker-2
        url: http://worker3:8000
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "cache_aware", src: `vllm-router --policy cache_aware \
  --cache-threshold 0.5 \
  --balance-abs-threshold 32 \
  --balance-rel-threshold 1.1 \
  --worker-urls http://worker1:8000,http://worker2:8000
`, want: `listen: 127.0.0.1:30000 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: cache_aware # without a match, the least loaded worker; on_miss: smallest_tree selects the smallest tree
  cache_threshold: 0.5
  balance_abs_threshold: 32
  balance_rel_threshold: 1.1
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: worker-0
        url: http://worker1:8000
      - name: worker-1
        url: http://worker2:8000
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "kv_aware of the fork", src: `mode:
  type: regular
  worker_urls: ["http://decode1:8083", "unix:///run/vllm.sock"]
policy:
  type: kv_aware
  block_size: 16
  enable_speculative: true
  speculative_ttl_ms: 2000
  kv_events:
    topic_filter: ""
    default_port: 5557
model_path: "meta-llama/Llama-3.1-8B-Instruct"
`, want: `listen: 127.0.0.1:3001 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: kv_aware # finds the engines' events without configuration; see docs/kv-events.md
tiers:
  - name: default
    model: meta-llama/Llama-3.1-8B-Instruct # the name that the workers serve; other names are rejected with 404
    workers:
      - name: worker-0
        url: http://decode1:8083
      - name: worker-1
        url: unix:///run/vllm.sock
`, left: `line 6: policy.block_size: remove it: the events of the engines state the block size
line 7: policy.enable_speculative: remove it: prompts count as cached where they are sent, until the events confirm it
line 8: policy.speculative_ttl_ms: remove it: an entry ends when the events confirm it, or when the attempt fails
line 9: policy.kv_events: write kv_events beside policy, not in it
`},
		{name: "all sections of the fork", src: `host: "0.0.0.0"
port: 8081
log_level: warning
mode:
  type: openai
  worker_urls:
    - "http://node1:8080"
    - "http://node2:8080"
policy:
  type: lmcache_aware
  controller_url: "http://localhost:9000"
  poll_interval_secs: 10
  cache_weight: 0.7
  fallback_policy: "power_of_two"
  controller_timeout_ms: 2000
  lookup_mode: occupancy
  controller_api_key: sk-of-controller
  lmcache_worker_map:
    "vllm-001": "http://node1:8080"
    "vllm-002": "http://node2:8080"
model_path: llama
api_key: sk-global-key
worker_api_keys: { "http://node1:8080": sk-node1-key }
admin_api_key: sk-my-admin-key
api_keys:
  - { key: sk-team-ml-key, name: ML team, rate_limit_rps: 100, max_concurrent: 50, allowed_models: ["*"], enabled: true }
  - { key: sk-team-b-key, name: b, allowed_models: ["llam*"] }
  - { key: sk-team-c-key, name: c, enabled: false }
model_rules:
  - { match: "gpt-4*", rewrite: llama }
  - { match: big, fallback: [llama, llama-8b] }
metrics: { host: "0.0.0.0", port: 29000 }
retry: { max_retries: 3, initial_backoff_ms: 100 }
circuit_breaker: { failure_threshold: 5, success_threshold: 2, timeout_duration_secs: 30 }
health_check: { check_interval_secs: 60, timeout_secs: 5, failure_threshold: 3, success_threshold: 2, endpoint: /health }
decision_log: { export_path: decisions.jsonl, include_request_text: false }
expose_routing_headers: false
`, want: `listen: 0.0.0.0:8081
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
admin:
  keys:
    - name: admin
      sha256: 8d84060e05f11b5e5edb9ffaecce96a27a0d3de1178c109244e0392bbeb0fc12 # of the same key
  listen: 127.0.0.1:8082 # 8081, the default, is in use
metrics:
  listen: 0.0.0.0:29000 # the admin plane serves /metrics too, without this key
  insecure: true # names of tenants and workers, in plain text and without a key
auth:
  keys:
    - name: ml-team
      sha256: a56c93125fe055585a95d39c3b4f10fca9ed9ad829b4e146ec887dcb527222e3 # of the same key; clients keep it
      limits:
        rps: 100
        concurrent: 50
    - name: b
      sha256: 26472783839aac7947e22fdc3e506cbe9d6d4d57b25ce6870699ea88dd76768a # of the same key; clients keep it
      models: [llam*]
policy:
  name: lmcache_aware # kv_aware with LMCache's events needs no controller; see docs/lmcache.md
  controller_url: http://localhost:9000
  poll_interval: 10s
  cache_weight: 0.7 # that of the load is one minus it
  fallback: power_of_two
  controller_timeout: 2000ms # a look-up takes 200ms at most
  mode: occupancy
  controller_api_key_env: LMCACHE_CONTROLLER_API_KEY # export this variable with the key of the controller
  lmcache_worker_map:
    vllm-001: http://node1:8080
    vllm-002: http://node2:8080
tiers:
  - name: default
    model: llama # the name that the workers serve; other names are rejected with 404
    engine: openai
    workers:
      - name: worker-0
        url: http://node1:8080
        api_key_env: WORKER_0_API_KEY # export this variable with the key of worker_api_keys
      - name: worker-1
        url: http://node2:8080
        api_key_env: WORKER_API_KEY # export this variable with the key of api_key
models:
  gpt-4*: default
breaker:
  consecutive_failures: 5 # breaker.failure_ratio applies too
  probes: 2 # successful probes, and probes at a time
  open_for: 30s # a passed health check can end it
health:
  interval: 60s
  timeout: 5s
  down_after: 3
  up_after: 2
  path: /health
retry:
  attempts: 3 # with the first attempt; a retry goes to another worker, and retry.budget limits all retries
routing_headers: false # X-Routed-To, X-Route-Reason and others
decisions:
  file: decisions.jsonl # one record for each request; see docs/operations.md
log:
  level: warn
`, left: `line 28: api_keys[2]: the key is disabled
line 31: model_rules[1]: write fallback at the model's tier or pool
line 33: retry.initial_backoff_ms: a retry follows at once, on another worker; a worker that returns 429 or 503 receives no requests for its Retry-After
`},
		{name: "all flags", src: `#!/bin/bash
set -e
export MODEL=llama
exec python3 -m sglang_router.launch_router --policy=consistent_hashing \
  --worker-urls "http://a:8000" 'http://b:8000' --worker-urls http://c:8000/ \
  --host 0.0.0.0 --port $PORT --api-key "$ENGINE_KEY" \
  --model-path ${MODEL} --retry-max-retries 7 --cb-failure-threshold 10 --cb-window-duration-secs 120 \
  --health-check-endpoint /health --health-check-interval-secs 2 --health-failure-threshold 3 \
  --request-timeout-secs 1800 --queue-size 100 --queue-timeout-secs 60 --max-payload-size 67108864 \
  --prometheus-port 29000 --request-id-headers x-a x-b --max-concurrent-requests 256 --cache-threshold 0.3 \
  --engine-wait-timeout-secs 300 --log-level warning --disable-circuit-breaker --brand-new-flag 1 >router.log 2>&1 &
`, want: `listen: 0.0.0.0:${PORT}
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
metrics:
  listen: 127.0.0.1:29000 # the admin plane serves /metrics too, without this key
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
max_body_bytes: 67108864 # bytes, after decompression; see also queue.max_bytes
policy:
  name: consistent_hash # X-Request-ID, X-Correlation-ID and X-Trace-ID are no keys (session_keys); without a key, the first turn of the prompt decides
tiers:
  - name: default
    model: ${MODEL} # the name that the workers serve; other names are rejected with 404
    workers:
      - name: worker-0
        url: http://a:8000
        api_key_env: ENGINE_KEY # export this variable with the key of --api-key
      - name: worker-1
        url: http://b:8000
        api_key_env: ENGINE_KEY # export this variable with the key of --api-key
      - name: worker-2
        url: http://c:8000/
        api_key_env: ENGINE_KEY # export this variable with the key of --api-key
breaker:
  consecutive_failures: 10 # breaker.failure_ratio applies too
  window: 120s # of breaker.failure_ratio
health:
  path: /health
  interval: 2s
  down_after: 3
  timeout: 2s # at most the interval
retry:
  attempts: 5 # at most 5; with the first attempt; a retry goes to another worker, and retry.budget limits all retries
timeouts:
  total:
    interactive: 1800s
    background: 1800s
    batch: 1800s
queue:
  max_depth: 100 # for each class of each pool
  max_wait:
    interactive: 60s
    background: 60s
    batch: 60s
  engine_wait: 300s
log:
  level: warn
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
line 10: --request-id-headers: a request's id is X-Request-ID; a proxy in front of the gateway can copy another header to it
line 10: --max-concurrent-requests: requests wait for workers only; write max_inflight at the workers, or limits.concurrent at a tenant
line 10: --cache-threshold: policy.cache_threshold: applies only to the policy cache_aware, but the policy is consistent_hash (remove the key, or write name: cache_aware)
line 11: --disable-circuit-breaker: the breaker cannot be turned off; write breaker: { consecutive_failures: 1000, failure_ratio: 1 }
line 11: --brand-new-flag: this key is not known; docs/config.md lists the keys of config.yaml
`},
	})
}

func TestContinuumIsTranslated(t *testing.T) {
	check(t, Continuum, []testCase{
		{name: "weighted round robin", src: `selection_strategy: WeightedRoundRobin
backends:
  - name: high-performance
    url: http://gpu-server:8000
    weight: 3 # Gets 3x more traffic
  - name: standard
    url: http://cpu-server:8000
    weight: 1 # Base traffic level
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: weighted_round_robin
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: high-performance
        url: http://gpu-server:8000
        weight: 3
      - name: standard
        url: http://cpu-server:8000
        weight: 1
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "prefix-aware hash", src: `selection_strategy: PrefixAwareHash
prefix_routing:
  enabled: true
  max_prefix_length: 1024
  load_factor_epsilon: 0.25
  virtual_nodes: 150
  anthropic_cache_control_injection: true
backends:
  - { name: a, url: "http://a:8000" }
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: chwbl # the prefix that the traffic shares; depth: fixed uses the first turn only
  no_key: model_hash
  max_prefix_length: 1024
  epsilon: 0.25 # policy.slack applies too
  virtual_nodes: 150 # for each unit of weight
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: a
        url: http://a:8000
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
line 7: prefix_routing.anthropic_cache_control_injection: write inject_cache_control: true at the tier or pool
`},
		{name: "high performance", src: `selection_strategy: LeastLatency
backends:
  - name: local-gpu
    url: http://localhost:8000
    models: ["llama3", "mistral"]
    health_check:
      interval: 10s # Frequent checks for accurate latency data
  - name: remote-gpu
    url: http://gpu-cluster:8000
    models: ["llama3", "mistral"]
    health_check:
      interval: 10s
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: least_latency # time to first event of streams, multiplied by the requests in flight
pools:
  - name: default # one pool; docs/tiers.md describes tiers of models
    models: [llama3, mistral]
    serves: [chat, completions, responses, messages, embeddings] # kinds of request; remove what the models do not serve
    workers:
      - name: local-gpu
        url: http://localhost:8000
        health:
          interval: 10s
      - name: remote-gpu
        url: http://gpu-cluster:8000
        health:
          interval: 10s
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
`},
		{name: "weighted distribution", src: `selection_strategy: WeightedRoundRobin
backends:
  - name: powerful-server
    url: http://high-end:8000
    weight: 5
    models: ["gpt-5.4", "claude-opus-4-6"]
  - name: medium-server
    url: http://medium:8000
    weight: 2
    models: ["gpt-5.4-mini", "claude-sonnet-4-6"]
  - name: basic-server
    url: http://basic:8000
    weight: 1
    models: ["gpt-5.4-nano"]
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: weighted_round_robin
pools:
  - name: default # one pool; docs/tiers.md describes tiers of models
    models: [gpt-5.4, claude-opus-4-6, gpt-5.4-mini, claude-sonnet-4-6, gpt-5.4-nano]
    serves: [chat, completions, responses, messages, embeddings] # kinds of request; remove what the models do not serve
    workers:
      - name: powerful-server
        url: http://high-end:8000
        models: [gpt-5.4, claude-opus-4-6]
        weight: 5
      - name: medium-server
        url: http://medium:8000
        models: [gpt-5.4-mini, claude-sonnet-4-6]
        weight: 2
      - name: basic-server
        url: http://basic:8000
        models: [gpt-5.4-nano]
        weight: 1
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
`},
		{name: "cache-optimized", src: `selection_strategy: ConsistentHash
backends:
  - name: backend-1
    url: http://server1:8000
    models: ["gpt-5.4", "gpt-5.4-mini"]
  - name: backend-2
    url: http://server2:8000
    models: ["gpt-5.4", "gpt-5.4-mini"]
  - name: backend-3
    url: http://server3:8000
    models: ["claude-opus-4-6", "claude-sonnet-4-6"]
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: consistent_hash
  key: model
pools:
  - name: default # one pool; docs/tiers.md describes tiers of models
    models: [gpt-5.4, gpt-5.4-mini, claude-opus-4-6, claude-sonnet-4-6]
    serves: [chat, completions, responses, messages, embeddings] # kinds of request; remove what the models do not serve
    workers:
      - name: backend-1
        url: http://server1:8000
        models: [gpt-5.4, gpt-5.4-mini]
      - name: backend-2
        url: http://server2:8000
        models: [gpt-5.4, gpt-5.4-mini]
      - name: backend-3
        url: http://server3:8000
        models: [claude-opus-4-6, claude-sonnet-4-6]
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
`},
		{name: "mixed strategy", src: `routing:
  strategy: LeastLatency
  fallback_strategy: RoundRobin
  model_overrides:
    "gpt-4": ConsistentHash
    "llama3": WeightedRoundRobin
backends:
  - name: primary
    url: http://primary:8000
    weight: 3
    priority: 1
  - name: secondary
    url: http://secondary:8000
    weight: 1
    priority: 2
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: least_latency # time to first event of streams, multiplied by the requests in flight
  fallback: round_robin
policy_rules:
  - model: gpt-4
    policy:
      name: consistent_hash
      key: model
  - model: llama3
    policy:
      name: weighted_round_robin
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: primary
        url: http://primary:8000
        weight: 3
        priority: 1 # higher numbers are used only while all lower ones are unavailable
      - name: secondary
        url: http://secondary:8000
        weight: 1
        priority: 2 # higher numbers are used only while all lower ones are unavailable
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "health-aware", src: `health_checks:
  enabled: true
  interval: 30s
  timeout: 5s
  unhealthy_threshold: 3
  healthy_threshold: 2
dynamic_weight_adjustment:
  enabled: true
  degraded_weight_factor: 0.5
selection_strategy: WeightedRoundRobin
backends:
  - name: primary
    url: http://primary:8000
    weight: 100
    health_score_threshold:
      healthy: 0.9
      degraded: 0.7
      unhealthy: 0.0
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: weighted_round_robin
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: primary
        url: http://primary:8000
        weight: 100
health:
  interval: 30s
  timeout: 5s
  down_after: 3
  up_after: 2
health_weight:
  enabled: true
  factor: 0.5 # at the success ratio degraded; in between, the weight follows the ratio
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
line 15: backends[0].health_score_threshold: write health_weight.healthy and health_weight.degraded, for all workers of a tier or pool
`},
		{name: "request-aware", src: `routing:
  strategy: Custom
  rules:
    - condition:
        model: "gpt-4"
        max_tokens: { greater_than: 2000 }
      strategy: ConsistentHash
    - condition:
        model: "gpt-3.5-turbo"
        stream: true
      strategy: LeastLatency
    - condition: { user: me }
      strategy: Random
    - condition:
        default: true
      strategy: WeightedRoundRobin
backends:
  - { name: a, url: "http://a:8000" }
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
policy:
  name: weighted_round_robin
policy_rules:
  - model: gpt-4
    max_tokens:
      above: 2000
    policy:
      name: consistent_hash
      key: model
  - model: gpt-3.5-turbo
    stream: true
    policy:
      name: least_latency # time to first event of streams, multiplied by the requests in flight
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: a
        url: http://a:8000
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
line 12: routing.rules[2]: routing.rules[2].condition.user: this key is not known; docs/config.md lists the keys of config.yaml
`},
		{name: "geographic", src: `routing:
  strategy: Geographic
backends:
  - name: us-west
    url: http://us-west.example.com:8000
    region: us-west
    weight: 1
  - name: us-east
    url: http://us-east.example.com:8000
    region: us-east
    weight: 1
geographic_routing:
  detect_client_region: true
  fallback_to_nearest: true
`, want: `listen: 0.0.0.0:8080 # the router's default
insecure: true # plain text on the network, as in the other router; or write tls: { cert: FILE, key: FILE }
auth:
  required: true # clients need a key: tierway keys create -c config.yaml --tenant NAME
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: us-west
        url: http://us-west.example.com:8000
        region: us-west
        weight: 1
      - name: us-east
        url: http://us-east.example.com:8000
        region: us-east
        weight: 1
`, left: `access without keys: an address that is not loopback requires keys: create one with tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }
model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
line 2: routing.strategy: every policy prefers the nearest region: write region at the workers, and at the gateway or in regions.header
line 13: geographic_routing.detect_client_region: write regions.header, a header of trusted_proxies, or region of the gateway
`},
		{name: "server and keys", src: `server:
  bind_address: ["unix:/run/router.sock", "127.0.0.1:8081"]
  workers: 4
request: { timeout: 180s, max_retries: 4 }
retry: { max_attempts: 3 }
logging: { level: warn }
backends:
  - { name: OpenAI, type: openai, api_key: "${OPENAI_KEY}", models: [gpt-4o] }
  - { name: Local GPU, url: "http://gpu:8000", api_key: sk-local-key, models: [llama], health_check: { interval: 2s } }
  - { name: spare, url: "grpc://gpu:8001" }
`, want: `listen: 127.0.0.1:8081
admin:
  listen: 127.0.0.1:8082 # 8081, the default, is in use
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: round_robin # the router's default; without this section, it is kv_aware
pools:
  - name: default # one pool; docs/tiers.md describes tiers of models
    models: [gpt-4o, llama]
    serves: [chat, completions, responses, messages, embeddings] # kinds of request; remove what the models do not serve
    workers:
      - name: openai # names are unique and in lower case
        url: https://api.openai.com
        models: [gpt-4o]
        api_key_env: OPENAI_KEY # export this variable with the key of backends[0].api_key
      - name: local-gpu # names are unique and in lower case
        url: http://gpu:8000
        models: [llama]
        api_key_env: KEY_LOCAL_GPU # export this variable with the key of backends[1].api_key
        health:
          interval: 2s
          timeout: 2s # at most the interval
retry:
  attempts: 5 # with the first attempt; a retry goes to another worker, and retry.budget limits all retries
timeouts:
  total:
    interactive: 180s
    background: 180s
    batch: 180s
log:
  level: warn
`, left: `line 2: server.bind_address: the gateway listens on TCP only
line 3: server.workers: the gateway uses all processors; GOMAXPROCS limits them
line 5: retry.max_attempts: retry.attempts is already set by request.max_retries
line 8: backends[0].type: the engine is detected; write engine at the tier or pool to set it
line 10: backends[2].url: "grpc://gpu:8001" has the scheme "grpc"; it must be http, https or unix
`},
	})
}

// TestErrorsNameTheKey verifies that a configuration that cannot be imported is rejected with line and key.
func TestErrorsNameTheKey(t *testing.T) {
	const team = "mode: { worker_urls: [http://a:1] }\napi_keys:\n  - { key: sk-team-key, name: a, allowed_models: [x] }\n"
	for _, c := range []struct {
		name      string
		translate func([]byte, Options) (Result, error)
		src       string
		want      []string
	}{
		{"pairs without workers", VLLMRouter, "vllm-router \\\n  --mode pd --prefill-policy consistent_hash",
			[]string{"no worker", "line 2: --mode: ", "none is listed"}},
		{"only prefill workers", VLLMRouter, "vllm-router --mode pd --prefill-workers http://p:1",
			[]string{"tiers[0].workers: ", "none generates answers"}},
		{"a prefill worker on a socket", VLLMRouter, "mode:\n  type: vllm_prefill_decode\n  prefill_urls: [\"unix:///run/p.sock\"]\n" +
			"  decode_urls: [\"http://d:1\"]\n", []string{"line 3: mode.prefill_urls: ", "is a Unix socket", "http://host:port"}},
		{"a connector of another kind", VLLMRouter, "vllm-router --vllm-pd-disaggregation --kv-connector mooncake " +
			"--prefill http://p:1 --decode http://d:1", []string{"line 1: --kv-connector: ", "NixlConnector"}},
		{"discovered workers", VLLMRouter, "vllm-router --vllm-pd-disaggregation --vllm-discovery-address 0.0.0.0:30001",
			[]string{"no worker", "line 1: --vllm-discovery-address: ", "kv_address"}},
		{"a rank in a pair", VLLMRouter, "vllm-router --vllm-pd-disaggregation --prefill http://p:1@0 --decode http://d:1",
			[]string{"line 1: --prefill: ", "ranks cannot hand prompts over"}},
		{"no workers", VLLMRouter, "vllm-router --service-discovery\n", []string{"no worker", "line 1: --service-discovery: "}},
		{"no usable worker", VLLMRouter, "vllm-router --worker-urls grpc://a:1\n", []string{"no worker", "line 1: --worker-urls: ", "grpc"}},
		{"neither", VLLMRouter, "hello\n", []string{"neither a command line with flags nor YAML keys"}},
		{"other file", VLLMRouter, "vllm-router --worker-urls http://a:1 --config-file x.yaml", []string{"line 1: --config-file: "}},
		{"open quote", VLLMRouter, "\nvllm-router --policy 'random", []string{"line 2: the quote"}},
		{"command in a command", VLLMRouter, "\nvllm-router --port $(cat port)", []string{"line 2: a command"}},
		{"unknown model of a tenant", VLLMRouter, team, []string{"line 3: api_keys[0].allowed_models: ", `"x" matches no model`}},
		{"invalid YAML", Continuum, "backends: [", []string{"line 1"}},
		{"no section", Continuum, "backends", []string{"not a YAML section"}},
		{"no backends", Continuum, "selection_strategy: Random\n", []string{"no backend"}},
		{"weight of a backend", Continuum, "backends:\n  - { name: a, url: \"http://a\", weight: 1000 }\n",
			[]string{"line 2: backends[0].weight: ", "tiers[0].workers[0].weight"}},
	} {
		_, err := c.translate([]byte(c.src), Options{})
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-") {
				t.Errorf("%s: the error %q does not contain %q", c.name, err, want)
			}
		}
	}
}

// TestOptionNamesTheModel verifies --model for a file without a model.
func TestOptionNamesTheModel(t *testing.T) {
	got, err := VLLMRouter([]byte("vllm-router --worker-urls http://a:1"), Options{Model: "llama"})
	if err != nil || !strings.Contains(string(got.Config), "model: llama\n") || len(got.LeftOut) > 0 {
		t.Errorf("%s %v %v", got.Config, got.LeftOut, err)
	}
}

// TestServerAppearsOnce verifies that a repeated URL is left out, and the file stays valid.
func TestServerAppearsOnce(t *testing.T) {
	got, err := VLLMRouter([]byte("vllm-router --worker-urls http://a:1,http://A:1/"), Options{Model: "llama"})
	if err != nil || len(got.LeftOut) != 1 || !strings.Contains(got.LeftOut[0].Reason, "already a worker") {
		t.Errorf("%s %v %v", got.Config, got.LeftOut, err)
	}
}

// TestCustomStrategiesKeepTheirOptions verifies that prefix_routing goes to the rule that hashes prefixes, and that
// the fallback serves the requests without a rule.
func TestCustomStrategiesKeepTheirOptions(t *testing.T) {
	got, err := Continuum([]byte(`
routing:
  strategy: Custom
  fallback_strategy: LeastLatency
  rules:
    - { condition: { model: gpt-4 }, strategy: PrefixAwareHash }
prefix_routing: { enabled: true, load_factor_epsilon: 0.5 }
backends: [ { name: a, url: "http://a:1" } ]
`), Options{Model: "gpt-4"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := config.Parse("config.yaml", got.Config, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, got.Config)
	}
	rule := f.PolicyRules[0].Policy
	if f.Policy.Name != "least_latency" || rule.Name != "chwbl" || rule.Epsilon == nil || *rule.Epsilon != 0.5 {
		t.Errorf("%+v and %+v\n%s", f.Policy, rule, got.Config)
	}
}

// TestRankURLsStay verifies that URLs of data-parallel ranks stay.
func TestRankURLsStay(t *testing.T) {
	got, err := VLLMRouter([]byte("vllm-router --worker-urls http://h:8000@0,http://h:8000@1,http://h:8000@1"), Options{})
	if text := string(got.Config); err != nil || !strings.Contains(text, "url: http://h:8000@0") ||
		strings.Count(text, "url: http://h:8000@1") != 1 {
		t.Errorf("%s %v", text, err)
	}
}

// TestWordsOfAShell verifies quotes, continuations, comments, variables and the end of a command.
func TestWordsOfAShell(t *testing.T) {
	for src, want := range map[string][]string{
		"a b\t'c d' \"e f\"g":           {"a", "b", "c d", "e fg"},
		"a \\\n b \\\r\n c":             {"a", "b", "c"},
		"a # b\nc":                      {"a", "|", "c"},
		"a#b '#' \\# ''":                {"a#b", "#", "#", ""},
		"a > b 2>&1 && c; d | e":        {"a", "|", "b", "|", "|", "1", "|", "|", "c", "|", "d", "|", "e"},
		"$A ${B} ${C:-d} \"$E\"":        {"${A}", "${B}", "${C:-d}", "${E}"},
		"'$A' '${A}' \\${A} \"\\${A}\"": {"$A", "$${A}", "$${A}", "$${A}"},
		`"a\"b\\c\d" a$ "$"`:            {`a"b\c\d`, "a$", "$"},
	} {
		commands, err := readCommands([]byte(src))
		var got []string
		for i, words := range commands {
			if i > 0 {
				got = append(got, "|")
			}
			for _, w := range words {
				got = append(got, w.text)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v, want %q", src, got, err, want)
		}
	}
}

// FuzzReadCommands verifies that words in single quotes are read as they are.
func FuzzReadCommands(f *testing.F) {
	for _, seed := range []string{"a b", "--x=${Y}", "$(", "it's", "\"\\", "a\n#b", "`"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted := "x '" + strings.ReplaceAll(text, "'", `'\''`) + "' --y"
		commands, err := readCommands([]byte(quoted))
		want := strings.ReplaceAll(text, "${", "$${")
		if err != nil || len(commands) != 1 || len(commands[0]) != 3 || commands[0][1].text != want {
			t.Fatalf("%q: %v %v", quoted, commands, err)
		}
		if _, err := readCommands([]byte(text)); err != nil && !strings.HasPrefix(err.Error(), "line ") {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// FuzzImport verifies that every result is a valid configuration.
func FuzzImport(f *testing.F) {
	for _, seed := range []string{"vllm-router --worker-urls http://a:1 --policy random", "mode: { worker_urls: [http://a:1] }",
		"backends: [{ name: a, url: \"http://a\", models: [b, c] }]", "routing: { model_overrides: { a: Random } }",
		"a: &a { backends: *a }", "vllm-router --host :: --port ${PORT:-1} --worker-urls x http://x",
		"vllm-router --mode pd --prefill http://a:1 9 --decode http://b:1 --prefill-policy random --decode-policy chwbl " +
			"--virtual-nodes 9 --vllm-discovery-address x",
		"mode: {type: vllm_prefill_decode, prefill_urls: [[\"http://a:1\", 9]], decode_urls: [\"http://[::1]:1\"], " +
			"discovery_address: x, decode_policy: {type: random, virtual_nodes: 1}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src string) {
		for _, translate := range []func([]byte, Options) (Result, error){VLLMRouter, Continuum} {
			got, err := translate([]byte(src), Options{})
			if err != nil {
				continue
			}
			_, err = config.Parse("config.yaml", got.Config, func(string) (string, bool) { return anyValue, true })
			if problems := (config.Problems)(nil); errors.As(err, &problems) {
				t.Fatalf("%s\n%v", got.Config, problems)
			}
		}
	})
}
