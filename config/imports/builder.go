// Package imports translates the configurations of other routers into config.yaml: vLLM Router with its
// fork, and Continuum Router. Each router has a table from its keys to rules. A key without a rule is left
// out and listed, never guessed.
package imports

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tierway/config"
	"tierway/workers"
)

// Options complete what the other configuration does not name.
type Options struct {
	Model string // that the workers serve; empty: the file's
}

// Result is a configuration for Tierway.
type Result struct {
	Config  []byte // a config.yaml without errors, with comments where the meaning differs
	LeftOut []LeftOut
}

// LeftOut is a setting of the other router that the configuration does not have.
type LeftOut struct {
	Line   int    // in the other configuration
	Key    string // as it is written there
	Reason string // and what to write instead; without the value
}

// String returns the setting on one line.
func (l LeftOut) String() string {
	return setting{key: l.Key, line: l.Line}.String() + ": " + l.Reason
}

// builder builds a config.yaml from the settings of another router.
type builder struct {
	base    string // prefix of the paths that rules write, such as "policy_rules[0]."
	root    yaml.Node
	origin  map[string]setting // by path in config.yaml
	kept    map[string]setting // settings that a later step combines, by the name of the rule keep
	comment map[string]string  // of a policy, where its meaning differs
	left    []LeftOut
	servers map[string]bool // canonical URLs of the workers
	names   map[string]bool // of the workers
	metrics string          // address of /metrics
	err     error           // the first reason why nothing can be imported
}

func newBuilder(comment map[string]string) *builder {
	return &builder{root: yaml.Node{Kind: yaml.MappingNode}, origin: map[string]setting{}, kept: map[string]setting{},
		comment: comment, servers: map[string]bool{}, names: map[string]bool{}}
}

func (d *builder) leave(s setting, reason string) {
	d.left = append(d.left, LeftOut{Line: s.line, Key: s.key, Reason: reason})
}

func (d *builder) refuse(s setting, reason string) {
	d.err = cmp.Or(d.err, s.errorf("%s", reason))
}

// walk applies the rules of a table, which are keyed by the path below prefix, to a section.
func (d *builder) walk(table map[string]rule, prefix string, section setting) {
	for _, s := range section.pairs() {
		path := join(prefix, s.name)
		below := func(key string) bool { return strings.HasPrefix(key, path+".") }
		switch apply, known := table[path]; {
		case s.node.Tag == "!!null":
		case known:
			apply(d, s)
		case s.node.Kind == yaml.MappingNode && slices.ContainsFunc(keysOf(table), below):
			d.walk(table, path, s)
		default:
			d.leave(s, unknownKey)
		}
	}
}

const unknownKey = "this key is not known; docs/config.md lists the keys of config.yaml"

// set writes a value at a path below base. A comment explains what differs.
func (d *builder) set(path string, value any, s setting, comment string) {
	path = d.base + path
	if first, twice := d.origin[path]; twice {
		d.leave(s, path+" is already set by "+first.key)
		return
	}
	d.origin[path] = s
	n := d.place(path)
	if from, isNode := value.(*yaml.Node); isNode {
		*n = yaml.Node{Kind: from.Kind, Tag: from.Tag, Value: from.Value}
	} else if err := n.Encode(value); err != nil {
		d.refuse(s, err.Error())
	}
	if n.Kind == yaml.SequenceNode {
		n.Style = yaml.FlowStyle
	}
	n.LineComment = comment
}

// leaveKept lists a kept setting as left out, if there is one.
func (d *builder) leaveKept(name, reason string) {
	if s := d.kept[name]; s.node != nil {
		d.leave(s, reason)
	}
}

// place returns the node of a path, with the sections and items that lead to it.
func (d *builder) place(path string) *yaml.Node {
	at := &d.root
	for part := range strings.SplitSeq(path, ".") {
		name, index, isItem := strings.Cut(part, "[")
		at = valueAt(at, name)
		if !isItem {
			continue
		}
		at.Kind = yaml.SequenceNode
		i, _ := strconv.Atoi(strings.TrimSuffix(index, "]"))
		for len(at.Content) <= i {
			at.Content = append(at.Content, &yaml.Node{Kind: yaml.MappingNode})
		}
		at = at.Content[i]
	}
	return at
}

