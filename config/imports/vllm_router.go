package imports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"tierway/config"
)

// Reasons that several keys share.
const (
	noCache     = "write response_cache at a tier or pool; see docs/response-cache.md"
	noDiscovery = "workers are not discovered; list them under workers, and reload the file when they change"
	noBackoff   = "a retry follows at once, on another worker; a worker that returns 429 or 503 receives no requests for " +
		"its Retry-After"
	noRanks = "write ranks: N at the worker, with N the number of its data-parallel ranks; without it, the engine " +
		"chooses the rank"
	noTokenizer = "write policy.tokenizer with the path of a tokenizer.json; without it, the engines tokenize"
)

// vllmRules are the rules by the keys of the fork's YAML. flagKey translates flags to them.
func vllmRules() map[string]rule {
	rules := map[string]rule{
		"host": keep("host"), "port": keep("port"),
		"metrics.host": keep("metrics.host"), "metrics.port": keep("metrics.port"),
		"mode.type": vllmMode, "mode.worker_urls": keep("worker_urls"),
		"api_key": keep("api_key"), "worker_api_keys": keep("worker_api_keys"),
		"api_keys": keep("api_keys"), "inbound_api_key": keep("inbound_api_key"), "admin_api_key": keep("admin_api_key"),
		"served_model_name": keep("served_model_name"), "model_path": keep("model_path"), "model_rules": keep("model_rules"),

		"max_payload_size": to("max_body_bytes", "", "bytes, after decompression; see also queue.max_bytes"),
		"request_timeout_secs": toAll("s", "timeouts.total.interactive", "timeouts.total.background",
			"timeouts.total.batch"),
		"queue_size": to("queue.max_depth", "", "for each class of each pool"),
		"queue_timeout_secs": toAll("s", "queue.max_wait.interactive", "queue.max_wait.background",
			"queue.max_wait.batch"),
		"engine_wait_timeout_secs": to("queue.engine_wait", "s", ""),
		"max_concurrent_requests": out("requests wait for workers only; write max_inflight at the workers, or " +
			"limits.concurrent at a tenant"),
		"rate_limit_tokens_per_second": out("write limits.rps at a tenant"),
		"cors_allowed_origins":         toList("cors.origins"),

		"retry.max_retries":                     attempts(0),
		"disable_retries":                       disableRetries,
		"retry.initial_backoff_ms":              out(noBackoff),
		"retry.max_backoff_ms":                  out(noBackoff),
		"retry.backoff_multiplier":              out(noBackoff),
		"retry.jitter_factor":                   out(noBackoff),
		"circuit_breaker.failure_threshold":     to("breaker.consecutive_failures", "", "breaker.failure_ratio applies too"),
		"circuit_breaker.success_threshold":     to("breaker.probes", "", "successful probes, and probes at a time"),
		"circuit_breaker.timeout_duration_secs": to("breaker.open_for", "s", "a passed health check can end it"),
		"circuit_breaker.window_duration_secs":  to("breaker.window", "s", "of breaker.failure_ratio"),
		"disable_circuit_breaker": out("the breaker cannot be turned off; write breaker: { consecutive_failures: 1000, " +
			"failure_ratio: 1 }"),

		"health_check.endpoint":            to("health.path", "", ""),
		"health_check.check_interval_secs": to("health.interval", "s", ""),
		"health_check.interval_secs":       to("health.interval", "s", ""),
		"health_check.timeout_secs":        to("health.timeout", "s", ""),
		"health_check.failure_threshold":   to("health.down_after", "", ""),
		"health_check.success_threshold":   to("health.up_after", "", ""),
		"disable_health_check":             disableHealth,

		"log_level": logLevel,
		"log_dir":   out("the log goes to standard error; redirect it to a file"),
		"request_id_headers": out("a request's id is X-Request-ID; a proxy in front of the gateway can copy another header " +
			"to it"),
		"expose_routing_headers":            to("routing_headers", "", "X-Routed-To, X-Route-Reason and others"),
		"decision_log.export_path":          to("decisions.file", "", "one record for each request; see docs/operations.md"),
		"decision_log.export_interval_secs": out("records are written as requests end"),
		"decision_log.include_request_text": out("records never contain the text of requests"),
		"trace_config.otlp_traces_endpoint": out("write telemetry.otlp with the collector's address for OTLP over HTTP, " +
			"such as http://127.0.0.1:4318"),
		"trace_config.sampling_ratio": to("telemetry.sample", "", ""),
		"trace_config.excluded_paths": out("the gateway has no such list; drop these traces in the collector"),

		"worker_startup_timeout_secs":        out("the gateway starts without its workers, and health checks find them"),
		"worker_startup_check_interval":      out("health.interval applies at the start too"),
		"worker_startup_check_interval_secs": out("health.interval applies at the start too"),
		"enable_igw":                         out("write one tier or pool for each model, with its workers"),
		"tokenizer_path":                     out(noTokenizer),
		"tokenizer_model_map":                out(noTokenizer),
		"api_key_validation_urls":            out("keys are checked by the gateway; create them with tierway keys create"),
		"service_discovery":                  out(noDiscovery), "discovery": out(noDiscovery), "selector": out(noDiscovery),
		"service_discovery_port": out(noDiscovery), "service_discovery_namespace": out(noDiscovery),
		"semantic_cache": out(noCache), "cache": out(noCache), "prompt_cache": out("remove it: kv_aware remembers the tokens of prompts"),
		"semantic_cluster":  out("write rules under classifier to choose a tier by the text of a request"),
		"pre_routing_hooks": hookList,
		"tls_cert_path":     out("write tls: { cert: FILE, key: FILE }, and remove insecure"),
		"tls_key_path":      out("write tls: { cert: FILE, key: FILE }, and remove insecure"),
		"config_file": func(d *builder, s setting) {
			d.refuse(s, "import that file instead of the command line")
		},
	}
	for key, apply := range policyRules("policy") {
		rules["policy."+key] = apply
	}
	maps.Copy(rules, pairRules())
	return rules
}

