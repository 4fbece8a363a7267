package imports

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func continuumRules() map[string]rule {
	total := toAll("", "timeouts.total.interactive", "timeouts.total.background", "timeouts.total.batch")
	return map[string]rule{
		"server.bind_address":         keep("bind_address"),
		"server.workers":              out("the gateway uses all processors; GOMAXPROCS limits them"),
		"server.connection_pool_size": out("connections to workers are kept as needed"),
		"server.socket_mode":          out("the gateway listens on TCP only"),

		"selection_strategy": policyName("policy.name"), "routing.strategy": customStrategy,
		"routing.fallback_strategy": keep("fallback_strategy"),
		"routing.model_overrides":   keep("model_overrides"), "routing.rules": keep("rules"),

		"prefix_routing.enabled":                           outIfOff("the section has no switch; remove policy.epsilon and the other options of chwbl"),
		"prefix_routing.max_prefix_length":                 keep("max_prefix_length"),
		"prefix_routing.load_factor_epsilon":               keep("load_factor_epsilon"),
		"prefix_routing.virtual_nodes":                     keep("virtual_nodes"),
		"prefix_routing.anthropic_cache_control_injection": out("write inject_cache_control: true at the tier or pool"),

		"backends": keep("backends"),

		"health_checks.enabled":             setIf("false", "health.path", "off", ""),
		"health_checks.endpoint":            to("health.path", "", ""),
		"health_checks.interval":            to("health.interval", "", ""),
		"health_checks.timeout":             to("health.timeout", "", ""),
		"health_checks.unhealthy_threshold": to("health.down_after", "", ""),
		"health_checks.healthy_threshold":   to("health.up_after", "", ""),
		"dynamic_weight_adjustment.enabled": to("health_weight.enabled", "", ""),
		"dynamic_weight_adjustment.degraded_weight_factor": to("health_weight.factor", "",
			"at the success ratio degraded; in between, the weight follows the ratio"),
		"geographic_routing.detect_client_region":    out("write regions.header, a header of trusted_proxies, or region of the gateway"),
		"geographic_routing.fallback_to_nearest":     outIfOff("it cannot be turned off: farther regions are used while all nearer workers are busy"),
		"geographic_routing.latency_based_selection": outIfOff("it cannot be turned off: regions without regions.order are ordered by latency"),

		"request.timeout":           total,
		"request.max_retries":       attempts(1),
		"retry.max_attempts":        attempts(0),
		"retry.base_delay":          out(noBackoff),
		"retry.max_delay":           out(noBackoff),
		"retry.exponential_backoff": out(noBackoff),
		"retry.jitter":              out(noBackoff),
		"cache":                     out(noCache),
		"logging.level":             logLevel,
		"logging.format":            out("logs are JSON lines"),
		"model_metadata_file":       out("write context and price at the tier or pool"),
		"rate_limiting":             out("write limits at the tenants"),
		"api_keys":                  out("create keys with tierway keys create; the file has digests only"),
		"global_prompts":            out("the gateway does not change prompts; add the prompt in the client"),
	}
}

// backendRules are the rules for the keys of a backend. The base is its worker.
func backendRules() map[string]rule {
	ignore := func(*builder, setting) {}
	return map[string]rule{
		"name": ignore, "url": ignore, "models": ignore,
		"weight":                 to("weight", "", ""),
		"priority":               to("priority", "", "higher numbers are used only while all lower ones are unavailable"),
		"api_key":                backendKey,
		"health_check.interval":  to("health.interval", "", ""),
		"health_check.timeout":   to("health.timeout", "", ""),
		"region":                 to("region", "", ""),
		"health_score_threshold": out("write health_weight.healthy and health_weight.degraded, for all workers of a tier or pool"),
		"type":                   out("the engine is detected; write engine at the tier or pool to set it"),
		"retry_override":         out("write retry, which applies to all workers"),
		"model_configs":          out("write context and price at the tier or pool"),
		"org_id":                 out("the gateway adds no such header; use a worker key of that organization"),
	}
}

