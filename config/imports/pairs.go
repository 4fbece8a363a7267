package imports

import (
	"cmp"
	"fmt"
	"net"
	neturl "net/url"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/config"
	"tierway/workers"
)

// keysOfPairs are the settings that list prefill and decode workers, in the order of the result.
var keysOfPairs = [...]struct{ key, role string }{
	{"mode.prefill_urls", workers.RolePrefill}, {"prefill", workers.RolePrefill},
	{"prefill_workers", workers.RolePrefill},
	{"mode.decode_urls", workers.RoleDecode}, {"decode", workers.RoleDecode}, {"decode_workers", workers.RoleDecode},
}

func pairRules() map[string]rule {
	rules := map[string]rule{
		"pd_disaggregation": keep("sglang_pairs"), "vllm_pd_disaggregation": keep("vllm_pairs"),
		"kv_connector":   keep("kv_connector"),
		"prefill_policy": keep("prefill_policy"), "mode.prefill_policy": keep("prefill_policy"),
		"decode_policy": keep("decode_policy"), "mode.decode_policy": keep("decode_policy"),
		"vllm_discovery_address": keep("discovery"), "mode.discovery_address": keep("discovery"),
		"intra_node_data_parallel_size": keep("ranks"), "mode.intra_node_data_parallel_size": keep("ranks"),
		"pd_uncached_token_threshold": keep("threshold"), "mode.pd_uncached_token_threshold": keep("threshold"),
		"dp_aware": keep("dp_aware"), "mode.kv_events": stageEvents,
		"prefill_selector": out(noDiscovery), "decode_selector": out(noDiscovery),
		"kv_block_size": out(config.PolicyHint("block_size")),
		"kv_hash_seed":  out("remove it: the events of the engines state the tokens of each block"),
	}
	for _, k := range keysOfPairs {
		rules[k.key] = keep(k.key)
	}
	return rules
}

// stageEvents keeps the threshold of a section kv_events.
func stageEvents(d *builder, s setting) {
	all := s.pairs()
	for _, p := range all {
		if p.name == "pd_uncached_token_threshold" {
			d.kept["threshold"] = p
		}
	}
	if len(all) > 1 || d.kept["threshold"].node == nil {
		d.leave(s, "the engines' events are found without configuration; see docs/kv-events.md")
	}
}

// pairWorker is a prefill or decode worker of the other router.
type pairWorker struct {
	url, role string
	port      string // bootstrap port; empty: none
	from      setting
}

// pairWorkers returns the prefill workers, then the decode workers.
func (d *builder) pairWorkers() (all []pairWorker) {
	for _, k := range keysOfPairs {
		list := d.kept[k.key]
		for _, s := range leaves(list) {
			text, _ := s.text()
			for _, word := range splitList(text) {
				switch last := len(all) - 1; {
				case k.role == workers.RolePrefill && isPort(word) && last >= 0:
					all[last].port = word
				case strings.EqualFold(word, "none"):
				default:
					all = append(all, pairWorker{url: word, role: k.role, from: setting{key: list.key, line: s.line, node: s.node}})
				}
			}
		}
	}
	return all
}

// leaves returns the single values of nested lists, without nulls.
func leaves(s setting) (all []setting) {
	if _, single := s.text(); single && s.node.Tag != "!!null" {
		return []setting{{key: s.key, line: cmp.Or(s.node.Line, s.line), node: s.node}}
	}
	for _, item := range s.items() {
		all = append(all, leaves(item)...)
	}
	return all
}

func isPort(word string) bool { return strings.Trim(word, "0123456789") == "" }

// isPaired reports whether the router serves each request by a prefill and a decode worker. A mode of another kind
// ignores the lists of both.
func (d *builder) isPaired() bool {
	for _, key := range []string{"sglang_pairs", "vllm_pairs"} {
		if text, on := d.kept[key].text(); on && text != "false" {
			return true
		}
	}
	_, mode := d.kept["mode"]
	return d.kept["pairs"].node != nil || !mode && len(d.pairWorkers()) > 0
}

