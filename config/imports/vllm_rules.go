package imports

import (
	"maps"
	"strings"

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
		"disable_retries":                       setIf("true", "retry.attempts", 1, "no retries"),
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
		"disable_health_check":             setIf("true", "health.path", "off", ""),

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
		rules[key] = out(config.PolicyHint(key))
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
	if key, ok := lmcacheFlags[name]; ok {
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

// lmcacheFlags are the keys of a policy in the fork's YAML by the names of flags.
var lmcacheFlags = map[string]string{"lmcache_controller_url": "controller_url",
	"lmcache_poll_interval": "poll_interval_secs", "lmcache_cache_weight": "cache_weight",
	"lmcache_lookup_mode": "lookup_mode", "lmcache_controller_timeout_ms": "controller_timeout_ms",
	"lmcache_fallback_policy": "fallback_policy", "lmcache_controller_api_key": "controller_api_key"}

// controllerKey returns the rule for the key of LMCache's controller: its variable is written, never the key.
func controllerKey(path string) rule {
	return func(d *builder, s setting) {
		name := "LMCACHE_CONTROLLER_API_KEY"
		if text, _ := s.text(); wholeVariable.MatchString(text) {
			name = wholeVariable.FindStringSubmatch(text)[1]
		}
		d.set(path, name, s, "export this variable with the key of the controller")
	}
}

// workerMap returns the rule for the map from instances of LMCache to workers.
func workerMap(path string) rule {
	return func(d *builder, s setting) {
		workers := map[string]string{}
		for _, pair := range s.pairs() {
			if text, ok := pair.text(); ok {
				workers[pair.name] = text
			} else {
				d.leave(pair, "want the URL or the name of a worker")
			}
		}
		d.set(path, workers, s, "")
	}
}