// conditionRules are the rules for the conditions of a routing rule. The base is its entry of policy_rules.
func conditionRules() map[string]rule {
	return map[string]rule{
		"model": to("model", "", ""), "stream": to("stream", "", ""),
		"max_tokens.greater_than": to("max_tokens.above", "", ""),
	}
}

// backendKey names the variable of a worker's key after the worker.
func backendKey(d *builder, s setting) {
	name := d.place(d.base + "name").Value
	d.keyVariable(s, strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace("key_"+name)))
}

// customStrategy keeps the name of a strategy; Custom has its policies in the rules.
func customStrategy(d *builder, s setting) {
	if text, _ := s.text(); text != "Custom" {
		policyName("policy.name")(d, s)
	}
}

// continuumComments state what differs in a policy.
var continuumComments = map[string]string{
	"least_latency": "time to first event of streams, multiplied by the requests in flight",
	"chwbl":         "the prefix that the traffic shares; depth: fixed uses the first turn only",
}

// Continuum translates a configuration of Continuum Router.
func Continuum(src []byte, o Options) (Result, error) {
	root, err := readYAML(src)
	if err != nil {
		return Result{}, err
	}
	d := newBuilder(continuumComments)
	d.walk(continuumRules(), "", root)
	rules := d.rules()
	d.defaultPolicy()
	d.prefixOptions(rules)
	d.bind()
	if err := d.backends(o); err != nil {
		return Result{}, err
	}
	return d.finish("continuum")
}

// bind writes the first address of server.bind_address that is not a socket file.
func (d *builder) bind() {
	from, address, comment := setting{key: "server.bind_address"}, "0.0.0.0:8080", "the router's default"
	found := false
	for _, s := range d.urlSettings(d.kept["bind_address"]) {
		switch text, _ := s.text(); {
		case strings.HasPrefix(text, "unix:"):
			d.leave(s, "the gateway listens on TCP only")
		case found:
			d.leave(s, "the gateway listens on one address; write listen: :PORT for every interface")
		default:
			from, address, comment, found = s, text, "", true
		}
	}
	d.listen(address, from, comment)
}

// defaultPolicy writes the policy of requests that match no rule: that of the strategy, else the fallback.
func (d *builder) defaultPolicy() {
	_, written := d.origin["policy.name"]
	fallback := d.kept["fallback_strategy"]
	switch {
	case written && fallback.node != nil:
		policyName("policy.fallback")(d, fallback)
	case written:
	case fallback.node != nil:
		policyName("policy.name")(d, fallback)
	case !d.leftOut("selection_strategy", "routing.strategy"):
		d.set("policy.name", "round_robin", setting{key: "selection_strategy"},
			"the router's default; without this section, it is kv_aware")
	}
}

// prefixOptions writes prefix_routing into the policies that hash prefixes, of the file and of its rules.
func (d *builder) prefixOptions(rules int) {
	sections := []string{"policy."}
	for i := range rules {
		sections = append(sections, fmt.Sprintf("policy_rules[%d].policy.", i))
	}
	for _, option := range []struct{ from, to, comment string }{
		{"max_prefix_length", "max_prefix_length", ""},
		{"load_factor_epsilon", "epsilon", "policy.slack applies too"},
		{"virtual_nodes", "virtual_nodes", "for each unit of weight"},
	} {
		s, used := d.kept[option.from], false
		for _, at := range sections {
			if s.node != nil && (d.is(at+"name", "chwbl") || d.is(at+"fallback", "chwbl")) {
				to(at+option.to, "", option.comment)(d, s)
				used = true
			}
		}
		if s.node != nil && !used {
			d.leave(s, "no policy of the file hashes prefixes")
		}
	}
}

// is reports whether a setting has been written with that value.
func (d *builder) is(path, value string) bool {
	_, written := d.origin[path]
	return written && d.place(path).Value == value
}

