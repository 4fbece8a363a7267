package config

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Workers of the tests: a prefill and a decode worker for each hand-over.
const (
	ofPrefill, ofDecode = "p, role: prefill", "d, role: decode"
	kvPrefill           = ofPrefill + ", kv_address: 10.0.0.1:14579"
	kvDecode            = ofDecode + ", kv_address: 10.0.0.2:14579"
)

// noWhole is the warning of a tier in which every engine serves one stage.
const noWhole = `warning: tiers[0].workers: no worker serves whole requests, so those that must stay on one worker are rejected, ` +
	`such as n > 1; docs/disaggregation.md lists them (add a worker with role: both, whose engine is started without a connector)`

// positionOf matches the line and column of a problem.
var positionOf = regexp.MustCompile(`^\d+:\d+: `)

// TestHandoversAreChecked: every problem names the key, the value and the way out.
func TestHandoversAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"nixl":   {handedOver("handover: nixl", ofPrefill, ofDecode), nil},
		"shared": {handedOver("handover: shared\n  engine: vllm", ofPrefill, ofDecode, "b"), nil},
		"p2p":    {handedOver("handover: p2p_nccl", kvPrefill, kvDecode, "b"), nil},
		"sglang": {handedOver("handover: sglang\n  engine: sglang", ofPrefill+", bootstrap_port: 9000", ofDecode, "b"), nil},
		"mixed workers": {handedOver("handover: nixl\n  uncached_threshold: 2000\n  handover_lease: 1m", "a",
			"b, role: both"), nil},

		"without a hand-over": {handedOver("prefill_policy: {name: random}\n  uncached_threshold: 0\n  handover_lease: 30s",
			ofPrefill, "d, role: both", "b, bootstrap_port: 1", "c, kv_address: \"h:1\""), []string{
			`tiers[0].prefill_policy: has no effect without handover (set tiers[0].handover, or remove the key)`,
			`tiers[0].uncached_threshold: has no effect without handover (set tiers[0].handover, or remove the key)`,
			`tiers[0].handover_lease: has no effect without handover (set tiers[0].handover, or remove the key)`,
			`tiers[0].workers[0].role: "prefill" has no effect without handover of the tier (set tiers[0].handover, or remove the key)`,
			`tiers[0].workers[1].role: "both" has no effect without handover of the tier (set tiers[0].handover, or remove the key)`,
			`tiers[0].workers[2].bootstrap_port: 1 has no effect without handover of the tier (set tiers[0].handover, or remove the key)`,
			`tiers[0].workers[3].kv_address: "h:1" has no effect without handover of the tier (set tiers[0].handover, or remove the key)`,
		}},
		"a mistyped hand-over": {handedOver("handover: nixel\n  uncached_threshold: 0", ofPrefill, ofDecode), []string{
			`tiers[0].handover: want one of nixl, p2p_nccl, shared, sglang, got "nixel" (did you mean nixl?)`,
		}},
		"a mistyped role": {handedOver("handover: nixl", "p, role: prefil", ofDecode), []string{
			`tiers[0].workers[0].role: want one of prefill, decode, both, got "prefil" (did you mean prefill?)`,
		}},
		"values": {handedOver("handover: p2p_nccl\n  uncached_threshold: -1\n  handover_lease: 0s", "p, role: prefill, kv_address: h",
			"d, role: decode, kv_address: \"h:0\"", "b, bootstrap_port: 0"), []string{
			`tiers[0].uncached_threshold: want an integer of 0 or more, got "-1"`,
			`tiers[0].handover_lease: want a duration above 0, got "0s"`,
			`tiers[0].workers[0].kv_address: "h" is not host:port (write the address of the engine's kv_port, such as 10.0.0.1:14579)`,
			`tiers[0].workers[1].kv_address: "h:0" is not host:port (write the address of the engine's kv_port, such as 10.0.0.1:14579)`,
			`tiers[0].workers[2].bootstrap_port: want an integer from 1 to 65535, got "0"`,
		}},
		"a policy without its header": {handedOver("handover: nixl\n  prefill_policy: {name: consistent_hash, key: header}",
			ofPrefill, ofDecode), []string{
			`tiers[0].prefill_policy.key_header: missing (write the name of the header that determines the worker)`,
		}},
		"a policy that is a word": {handedOver("handover: nixl\n  prefill_policy: random", ofPrefill, ofDecode), []string{
			`tiers[0].prefill_policy: want a section of keys, got a single value (write { name: random })`,
		}},

		"a hosted engine": {handedOver("handover: nixl\n  engine: openai", ofPrefill, ofDecode), []string{
			`tiers[0].engine: "openai" cannot hand prompts over by nixl, which is a transfer of vLLM (write engine: vllm, or remove handover)`,
		}},
		"another engine": {handedOver("handover: sglang\n  engine: vllm", ofPrefill, ofDecode, "b"), []string{
			`tiers[0].engine: "vllm" cannot hand prompts over by sglang, which is a transfer of SGLang (write engine: sglang, or remove handover)`,
		}},
		"fields of clients": {handedOver("handover: nixl\n  allow_fields: [kv_transfer_params, vllm_xargs, bootstrap_room, "+
			"routed_dp_rank]", ofPrefill, ofDecode), []string{
			`tiers[0].allow_fields[0]: "kv_transfer_params" of a client could name the caches of other requests (remove it, or remove handover)`,
			`tiers[0].allow_fields[2]: "bootstrap_room" of a client could name the caches of other requests (remove it, or remove handover)`,
			`tiers[0].allow_fields[3]: "routed_dp_rank" of a client could name the caches of other requests (remove it, or remove handover)`,
		}},
		"no answers to generate": {keys + `pools: [{name: e, model: m, serves: [embeddings], handover: nixl, workers: [` +
			`{name: p, url: "http://h:1", role: prefill}, {name: d, url: "http://h:2"}]}]` + "\n", []string{
			`pools[0].handover: has no effect: the pool serves no chat, completions, responses or messages (remove the key, or add one of them to serves)`,
		}},
		"sockets and ranks": {keys + `tiers: [{name: t, model: m, handover: nixl, workers: [` +
			`{name: p, url: "unix:///run/a.sock", role: prefill}, {name: d, url: "http://h:1@1", role: decode}, ` +
			`{name: e, url: "http://h:2", ranks: 2}]}]` + "\n", []string{
			`tiers[0].workers[0].url: "unix:///run/a.sock" is a Unix socket, but engines with handover exchange caches over the network (write http://host:port, or remove handover of the tier or pool)`,
			`tiers[0].workers[1].url: "http://h:1@1" is a rank, and ranks cannot hand prompts over (write the URL of a server without data-parallel ranks, or remove handover of the tier or pool)`,
			`tiers[0].workers[2].ranks: 2 ranks cannot hand prompts over (remove the key, so that the engine chooses the rank, or remove handover of the tier or pool)`,
		}},
		"keys of other hand-overs": {handedOver("handover: nixl", ofPrefill+", bootstrap_port: 9000", kvDecode), []string{
			`tiers[0].workers[0].bootstrap_port: 9000 applies only to handover: sglang, but it is nixl (remove the key)`,
			`tiers[0].workers[1].kv_address: "10.0.0.2:14579" applies only to handover: p2p_nccl, but it is nixl (remove the key)`,
		}},
		"keys of other roles": {handedOver("handover: sglang", ofPrefill, ofDecode+", bootstrap_port: 9000", "b"), []string{
			`tiers[0].workers[1].bootstrap_port: 9000 applies only to role: prefill, but it is decode (remove the key)`,
		}},
		"an address of a whole worker": {handedOver("handover: p2p_nccl", kvPrefill, kvDecode, "b, kv_address: \"h:1\""), []string{
			`tiers[0].workers[2].kv_address: "h:1" applies only to role: prefill and role: decode, but it is both (remove the key)`,
		}},
		"missing addresses": {handedOver("handover: p2p_nccl", ofPrefill, kvDecode, "b"), []string{
			`tiers[0].workers[0].kv_address: missing, but the role is prefill and handover is p2p_nccl (add kv_address: host:port of the engine's kv_port)`,
		}},
		"one address twice": {handedOver("handover: p2p_nccl", kvPrefill, ofDecode+", kv_address: 10.0.0.1:14579", "b"), []string{
			`tiers[0].workers[1].kv_address: "10.0.0.1:14579" is already the address at tiers[0].workers[0].kv_address (write the address of this worker's own engine)`,
		}},

		"only prefill workers": {handedOver("handover: nixl", ofPrefill, "d, role: decode, weight: 0"), []string{
			`tiers[0].workers: no worker with a weight above 0 has the role decode or both, so none generates answers (set role: decode or both at one of them)`,
		}},
		"no pairs": {handedOver("handover: sglang", ofDecode, "b, role: decode"), []string{
			`tiers[0].workers: workers with role decode need a worker that computes prompts, and there is none (add a worker with role: prefill, or one with role: both)`,
		}},
		"only whole requests without a worker for them": {handedOver("handover: sglang\n  uncached_threshold: 0", ofPrefill,
			ofDecode), []string{
			`warning: tiers[0].uncached_threshold: has no effect with handover: sglang, because the role of the selected worker decides (remove the key)`,
		}},
		"no whole requests": {handedOver("handover: p2p_nccl", kvPrefill, kvDecode), []string{noWhole}},
		"no prefill worker": {handedOver("handover: nixl", ofDecode, "e, role: decode"), []string{
			`warning: tiers[0].handover: no worker can compute prompts for another one, so one worker serves each request (add a worker with role: prefill, or remove handover)`,
		}},
		"one worker for both": {handedOver("handover: nixl", "b"), []string{
			`warning: tiers[0].handover: no worker can compute prompts for another one, so one worker serves each request (add a worker with role: prefill, or remove handover)`,
		}},
		"prefill workers without work": {handedOver("handover: sglang", ofPrefill, "b"), []string{
			`warning: tiers[0].handover: no worker can compute prompts for another one, so one worker serves each request (add a worker with role: decode, or remove handover)`,
		}},
		"one bootstrap server": {strings.Replace(handedOver("handover: sglang", ofPrefill, "p2, role: prefill", ofDecode, "b"),
			"http://h1:1", "http://h0:2", 1), []string{
			`warning: tiers[0].workers[1].bootstrap_port: "h0:8998" is already the bootstrap server of ` +
				`tiers[0].workers[0].bootstrap_port (write the port of this worker's own --disaggregation-bootstrap-port)`,
		}},
		"all requests are local": {handedOver("handover: nixl\n  uncached_threshold: 0", ofPrefill, ofDecode), []string{
			`warning: tiers[0].uncached_threshold: 0 leaves each request to one worker, so workers with role prefill receive none (raise it, or remove the key)`,
		}},

		"models of one stage": {handedOver("handover: nixl\n  models: [lora, other]", "p, role: prefill, models: [m, other]",
			"d, role: decode, models: [m, lora]"), []string{
			`warning: tiers[0].models[0]: of the workers that serve "lora", no worker can compute prompts for another one, so one worker serves each request (list it in the models of a worker with role: prefill)`,
			`tiers[0].models[1]: of the workers that serve "other", no worker with a weight above 0 has the role decode or both, so none generates answers (list it in the models of a worker with role: decode or both)`,
		}},
		"models in pairs only": {handedOver("handover: sglang\n  models: [lora]", ofPrefill, ofDecode, "b, models: [m]"), []string{
			`warning: tiers[0].models[0]: of the workers that serve "lora", no worker serves whole requests, so those that must stay on one worker are rejected, such as n > 1; docs/disaggregation.md lists them (list it in the models of a worker with role: both)`,
		}},
		"a region without prefill workers": {handedOver("handover: nixl", ofPrefill+", region: us", ofDecode+", region: us",
			"e, role: decode, region: eu") + "region: us\n", []string{
			`warning: tiers[0].workers[2].region: no worker of the region "eu" computes prompts, so caches would cross regions (add a worker with role: prefill to the region, or write a tier or pool for each region)`,
		}},
		"servers of two models": {handedOver("handover: p2p_nccl", kvPrefill, kvDecode, "b") +
			`- {name: u, model: n, handover: p2p_nccl, workers: [` +
			`{name: p2, url: "http://h0:1", role: prefill, kv_address: 10.0.0.1:14579}, ` +
			`{name: d2, url: "http://h1:1", role: decode, kv_address: 10.0.0.2:14579}, {name: b2, url: "http://h3:1"}]}` + "\n",
			[]string{
				`warning: tiers[1].workers[0].url: "http://h0:1" is also the server of tiers[0].workers[0].url: limits such as max_inflight apply to each entry separately (divide the server's capacity among its entries)`,
				`warning: tiers[1].workers[1].url: "http://h1:1" is also the server of tiers[0].workers[1].url: limits such as max_inflight apply to each entry separately (divide the server's capacity among its entries)`,
			}},
		"keys at the file": {handedOver("handover: nixl", ofPrefill, ofDecode) + "handover: nixl\nprefill_policy: {name: random}\n" +
			"decode_policy: {name: random}\npd_uncached_token_threshold: 5\n", []string{
			`handover: unknown key (write it at a tier or pool)`,
			`prefill_policy: unknown key (write it at a tier or pool with handover)`,
			`decode_policy: unknown key (write policy at the tier or pool: it is the decode stage's)`,
			`pd_uncached_token_threshold: unknown key (write uncached_threshold at a tier or pool with handover)`,
		}},
		"one server in two roles": {keys + `tiers: [{name: t, model: m, handover: sglang, workers: [` +
			`{name: p, url: "http://h:1", role: prefill}, {name: d, url: "http://h:2", role: decode}, {name: b, url: "http://h:3"}]}, ` +
			`{name: u, model: n, workers: [{name: e, url: "http://h:2"}]}]` + "\n", []string{
			`tiers[1].workers[0].role: the engine of tiers[0].workers[1] serves only the role decode, as its handover is sglang, but tiers[1].workers[0] differs (write the same handover and role at both, or remove one of the workers)`,
			`warning: tiers[1].workers[0].url: "http://h:2" is also the server of tiers[0].workers[1].url: limits such as max_inflight apply to each entry separately (divide the server's capacity among its entries)`,
		}},
	} {
		got := problemsOf(t, c.src, nil)
		for i := range got {
			got[i] = positionOf.ReplaceAllString(got[i], "")
		}
		if diff := cmp.Diff(append([]string{}, c.want...), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