// policyRules are the rules of a policy section of the fork's YAML, which is written to a section of config.yaml.
func policyRules(section string) map[string]rule {
	at := func(key string) string { return section + "." + key }
	rules := map[string]rule{
		"type": policyName(at("name")), "fallback_policy": policyName(at("fallback")),
		"cache_threshold":          to(at("cache_threshold"), "", ""),
		"balance_abs_threshold":    to(at("balance_abs_threshold"), "", ""),
		"balance_rel_threshold":    to(at("balance_rel_threshold"), "", ""),
		"eviction_interval_secs":   to(at("eviction_interval"), "s", ""),
		"max_tree_size":            to(at("max_tree_size"), "", "blocks of prompts, for each worker"),
		"virtual_nodes":            to(at("virtual_nodes"), "", "for each unit of weight"),
		"controller_url":           to(at("controller_url"), "", ""),
		"poll_interval_secs":       to(at("poll_interval"), "s", ""),
		"cache_weight":             to(at("cache_weight"), "", "that of the load is one minus it"),
		"controller_timeout_ms":    to(at("controller_timeout"), "ms", "a look-up takes 200ms at most"),
		"lookup_mode":              to(at("mode"), "", ""),
		"controller_api_key":       controllerKey(at("controller_api_key_env")),
		"lmcache_worker_map":       workerMap(at("lmcache_worker_map")),
		"load_check_interval_secs": out("loads are the gateway's own counts, which are always current"),
	}
	for _, key := range []string{"block_size", "enable_speculative", "speculative_ttl_ms", "model_path", "kv_events"} {
		rules[key] = out(config.PolicyKeyInstead(key))
	}
	return rules
}

// flagKey returns the key of the fork's YAML with the meaning of a flag.
func flagKey(flag string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(flag, "--"), "router-"), "-", "_")
	switch name {
	case "policy":
		return "policy.type"
	case "mode":
		return "mode.type"
	case "worker_urls":
		return "mode.worker_urls"
	case "cache_threshold", "balance_abs_threshold", "balance_rel_threshold", "eviction_interval_secs", "max_tree_size":
		return "policy." + name
	case "eviction_interval":
		return "policy.eviction_interval_secs"
	}
	if key, ok := lmcacheFlags()[name]; ok {
		return "policy." + key
	}
	for _, section := range [][2]string{{"retry_", "retry."}, {"cb_", "circuit_breaker."}, {"prometheus_", "metrics."},
		{"health_check_", "health_check."}, {"health_", "health_check."}} {
		if rest, ok := strings.CutPrefix(name, section[0]); ok {
			return section[1] + rest
		}
	}
	return name
}

