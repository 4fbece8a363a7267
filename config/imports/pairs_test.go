package imports

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/config"
)

// TestPairsAreTranslated: the examples of prefill and decode workers of vLLM Router, of its fork and of SGLang's router.
func TestPairsAreTranslated(t *testing.T) {
	check(t, VLLMRouter, []testCase{
		{name: "the router's page", src: `vllm-router \
  --mode pd \
  --prefill-policy consistent_hash \
  --decode-policy round_robin \
  --prefill-workers http://prefill1:8000,http://prefill2:8000 \
  --decode-workers http://decode1:8000,http://decode2:8000
`, want: `listen: 127.0.0.1:30000 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    handover: nixl # the engines' NixlConnector; write p2p_nccl or shared if they have another connector
    policy:
      name: round_robin
    prefill_policy:
      name: consistent_hash # X-Request-ID, X-Correlation-ID and X-Trace-ID are no keys (session_keys); without a key, the first turn of the prompt decides
    workers:
      - name: prefill-0
        url: http://prefill1:8000
        role: prefill
      - name: prefill-1
        url: http://prefill2:8000
        role: prefill
      - name: decode-0
        url: http://decode1:8000
        role: decode
      - name: decode-1
        url: http://decode2:8000
        role: decode
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
`},
		{name: "the fork's article", src: `mode:
  type: vllm_prefill_decode
  prefill_urls:
    - ["http://prefill1:8081", null]
  decode_urls:
    - "http://decode1:8083"
    - "http://decode2:8084"
  decode_policy:
    type: kv_aware
    block_size: 16
    enable_speculative: true
    speculative_ttl_ms: 2000
    kv_events:
      topic_filter: ""
      default_port: 5557
      pd_uncached_token_threshold: 256
    model_path: "meta-llama/Llama-3.1-8B-Instruct"
`, want: `listen: 127.0.0.1:3001 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: random # the router's default; without this section, it is kv_aware
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    handover: nixl # the engines' NixlConnector; write p2p_nccl or shared if they have another connector
    policy:
      name: kv_aware # finds the engines' events without configuration; see docs/kv-events.md
    prefill_policy:
      name: random # the router's default; without this section, it is kv_aware
    uncached_threshold: 256 # requests with fewer uncached tokens stay on their decode worker
    workers:
      - name: prefill-0
        url: http://prefill1:8081
        role: prefill
      - name: decode-0
        url: http://decode1:8083
        role: decode
      - name: decode-1
        url: http://decode2:8084
        role: decode
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
line 10: mode.decode_policy.block_size: remove it: the events of the engines state the block size
line 11: mode.decode_policy.enable_speculative: remove it: prompts count as cached where they are sent, until the events confirm it
line 12: mode.decode_policy.speculative_ttl_ms: remove it: an entry ends when the events confirm it, or when the attempt fails
line 13: mode.decode_policy.kv_events: the engines' events are found without configuration; see docs/kv-events.md
line 17: mode.decode_policy.model_path: write tokenizer with the path of a tokenizer.json; without it, the engines tokenize
`},
		{name: "the fork's example", src: `host: "127.0.0.1"
port: 8090
mode:
  type: pd_disaggregation
  prefill_urls:
    - "http://127.0.0.1:8081"
  decode_urls: ["http://127.0.0.1:8083", "http://127.0.0.1:8084"]
  intra_node_data_parallel_size: 2
prefill_policy:
  type: lmcache_aware
  fallback_policy: power_of_two
decode_policy:
  type: consistent_hash
  virtual_nodes: 200
served_model_name: llama
worker_api_keys: { "http://127.0.0.1:8083": sk-of-decode }
`, want: `listen: 127.0.0.1:8090
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
tiers:
  - name: default
    model: llama # the name that the workers serve; other names are rejected with 404
    handover: nixl # the engines' NixlConnector; write p2p_nccl or shared if they have another connector
    policy:
      name: consistent_hash # X-Request-ID, X-Correlation-ID and X-Trace-ID are no keys (session_keys); without a key, the first turn of the prompt decides
      virtual_nodes: 200 # for each unit of weight
    prefill_policy:
      name: lmcache_aware # kv_aware with LMCache's events needs no controller; see docs/lmcache.md
      fallback: power_of_two
    workers:
      - name: prefill-0
        url: http://127.0.0.1:8081
        role: prefill
      - name: decode-0
        url: http://127.0.0.1:8083
        role: decode
        api_key_env: DECODE_0_API_KEY # export this variable with the key of worker_api_keys
      - name: decode-1
        url: http://127.0.0.1:8084
        role: decode
`, left: `line 8: mode.intra_node_data_parallel_size: ranks cannot hand prompts over by nixl; start each rank as a server, and list it as a worker
`},
		{name: "SGLang's router", src: `python -u -m sglang_router.launch_router \
    --pd-disaggregation --host 127.0.0.1 --port 6688 --policy cache_aware --cache-threshold 0.4 \
    --prefill http://192.168.0.184:8000 8995 --prefill http://192.168.0.185:8000 none --prefill http://192.168.0.186:8000 \
    --decode http://192.168.0.60:8000 --decode-policy power_of_two --model-path llama
`, want: `listen: 127.0.0.1:6688
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: cache_aware # without a match, the least loaded worker; on_miss: smallest_tree selects the smallest tree
  cache_threshold: 0.4
tiers:
  - name: default
    model: llama # the name that the workers serve; other names are rejected with 404
    handover: sglang
    policy:
      name: power_of_two
    prefill_policy:
      name: cache_aware # without a match, the least loaded worker; on_miss: smallest_tree selects the smallest tree
      cache_threshold: 0.4
    workers:
      - name: prefill-0
        url: http://192.168.0.184:8000
        role: prefill
        bootstrap_port: 8995
      - name: prefill-1
        url: http://192.168.0.185:8000
        role: prefill
      - name: prefill-2
        url: http://192.168.0.186:8000
        role: prefill
      - name: decode-0
        url: http://192.168.0.60:8000
        role: decode
`},
		{name: "discovery beside static workers", src: `vllm-router --vllm-pd-disaggregation --vllm-discovery-address 0.0.0.0:30001 \
  --prefill http://10.0.0.1:8000 9001 --decode http://10.0.0.3:8000 --decode http://10.0.0.3:8000 \
  --policy kv_aware --prefill-policy cache_aware --cache-threshold 0.7 --kv-block-size 16 --kv-hash-seed 1 \
  --pd-uncached-token-threshold 0 --served-model-name llama --worker-urls http://a:1
`, want: `listen: 127.0.0.1:30000 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: kv_aware # finds the engines' events without configuration; see docs/kv-events.md
tiers:
  - name: default
    model: llama # the name that the workers serve; other names are rejected with 404
    handover: p2p_nccl
    prefill_policy:
      name: cache_aware # without a match, the least loaded worker; on_miss: smallest_tree selects the smallest tree
      cache_threshold: 0.7
    workers:
      - name: prefill-0
        url: http://10.0.0.1:8000
        role: prefill
        kv_address: 10.0.0.1:14579 # write the engine's kv_port
      - name: decode-0
        url: http://10.0.0.3:8000
        role: decode
        kv_address: 10.0.0.3:14580 # write the engine's kv_port
`, left: `kv_address: the file names no KV ports: write the host and the kv_port of each engine's --kv-transfer-config in place of the imported ones
line 1: --vllm-discovery-address: workers are not discovered: list each under workers with its role and url, and with handover: p2p_nccl the host and port of its kv_port as kv_address
line 2: --prefill: p2p_nccl needs no bootstrap port
line 2: --decode: the server is already a worker; a server appears once
line 3: --kv-block-size: remove it: the events of the engines state the block size
line 3: --kv-hash-seed: remove it: the events of the engines state the tokens of each block
line 4: --pd-uncached-token-threshold: here, 0 would leave each request to its decode worker; without uncached_threshold, expected times decide
line 4: --worker-urls: the router sends nothing to it beside prefill and decode workers
`},
		{name: "no pairs", src: `mode: { type: regular, worker_urls: ["http://a:1"], decode_urls: ["http://d:1"] }
served_model_name: llama
prefill_policy: { type: random }
pd_uncached_token_threshold: 5
intra_node_data_parallel_size: 4
`, want: `listen: 127.0.0.1:3001 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: random # the router's default; without this section, it is kv_aware
tiers:
  - name: default
    model: llama # the name that the workers serve; other names are rejected with 404
    workers:
      - name: worker-0
        url: http://a:1
`, left: `line 1: mode.decode_urls: it applies to prefill and decode workers only, and the mode is another one
line 3: prefill_policy: it applies to prefill and decode workers only
line 4: pd_uncached_token_threshold: it applies to prefill and decode workers only
line 5: intra_node_data_parallel_size: write ranks: N at the worker, with N the number of its data-parallel ranks; without it, the engine chooses the rank
`},
	})
}

