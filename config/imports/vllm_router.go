package imports

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

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

func (d *builder) workerKeyVariable(url, name string) {
	switch own := d.workerKey(url); {
	case own.node != nil:
		d.keyVariable(own, name+"_API_KEY")
	case d.kept["api_key"].node != nil:
		d.keyVariable(d.kept["api_key"], "WORKER_API_KEY")
	}
}

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