// vllmMode keeps the mode.
func vllmMode(d *builder, s setting) {
	d.kept["mode"] = s
	switch mode, _ := s.text(); {
	case mode == "regular":
	case strings.Contains(mode, "prefill") || strings.HasPrefix(mode, "pd") || strings.HasPrefix(mode, "vllm_pd"):
		d.kept["pairs"] = s
	case mode == "openai":
		d.kept["engine"] = s
	default:
		d.leave(s, "this mode is not known; the workers are imported as one pool")
	}
}

func disableRetries(d *builder, s setting) {
	if text, _ := s.text(); text == "true" {
		d.set("retry.attempts", 1, s, "no retries")
	}
}

func disableHealth(d *builder, s setting) {
	if text, _ := s.text(); text == "true" {
		d.set("health.path", "off", s, "")
	}
}

// logLevel translates the names of levels.
func logLevel(d *builder, s setting) {
	text, _ := s.text()
	level := strings.ToLower(text)
	if to, known := map[string]string{"warning": "warn", "critical": "error", "trace": "debug"}[level]; known {
		level = to
	}
	d.set("log.level", level, s, "")
}

// vllmComments state what differs in a policy of the same name.
func vllmComments() map[string]string {
	const keys = "X-Request-ID, X-Correlation-ID and X-Trace-ID are no keys (session_keys); without a key, the first " +
		"turn of the prompt decides"
	return map[string]string{
		"cache_aware":     "without a match, the least loaded worker; on_miss: smallest_tree selects the smallest tree",
		"consistent_hash": keys, "rendezvous_hash": keys,
		"kv_aware":      "finds the engines' events without configuration; see docs/kv-events.md",
		"lmcache_aware": "kv_aware with LMCache's events needs no controller; see docs/lmcache.md",
	}
}

// isYAML matches the first line of a YAML file with keys.
var isYAML = regexp.MustCompile(`\A(?:[ \t]*(?:#[^\n]*)?\r?\n)*` +
	`(?:---|\{|["']?[A-Za-z_][A-Za-z0-9_]*["']?[ \t]*:(?:[ \t\r\n]|\z))`)

// VLLMRouter translates a command line of vLLM Router, or the YAML file of its fork. A model is imported as
// a tier, because the router passes all models to all workers.
func VLLMRouter(src []byte, o Options) (Result, error) {
	d := newBuilder(vllmComments())
	host, port, policy := "127.0.0.1", "30000", "cache_aware"
	if isYAML.Match(src) {
		root, err := readYAML([]byte(strings.ReplaceAll(string(src), "${", "$${")))
		if err != nil {
			return Result{}, err
		}
		d.walk(vllmRules(), "", root)
		port, policy = "3001", "random"
	} else {
		commands, err := readCommands(src)
		if err != nil {
			return Result{}, err
		}
		program, all := flags(commands)
		if len(all) == 0 {
			return Result{}, errors.New("the file has neither a command line with flags nor YAML keys")
		}
		d.kept["program"] = setting{node: scalar(program)}
		if strings.Contains(program, "sglang") {
			host = "0.0.0.0"
		}
		rules := vllmRules()
		for _, s := range all {
			if apply, known := rules[flagKey(s.key)]; known {
				apply(d, s)
			} else {
				d.leave(s, unknownKey)
			}
		}
	}
	if _, written := d.kept["host"]; !written {
		d.kept["host"] = setting{key: "host", node: scalar(host)}
	}
	d.vllmKeys()
	d.addresses(port)
	staged := d.isPaired() && d.kept["prefill_policy"].node != nil && d.kept["decode_policy"].node != nil &&
		valueIn(&d.root, "policy") == nil
	if _, written := d.origin["policy.name"]; !written && !staged && !d.leftOut("policy.type", "--policy") {
		d.set("policy.name", policy, setting{key: "policy"}, "the router's default; without this section, it is kv_aware")
	}
	d.tierOf(o)
	if d.err == nil && len(d.servers) == 0 {
		return Result{}, errors.Join(append([]error{errors.New("the file names no worker that can be imported")},
			reasons(d.left)...)...)
	}
	return d.finish("vllm-router")
}