// valueAt returns the value of a key, which it adds if it is absent.
func valueAt(section *yaml.Node, name string) *yaml.Node {
	section.Kind = yaml.MappingNode
	if value := valueIn(section, name); value != nil {
		return value
	}
	value := &yaml.Node{}
	section.Content = append(section.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	return value
}

// remove deletes the value at a path without items, and the sections that are empty then.
func (d *builder) remove(path string) {
	above, name := &d.root, path
	if i := strings.LastIndex(path, "."); i >= 0 {
		above, name = d.place(path[:i]), path[i+1:]
	}
	for i := 0; i < len(above.Content); i += 2 {
		if above.Content[i].Value == name {
			above.Content = slices.Delete(above.Content, i, i+2)
			break
		}
	}
	if i := strings.LastIndex(path, "."); i >= 0 && len(above.Content) == 0 {
		d.remove(path[:i])
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9._-]+`)

// nameOf returns a valid name for a worker, which no other worker has.
func (d *builder) nameOf(text string) string {
	const longest = 63
	name := strings.TrimLeft(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "._-")
	name = name[:min(len(name), longest-len("-00"))]
	for n := 0; name == "" || d.names[name]; n++ {
		name = strings.TrimLeft(name+"-"+strconv.Itoa(n), "-")
	}
	d.names[name] = true
	return name
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// anyValue is the value of every environment variable while a result is checked. It is a valid
// number, host, port and key.
const anyValue = "1"

// usable reports whether a URL can be the next worker's. It lists all others as left out.
func (d *builder) usable(url string, s setting) bool {
	server, rank, ranked := workers.SplitRank(variable.ReplaceAllString(url, anyValue))
	canonical, err := workers.Canonical(server)
	if ranked {
		canonical = fmt.Sprint(canonical, "@", rank)
	}
	switch {
	case err != nil && variable.MatchString(url):
		d.leave(s, url+" is a variable that is no URL by itself: write the URLs in its place")
	case err != nil:
		d.leave(s, strings.TrimPrefix(err.Error(), "url: "))
	case d.servers[canonical]:
		d.leave(s, "the server is already a worker; a server appears once")
	default:
		d.servers[canonical] = true
		return true
	}
	return false
}

// listen writes the addresses of the planes and the access to them. Another port than 8081 for the admin
// plane is only needed if the other router uses that one.
func (d *builder) listen(address string, s setting, comment string) {
	d.set("listen", address, s, comment)
	metrics := d.metrics
	if metrics != "" {
		d.set("metrics.listen", metrics, d.kept["metrics"], "the admin plane serves /metrics too, without this key")
	}
	open := !isLoopback(address)
	if open {
		d.set("insecure", true, s, "plain text on the network, as in the other router; "+
			"or write tls: { cert: FILE, key: FILE }")
	}
	if metrics != "" && !isLoopback(metrics) {
		d.set("metrics.insecure", true, d.kept["metrics"], "names of tenants and workers, in plain text and without a key")
		open = true
	}
	for port := 8081; ; port++ {
		if end := ":" + strconv.Itoa(port); !strings.HasSuffix(address, end) && !strings.HasSuffix(metrics, end) {
			if port > 8081 {
				d.set("admin.listen", "127.0.0.1"+end, s, "8081, the default, is in use")
			}
			break
		}
	}
	switch _, keys := d.origin["auth.keys[0].name"]; {
	case keys:
	case open:
		d.set("auth.required", true, s, "clients need a key: tierway keys create -c config.yaml --tenant NAME")
		d.leave(setting{key: "access without keys"}, "an address that is not loopback requires keys: create one with "+
			"tierway keys create, or listen on 127.0.0.1 behind a proxy with auth: { required: false }")
	default:
		d.set("auth.required", false, s, "no keys, as in the other router; allowed on loopback addresses only")
	}
}

// isLoopback reports whether host:port is on this machine only.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// finish checks the configuration as `tierway check` does. A setting that config.yaml does not allow is left out
// with the reason; inside of lists, where it would change another entry's meaning, it is an error.
func (d *builder) finish(command string) (Result, error) {
	d.shortenHealth()
	for d.err == nil {
		text, err := d.encode(command)
		if err == nil {
			_, err = config.Parse("result", text, func(string) (string, bool) { return anyValue, true })
		}
		var problems config.Problems
		if err == nil || !errors.As(err, &problems) {
			slices.SortStableFunc(d.left, func(a, b LeftOut) int { return cmp.Compare(a.Line, b.Line) })
			return Result{text, d.left}, err
		}
		for _, p := range problems {
			if !p.Warning {
				d.correct(p)
			}
		}
	}
	return Result{}, d.err
}

// correct leaves out the setting of a problem.
func (d *builder) correct(p config.Problem) {
	reason := p.Path + ": " + p.Message
	if p.Hint != "" {
		reason += " (" + p.Hint + ")"
	}
	path := p.Path
	for _, written := d.origin[path]; !written && path != ""; _, written = d.origin[path] {
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	s := d.origin[path]
	switch {
	case s.key == "":
		d.err = cmp.Or(d.err, errors.New(reason))
	case strings.Contains(path, "[") && !stageOption.MatchString(path):
		d.refuse(s, reason)
	default:
		d.leave(s, reason)
		d.remove(path)
		delete(d.origin, path)
	}
}

// stageOption matches an option of a stage's policy, without which the stage still has its policy.
var stageOption = regexp.MustCompile(`^tiers\[0\]\.(prefill_)?policy\.[a-z_]+$`)

// shortenHealth sets the timeouts that would exceed a short interval of health checks.
func (d *builder) shortenHealth() {
	d.base = ""
	for path, s := range d.origin {
		section, isInterval := strings.CutSuffix(path, "health.interval")
		if !isInterval {
			continue
		}
		_, timeout := d.origin[section+"health.timeout"]
		text := d.place(path).Value
		if interval, err := time.ParseDuration(text); err == nil && !timeout && interval < 5*time.Second {
			d.set(section+"health.timeout", text, s, "at most the interval")
		}
	}
}

// encode returns the file, its sections in the order of docs/config.md.
func (d *builder) encode(command string) ([]byte, error) {
	type pair struct{ key, value *yaml.Node }
	var pairs []pair
	for i := 0; i < len(d.root.Content); i += 2 {
		pairs = append(pairs, pair{d.root.Content[i], d.root.Content[i+1]})
	}
	file := reflect.TypeFor[config.File]()
	rank := func(p pair) int {
		for i := range file.NumField() {
			if file.Field(i).Tag.Get("yaml") == p.key.Value {
				return i
			}
		}
		return -1
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(rank(a), rank(b)) })
	root := yaml.Node{Kind: yaml.MappingNode}
	for _, p := range pairs {
		root.Content = append(root.Content, p.key, p.value)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made by `tierway import %s`. Comments state what differs. Check it with `tierway check`.\n",
		command)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(&root), e.Close())
	return b.Bytes(), err
}