// rules writes model_overrides and rules as policy_rules, and returns their number. Rules come first, because
// their conditions are narrower.
func (d *builder) rules() (n int) {
	for _, r := range d.kept["rules"].items() {
		condition, strategy := r.at("condition"), r.at("strategy")
		if text, _ := condition.at("default").text(); text == "true" {
			policyName("policy.name")(d, strategy)
		} else if d.writable(r, condition, strategy) {
			d.base = fmt.Sprintf("policy_rules[%d].", n)
			d.walk(conditionRules(), "", condition)
			policyName("policy.name")(d, strategy)
			n++
		}
		d.base = ""
	}
	for _, o := range d.kept["model_overrides"].pairs() {
		if d.writable(o, setting{}, o) {
			d.base = fmt.Sprintf("policy_rules[%d].", n)
			d.set("model", o.name, o, "")
			policyName("policy.name")(d, o)
			n++
		}
		d.base = ""
	}
	return n
}

// writable reports whether all conditions and the strategy of a rule are known. A rule without one of its
// conditions would apply to more requests, so it is left out as a whole.
func (d *builder) writable(r, condition, strategy setting) bool {
	probe := newBuilder(nil)
	probe.walk(conditionRules(), "", condition)
	policyName("policy.name")(probe, strategy)
	if len(probe.left) == 0 && probe.err == nil {
		return true
	}
	if probe.err != nil {
		d.leave(r, probe.err.Error())
	} else if first := probe.left[0]; first.Key == r.key {
		d.leave(r, first.Reason)
	} else {
		d.leave(r, first.Key+": "+first.Reason)
	}
	return false
}

// backends writes one tier or pool with a worker for each backend. Workers with fewer models than the pool
// list them.
func (d *builder) backends(o Options) error {
	list := d.kept["backends"].items()
	models := distinct(list)
	single := len(models) <= 1
	var usable []setting
	for _, b := range list {
		url := b.at("url")
		text, _ := url.text()
		if kind, _ := b.at("type").text(); text == "" && kind == "openai" {
			text = "https://api.openai.com"
		}
		if d.usable(text, setting{key: b.key + ".url", line: cmp.Or(url.line, b.line)}) {
			b.name = text
			usable = append(usable, b)
		}
	}
	if len(usable) == 0 {
		return errors.Join(append([]error{errors.New("the file has no backend that can be imported")}, reasons(d.left)...)...)
	}
	d.base = "pools[0]."
	from := d.kept["backends"]
	switch {
	case single:
		d.base = "tiers[0]."
		d.set("name", "default", from, "")
		var named setting
		if len(models) == 1 {
			named = setting{key: "models", line: from.line, node: scalar(models[0])}
		}
		d.model(o, from, named)
	default:
		d.set("name", "default", from, "one pool; docs/tiers.md describes tiers of models")
		d.set("models", models, from, "")
		d.set("serves", []string{"chat", "completions", "responses", "messages", "embeddings"}, from,
			"kinds of request; remove what the models do not serve")
	}
	pool := d.base
	for i, b := range usable {
		d.base = fmt.Sprintf("%sworkers[%d].", pool, i)
		text, _ := b.at("name").text()
		name, comment := d.nameOf(cmp.Or(text, "worker-"+strconv.Itoa(i))), ""
		if name != text && text != "" {
			comment = "names are unique and in lower case"
		}
		d.set("name", name, b, comment)
		d.set("url", b.name, b, "")
		own := distinct([]setting{b})
		switch {
		case single || len(own) == len(models):
		case len(own) == 0:
			d.leave(b, "the backend lists no models, so the worker serves all of the pool; write models at the worker")
		default:
			d.set("models", own, b.at("models"), "")
		}
		d.walk(backendRules(), "", b)
	}
	d.base = ""
	return nil
}

// distinct returns the models of backends, in their order, each once.
func distinct(list []setting) (models []string) {
	for _, b := range list {
		for _, m := range b.at("models").items() {
			if text, ok := m.text(); ok && !slices.Contains(models, text) {
				models = append(models, text)
			}
		}
	}
	return models
}