// reasons returns the reasons why settings are left out as errors.
func reasons(left []LeftOut) (all []error) {
	for _, l := range left {
		all = append(all, errors.New(l.String()))
	}
	return all
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

// leftOut reports whether a setting of one of the keys is left out.
func (d *builder) leftOut(keys ...string) bool {
	for _, l := range d.left {
		for _, key := range keys {
			if l.Key == key {
				return true
			}
		}
	}
	return false
}

// addresses writes the addresses of hosts and ports.
func (d *builder) addresses(port string) {
	address := func(section, host, port string) (setting, string) {
		h, p := d.kept[section+"host"], d.kept[section+"port"]
		ht, _ := h.text()
		pt, _ := p.text()
		from := p
		if p.node == nil {
			from = h
		}
		return from, net.JoinHostPort(strings.Trim(cmp.Or(ht, host), "[]"), cmp.Or(pt, port))
	}
	_, hostSet := d.kept["metrics.host"]
	_, portSet := d.kept["metrics.port"]
	if hostSet || portSet {
		from, metrics := address("metrics.", "127.0.0.1", "29000")
		d.kept["metrics"] = from
		d.metrics = metrics
	}
	from, listen := address("", "", port)
	comment := ""
	if from.line == 0 {
		comment = "the router's default"
	}
	d.listen(listen, from, comment)
}

// tierOf writes the only tier, with the router's workers.
func (d *builder) tierOf(o Options) {
	d.base = "tiers[0]."
	defer func() { d.base = "" }()
	urls, all := d.kept["worker_urls"], d.pairWorkers()
	paired := d.isPaired()
	if paired && len(all) > 0 {
		urls = all[0].from
	}
	d.set("name", "default", urls, "")
	rules := d.kept["model_rules"].items()
	d.model(o, urls, d.kept["served_model_name"], d.kept["model_path"])
	if s, hosted := d.kept["engine"]; hosted {
		d.set("engine", "openai", s, "")
	}
	model := d.place("tiers[0].model").Value
	aliases := map[string]string{}
	for _, r := range rules {
		match, _ := r.at("match").text()
		rewrite, _ := r.at("rewrite").text()
		switch {
		case r.at("fallback").node != nil:
			d.leave(r, "write fallback at the model's tier or pool")
		case match == "" || rewrite == "":
			d.leave(r, "match or rewrite is missing; write the alias under models")
		case rewrite != model:
			d.leave(r, "write a tier or pool for the model of rewrite, and its name under models")
		default:
			aliases[match] = "default"
		}
	}
	if paired {
		d.pairs(all)
	} else {
		d.leaveUnpaired()
		d.wholeWorkers(urls)
	}
	d.base = ""
	if len(aliases) > 0 {
		d.set("models", aliases, d.kept["model_rules"], "")
	}
}

// wholeWorkers writes workers that serve whole requests.
func (d *builder) wholeWorkers(urls setting) {
	n := 0
	for _, s := range d.urlSettings(urls) {
		url, _ := s.text()
		if !d.usable(url, s) {
			continue
		}
		d.base = fmt.Sprintf("tiers[0].workers[%d].", n)
		d.set("name", fmt.Sprintf("worker-%d", n), s, "")
		d.set("url", url, s, "")
		d.workerKeyVariable(url, fmt.Sprintf("WORKER_%d", n))
		n++
	}
}

// workerKeyVariable writes the variable of a worker's key, if the worker has one.
func (d *builder) workerKeyVariable(url, name string) {
	switch own := d.workerKey(url); {
	case own.node != nil:
		d.keyVariable(own, name+"_API_KEY")
	case d.kept["api_key"].node != nil:
		d.keyVariable(d.kept["api_key"], "WORKER_API_KEY")
	}
}

// workerKey returns the key of one worker.
func (d *builder) workerKey(url string) setting {
	for _, s := range d.kept["worker_api_keys"].pairs() {
		if s.name == url {
			s.key = "worker_api_keys"
			return s
		}
	}
	return setting{}
}

// urlSettings returns the URLs of a list with their lines.
func (d *builder) urlSettings(list setting) (all []setting) {
	items := list.items()
	if len(items) == 0 {
		items = []setting{list}
	}
	for _, item := range items {
		for _, url := range item.texts() {
			all = append(all, setting{key: list.key, line: cmp.Or(item.line, list.line), node: scalar(url)})
		}
	}
	return all
}

// model writes the model of a tier: that of the options, or of the first setting with one.
func (d *builder) model(o Options, workers setting, named ...setting) {
	for _, s := range named {
		if text, ok := s.text(); ok && o.Model == "" && text != "true" {
			d.set("model", text, s, "the name that the workers serve; other names are rejected with 404")
			return
		}
	}
	if o.Model != "" {
		d.set("model", o.Model, workers, "")
		return
	}
	d.set("model", "your-model", workers, "write the name that the workers serve: curl WORKER/v1/models")
	d.leave(setting{key: "model"}, "the file names no model: write the name that the workers serve in place of "+
		"your-model, or import with --model NAME")
}

var wholeVariable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)