// handover returns the hand-over of the pairs, with the setting that states it. A router that discovers its workers
// uses P2P NCCL, and one with bootstrap ports speaks to SGLang, unless it is told otherwise.
func (d *builder) handover(all []pairWorker) (handover string, from setting) {
	pairs, _ := d.kept["pairs"].text()
	program, _ := d.kept["program"].text()
	vllm := d.kept["vllm_pairs"].node != nil || strings.Contains(pairs, "vllm")
	if s := d.kept["kv_connector"]; s.node != nil {
		switch name, _ := s.text(); name {
		case "nixl":
			return config.HandoverNIXL, s
		case "nccl", "p2p_nccl", "p2p-nccl":
			return config.HandoverP2PNCCL, s
		default:
			d.refuse(s, "prompts cannot be handed over by this connector; start the engines with NixlConnector and write nixl")
		}
	}
	for _, w := range all {
		if !vllm && w.port != "" {
			return config.HandoverSGLang, w.from
		}
	}
	from = d.kept["pairs"]
	for _, key := range []string{"vllm_pairs", "sglang_pairs"} {
		if s := d.kept[key]; s.node != nil {
			from = s
		}
	}
	if from.node == nil && len(all) > 0 {
		from = all[0].from
	}
	switch {
	case !vllm && (d.kept["sglang_pairs"].node != nil || strings.Contains(program, "sglang")):
		return config.HandoverSGLang, from
	case d.kept["discovery"].node != nil:
		return config.HandoverP2PNCCL, d.kept["discovery"]
	}
	return config.HandoverNIXL, from
}

// pairs writes the hand-over of the only tier and its workers.
func (d *builder) pairs(all []pairWorker) {
	handover, from := d.handover(all)
	comment := ""
	if handover == config.HandoverNIXL {
		comment = "the engines' NixlConnector; write p2p_nccl or shared if they have another connector"
	}
	if len(all) == 0 {
		d.leave(from, "it needs prefill and decode workers, and none is listed")
	}
	d.set("handover", handover, from, comment)
	d.stagePolicies()
	d.threshold()
	d.leavePairs(handover)
	count := map[string]int{}
	for _, w := range all {
		if !d.usable(w.url, w.from) {
			continue
		}
		n := count[w.role]
		count[w.role]++
		d.base = fmt.Sprintf("tiers[0].workers[%d].", len(d.servers)-1)
		d.set("name", fmt.Sprintf("%s-%d", w.role, n), w.from, "")
		d.set("url", w.url, w.from, "")
		d.set("role", w.role, w.from, "")
		switch {
		case w.port != "" && handover == config.HandoverSGLang:
			d.set("bootstrap_port", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: w.port}, w.from, "")
		case w.port != "":
			d.leave(w.from, handover+" needs no bootstrap port")
		}
		if handover == config.HandoverP2PNCCL {
			d.set("kv_address", kvAddress(w.url, len(d.servers)-1), w.from, "write the engine's kv_port")
		}
		d.workerKeyVariable(w.url, strings.ToUpper(w.role)+"_"+fmt.Sprint(n))
	}
	d.base = "tiers[0]."
	if handover == config.HandoverP2PNCCL && len(all) > 0 {
		d.leave(setting{key: "kv_address"}, "the file names no KV ports: write the host and the kv_port of each engine's "+
			"--kv-transfer-config in place of the imported ones")
	}
}

// firstKVPort is the kv_port of vLLM's examples.
const firstKVPort = 14579

// kvAddress returns an address in place of that of an engine's kv_port, which no imported setting has. n is the
// worker's number: no two addresses are equal.
func kvAddress(url string, n int) string {
	host := "your-engine"
	if u, err := neturl.Parse(url); err == nil && u.Hostname() != "" && !strings.Contains(url, "${") {
		host = u.Hostname()
	}
	return net.JoinHostPort(host, fmt.Sprint(firstKVPort+n))
}