// TestHandoverOfPairs: flags, connectors, ports and the program tell how the engines transfer.
func TestHandoverOfPairs(t *testing.T) {
	const workers = " --prefill http://p:1 --decode http://d:1"
	for src, want := range map[string]string{
		"vllm-router" + workers: config.HandoverNIXL,
		"vllm-router --vllm-pd-disaggregation --prefill http://p:1 9 --decode http://d:1":                                              config.HandoverNIXL,
		"vllm-router --vllm-pd-disaggregation --kv-connector nccl" + workers:                                                           config.HandoverP2PNCCL,
		"vllm-router --vllm-discovery-address :1 --kv-connector nixl" + workers:                                                        config.HandoverNIXL,
		"vllm-router --pd-disaggregation" + workers:                                                                                    config.HandoverSGLang,
		"vllm-router --prefill http://p:1 9 --decode http://d:1":                                                                       config.HandoverSGLang,
		"sglang_router" + workers:                                                                                                      config.HandoverSGLang,
		"mode: {type: prefill_decode, prefill_urls: [[\"http://p:1\", 9]], decode_urls: [\"http://d:1\"]}":                             config.HandoverSGLang,
		"mode: {type: vllm_prefill_decode, prefill_urls: [[\"http://p:1\", 9]], decode_urls: \"http://d:1\"}":                          config.HandoverNIXL,
		"mode: {type: vllm_prefill_decode, discovery_address: \"h:1\", prefill_urls: [\"http://p:1\"], decode_urls: [\"http://d:1\"]}": config.HandoverP2PNCCL,
	} {
		got, err := VLLMRouter([]byte(src), Options{Model: "m"})
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		f, err := config.Parse("config.yaml", got.Config, nil)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		p := f.ResolvedPools()[0]
		var roles []string
		for _, w := range p.Workers {
			roles = append(roles, fmt.Sprint(w.Name, " ", w.Role))
		}
		if diff := cmp.Diff([]string{"prefill-0 prefill", "decode-0 decode"}, roles); p.Handover != want || diff != "" {
			t.Errorf("%s: %s, want %s %s", src, p.Handover, want, diff)
		}
	}
	if got, err := VLLMRouter([]byte("vllm-router --pd-disaggregation=false --worker-urls http://a:1"), Options{}); err != nil ||
		strings.Contains(string(got.Config), "handover") {
		t.Errorf("%s %v", got.Config, err)
	}
}