// keyVariable writes the variable of a worker's key, never the key.
func (d *builder) keyVariable(s setting, name string) {
	text, _ := s.text()
	if v := wholeVariable.FindStringSubmatch(text); v != nil {
		name = v[1]
	}
	d.set("api_key_env", name, s, "export this variable with the key of "+s.key)
}

// vllmKeys writes the digests of the keys of clients and administrators.
func (d *builder) vllmKeys() {
	n := 0
	for _, k := range d.kept["api_keys"].items() {
		if on, _ := k.at("enabled").text(); on == "false" {
			d.leave(k, "the key is disabled")
			continue
		}
		if !d.tenantKey(n, k.at("name"), k.at("key")) {
			continue
		}
		d.walk(map[string]rule{
			"name": func(*builder, setting) {}, "key": func(*builder, setting) {}, "enabled": func(*builder, setting) {},
			"rate_limit_rps": to("limits.rps", "", ""), "max_concurrent": to("limits.concurrent", "", ""),
			"allowed_models": allowedModels,
			"metadata":       out("keys have no metadata"),
		}, "", setting{key: k.key, line: k.line, node: k.node})
		d.base = ""
		n++
	}
	if s := d.kept["inbound_api_key"]; s.node != nil {
		if n > 0 {
			d.leave(s, "api_keys takes precedence, as in the router")
		} else {
			d.tenantKey(0, setting{node: scalar("default")}, s)
		}
	}
	d.base = ""
	if s := d.kept["admin_api_key"]; s.node != nil {
		if digest := d.digest(s); digest != "" {
			d.set("admin.keys[0].name", "admin", s, "")
			d.set("admin.keys[0].sha256", digest, s, "of the same key")
		}
	}
}

// tenantKey writes a tenant with the digest of a key, and leaves base at it.
func (d *builder) tenantKey(n int, name, key setting) bool {
	digest := d.digest(key)
	if digest == "" {
		return false
	}
	text, _ := name.text()
	d.base = fmt.Sprintf("auth.keys[%d].", n)
	d.set("name", strings.Trim(notInTenants.ReplaceAllString(strings.ToLower(text), "-"), "-"), key, "")
	d.set("sha256", digest, key, "of the same key; clients keep it")
	return true
}

var notInTenants = regexp.MustCompile(`[^a-z0-9-]+`)

// digest returns the SHA-256 of a key, with which config.yaml replaces the key.
func (d *builder) digest(s setting) string {
	text, ok := s.text()
	if !ok || strings.Contains(text, "${") {
		d.leave(s, "the key is not in the file; create one with tierway keys create")
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// allowedModels copies a list of models, unless it allows all.
func allowedModels(d *builder, s setting) {
	if all := s.texts(); len(all) != 1 || all[0] != "*" {
		d.set("models", all, s, "")
	}
}