// stagePolicies writes the policies of both stages. Without one of its own, a stage has the router's policy.
func (d *builder) stagePolicies() {
	decode, prefill := d.kept["decode_policy"], d.kept["prefill_policy"]
	d.stagePolicy("policy", decode)
	d.stagePolicy("prefill_policy", prefill)
	for _, option := range generalOptions { // one that only a stage has
		general := "policy." + option
		_, ofDecode := d.origin[d.base+general]
		_, ofPrefill := d.origin[d.base+"prefill_"+general]
		if (ofDecode || ofPrefill) && d.origin[general].key != "" &&
			!config.PolicyHasOption(d.place("policy.name").Value, option) {
			d.remove(general)
			delete(d.origin, general)
		}
	}
	if general := valueIn(&d.root, "policy"); decode.node != nil && prefill.node == nil && general != nil {
		*d.place("tiers[0].prefill_policy") = *general
		d.origin["tiers[0].prefill_policy.name"] = d.origin["policy.name"]
	}
}

// stagePolicy writes a policy of the tier: a section of the YAML file, or a flag, whose options are those of the
// general policy.
func (d *builder) stagePolicy(section string, s setting) {
	rules := policyRules(section)
	rules["pd_uncached_token_threshold"], rules["kv_events"] = keep("threshold"), stageEvents
	if name, single := s.text(); single {
		rules["type"](d, s)
		general := cmp.Or(valueIn(&d.root, "policy"), new(yaml.Node))
		for _, option := range generalOptions {
			set, _ := policyOf(name)
			if value := valueIn(general, option); value != nil && config.PolicyHasOption(set, option) {
				d.set(join(section, option), value, d.origin[join("policy", option)], "")
			}
		}
		return
	}
	if kind := s.at("type"); kind.node != nil {
		rules["type"](d, kind)
	}
	rules["type"] = func(*builder, setting) {}
	if _, named := d.origin[d.base+section+".name"]; named { // else its reason is listed
		d.walk(rules, "", setting{key: s.key, line: s.line, node: s.node})
	}
}

// generalOptions are the options that flags set for the policies of all stages.
var generalOptions = [...]string{
	"cache_threshold", "balance_abs_threshold", "balance_rel_threshold", "eviction_interval", "max_tree_size", "virtual_nodes",
}

// valueIn returns the value of a key of a section; nil without one.
func valueIn(section *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(section.Content); i += 2 {
		if section.Content[i].Value == name {
			return section.Content[i+1]
		}
	}
	return nil
}

// threshold writes uncached_threshold. 0 turns hand-overs off here, but not in the router.
func (d *builder) threshold() {
	s := d.kept["threshold"]
	switch text, _ := s.text(); {
	case s.node == nil:
	case strings.Trim(text, "0") == "":
		d.leave(s, "here, 0 would leave each request to its decode worker; without uncached_threshold, expected times decide")
	default:
		to("uncached_threshold", "", "requests with fewer uncached tokens stay on their decode worker")(d, s)
	}
}

// leavePairs lists the settings that pairs do not have.
func (d *builder) leavePairs(handover string) {
	d.leaveKept("worker_urls", "the router sends nothing to it beside prefill and decode workers")
	d.leaveKept("discovery", "workers are not discovered: list each under workers with its role and url, and with "+
		"handover: p2p_nccl the host and port of its kv_port as kv_address")
	if s := d.kept["ranks"]; s.node != nil {
		if text, _ := s.text(); text != "1" {
			d.leave(s, "ranks cannot hand prompts over by "+handover+"; start each rank as a server, and list it as a worker")
		}
	}
	if s := d.kept["dp_aware"]; s.node != nil {
		out("ranks cannot hand prompts over; start each rank as a server, and list it as a worker")(d, s)
	}
}

// leaveUnpaired lists the settings that only pairs have, of a router without pairs.
func (d *builder) leaveUnpaired() {
	const reason = "it applies to prefill and decode workers only"
	for _, key := range []string{"prefill_policy", "decode_policy", "kv_connector", "threshold"} {
		d.leaveKept(key, reason)
	}
	for _, k := range keysOfPairs {
		d.leaveKept(k.key, reason+", and the mode is another one")
	}
	d.leaveKept("discovery", noDiscovery)
	for _, key := range []string{"ranks", "dp_aware"} {
		if s := d.kept[key]; s.node != nil {
			out(noRanks)(d, s)
		}
	}
}
