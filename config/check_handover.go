package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tierway/openai"
	"tierway/routing"
	"tierway/workers"
)

// usedServer is a server of a worker whose engine serves one stage only, or may do so.
type usedServer struct {
	path           string // of the worker
	handover, role string
}

// checkHandovers checks the hand-overs of tiers and pools and the roles of their workers.
func (d *decoder) checkHandovers(f *File) {
	addresses, servers := map[string]usedAddress{}, map[string]usedServer{}
	usesHandover := slices.ContainsFunc(f.sections(), func(s section) bool { return s.Handover != "" })
	for _, s := range f.sections() {
		for i := range s.Workers {
			if usesHandover {
				d.checkServerRole(servers, s, i)
			}
		}
		switch {
		case s.Handover != "":
			d.checkTransfer(s)
			for i := range s.Workers {
				path := itemPath(s.path+".workers", i)
				d.checkReach(path, s.Workers[i])
				d.checkTransferKeys(path, s, s.Workers[i], addresses)
			}
			if path := s.path + ".uncached_threshold"; d.written(path) && !s.symmetric() {
				d.warn(path, "has no effect with handover: "+s.Handover+", because the role of the selected worker decides",
					"remove the key")
			}
			d.checkStages(s)
			d.checkStageRegions(s)
		case !d.reported[s.path+".handover"]:
			d.checkNoHandover(s)
		}
	}
}

// checkNoHandover reports keys without effect.
func (d *decoder) checkNoHandover(s section) {
	way := "set " + s.path + ".handover, or remove the key"
	for _, name := range [...]string{"prefill_policy", "uncached_threshold", "handover_lease"} {
		if path := join(s.path, name); d.written(path) {
			d.report(path, "has no effect without handover", way)
		}
	}
	for i, w := range s.Workers {
		path := itemPath(s.path+".workers", i)
		report := func(name, shown string) {
			d.report(join(path, name), shown+" has no effect without handover of the "+s.kind(), way)
		}
		if w.Role != "" {
			report("role", quote(w.Role))
		}
		if w.BootstrapPort != 0 {
			report("bootstrap_port", fmt.Sprint(w.BootstrapPort))
		}
		if w.KVAddress != "" {
			report("kv_address", d.shown(path+".kv_address", w.KVAddress))
		}
	}
}

// checkTransfer checks that the engines of a section can hand prompts over, and that clients cannot interfere.
func (d *decoder) checkTransfer(s section) {
	engine, maker := openai.EngineVLLM, "vLLM"
	if s.Handover == HandoverSGLang {
		engine, maker = openai.EngineSGLang, "SGLang"
	}
	if used := openai.Engine(s.Engine); s.Engine != "" && used != openai.EngineAuto && used != engine {
		d.report(s.path+".engine", fmt.Sprintf("%q cannot hand prompts over by %s, which is a transfer of %s",
			s.Engine, s.Handover, maker), "write engine: "+string(engine)+", or remove handover")
	}
	generates := []string{openai.Chat.String(), openai.Completions.String(), openai.Responses.String(),
		openai.Messages.String()}
	isAnswer := func(kind string) bool { return slices.Contains(generates, kind) }
	if !slices.ContainsFunc(s.serves(), isAnswer) {
		d.report(s.path+".handover", "has no effect: the "+s.kind()+" serves no chat, completions, responses or messages",
			"remove the key, or add one of them to serves")
	}
	for i, name := range s.AllowFields {
		if name != "ec_transfer_params" && name != "vllm_xargs" {
			path := itemPath(s.path+".allow_fields", i)
			d.report(path, d.shown(path, name)+" of a client could name the caches of other requests",
				"remove it, or remove handover")
		}
	}
}

// checkReach reports servers that other engines cannot reach, and ranks: a transfer names a whole engine.
func (d *decoder) checkReach(path string, w workers.Config) {
	url := path + ".url"
	switch {
	case strings.HasPrefix(strings.ToLower(w.URL), "unix:"):
		d.report(url, d.shown(url, w.URL)+" is a Unix socket, but engines with handover exchange caches over the network",
			"write http://host:port, or remove handover of the tier or pool")
	case w.Ranks > 0:
		d.report(path+".ranks", fmt.Sprintf("%d ranks cannot hand prompts over", w.Ranks),
			"remove the key, so that the engine chooses the rank, or remove handover of the tier or pool")
	case w.Server() != w.URL:
		d.report(url, d.shown(url, w.URL)+" is a rank, and ranks cannot hand prompts over",
			"write the URL of a server without data-parallel ranks, or remove handover of the tier or pool")
	}
}

// usedAddress is an address of an engine's kv_port.
type usedAddress struct{ path, server string }

// checkTransferKeys checks the keys of a worker that belong to one hand-over. seen has the addresses of earlier
// workers.
func (d *decoder) checkTransferKeys(path string, s section, w workers.Config, seen map[string]usedAddress) {
	port, address := path+".bootstrap_port", path+".kv_address"
	used, shown := fmt.Sprint(w.BootstrapPort), d.shown(address, w.KVAddress)
	only := func(path, shown, key, want, value string) {
		d.report(path, fmt.Sprintf("%s applies only to %s: %s, but it is %s", shown, key, want, value), "remove the key")
	}
	switch {
	case d.reported[path+".role"] || w.BootstrapPort == 0:
	case s.Handover != HandoverSGLang:
		only(port, used, "handover", HandoverSGLang, s.Handover)
	case w.Role != workers.RolePrefill:
		only(port, used, "role", workers.RolePrefill, roleOf(w))
	}
	if s.Handover == HandoverSGLang && w.Role == workers.RolePrefill && !d.reported[port] {
		d.checkBootstrap(port, w, seen)
	}
	switch first := seen[w.KVAddress]; {
	case d.reported[path+".role"]:
	case s.Handover != HandoverP2PNCCL && w.KVAddress != "":
		only(address, shown, "handover", HandoverP2PNCCL, s.Handover)
	case s.Handover != HandoverP2PNCCL:
	case roleOf(w) == workers.RoleBoth && w.KVAddress != "":
		only(address, shown, "role", "prefill and role: decode", workers.RoleBoth)
	case roleOf(w) == workers.RoleBoth:
	case w.KVAddress == "":
		d.report(address, "missing, but the role is "+w.Role+" and handover is "+s.Handover,
			"add kv_address: host:port of the engine's kv_port")
	case first.path != "" && first.server != w.URL:
		d.report(address, shown+" is already the address at "+first.path, "write the address of this worker's own engine")
	default:
		seen[w.KVAddress] = usedAddress{address, w.URL}
	}
}

// checkBootstrap warns of a bootstrap server that two prefill workers would share. seen has the addresses of earlier
// workers.
func (d *decoder) checkBootstrap(path string, w workers.Config, seen map[string]usedAddress) {
	u, err := url.Parse(w.URL)
	if err != nil {
		return // reported before
	}
	server := net.JoinHostPort(u.Hostname(), strconv.Itoa(cmp.Or(w.BootstrapPort, defaultBootstrapPort)))
	if first := seen[server]; first.path != "" && first.server != w.URL {
		d.warn(path, d.shown(path, server)+" is already the bootstrap server of "+first.path,
			"write the port of this worker's own --disaggregation-bootstrap-port")
		return
	}
	seen[server] = usedAddress{path, w.URL}
}

func roleOf(w workers.Config) string {
	if w.Role == "" {
		return workers.RoleBoth
	}
	return w.Role
}

// checkServerRole reports a worker whose server is another tier's or pool's worker with another role, if the
// engine serves one stage only. seen has the servers so far.
func (d *decoder) checkServerRole(seen map[string]usedServer, s section, at int) {
	w, path := s.Workers[at], itemPath(s.path+".workers", at)
	server, err := d.serverOf(w)
	if err != nil {
		return // reported before
	}
	here := usedServer{path, s.Handover, ""}
	if s.Handover != "" {
		here.role = roleOf(w)
	}
	first, twice := seen[server]
	if !twice {
		seen[server] = here
		return
	}
	other, one := here, first // one serves a single stage
	if !one.oneStage() {
		other, one = first, here
	}
	if one.oneStage() && (other.handover != one.handover || other.role != one.role) {
		d.report(path+".role", fmt.Sprintf("the engine of %s serves only the role %s, as its handover is %s, but %s differs",
			one.path, one.role, one.handover, other.path),
			"write the same handover and role at both, or remove one of the workers")
	}
}

func (u usedServer) oneStage() bool {
	stages := stagesOf(u.handover, u.role)
	return stages != 0 && stages&routing.StageWhole == 0 && u.handover != HandoverNIXL && u.handover != HandoverShared
}

// stageProblem is a problem of the stages that some workers serve together.
type stageProblem struct {
	key       string // of the tier or pool
	message   string
	hint      string
	modelHint string // for a problem of one model
	warning   bool
}

// checkStages reports stages that no worker serves, of all models or of one. Workers with weight 0 do not count.
func (d *decoder) checkStages(s section) {
	for i := range s.Workers {
		if d.reported[itemPath(s.path+".workers", i)+".role"] {
			return
		}
	}
	if len(s.Workers) == 0 || d.reported[s.path+".uncached_threshold"] {
		return
	}
	report := func(path, prefix, hint string, p stageProblem) {
		if p.warning {
			d.warn(path, prefix+p.message, hint)
		} else {
			d.report(path, prefix+p.message, hint)
		}
	}
	all := s.stageProblems("")
	for _, p := range all {
		report(join(s.path, p.key), "", p.hint, p)
	}
	for _, model := range distinct(append([]string{s.Model}, s.Models...)) {
		for _, p := range s.stageProblems(model) {
			same := func(q stageProblem) bool { return q.message == p.message || !q.warning }
			if p.modelHint != "" && !slices.ContainsFunc(all, same) {
				path := s.modelPath(model)
				report(path, "of the workers that serve "+d.shown(path, model)+", ", p.modelHint, p)
			}
		}
	}
}

// stageProblems returns the problems of the workers that serve a model; empty: of all workers. An error is the
// only problem.
func (s section) stageProblems(model string) (all []stageProblem) {
	var prefills, decodes []int // indices of workers
	var any routing.Stages
	for i, w := range s.Workers {
		if w.Weight != nil && *w.Weight == 0 || model != "" && w.Models != nil && !slices.Contains(w.Models, model) {
			continue
		}
		stages := stagesOf(s.Handover, w.Role)
		any |= stages
		if stages&routing.StagePrefill != 0 {
			prefills = append(prefills, i)
		}
		if stages&routing.StageDecode != 0 {
			decodes = append(decodes, i)
		}
	}
	pairs := len(prefills) > 0 && len(decodes) > 0 && (len(prefills)+len(decodes) > 2 || prefills[0] != decodes[0])
	whole, off := any&routing.StageWhole != 0, s.symmetric() && s.UncachedThreshold != nil && *s.UncachedThreshold == 0
	const listed = "list it in the models of a worker with role: "
	switch {
	case !whole && len(decodes) == 0:
		return []stageProblem{{"workers",
			"no worker with a weight above 0 has the role decode or both, so none generates answers",
			"set role: decode or both at one of them", listed + "decode or both", false}}
	case !whole && !pairs:
		return []stageProblem{{"workers", "workers with role decode need a worker that computes prompts, and there is none",
			"add a worker with role: prefill, or one with role: both", listed + "prefill or both", false}}
	case !whole:
		all = append(all, stageProblem{"workers", "no worker serves whole requests, so those that must stay on one worker " +
			"are rejected, such as n > 1; docs/disaggregation.md lists them",
			"add a worker with role: both, whose engine is started without a connector", listed + "both", true})
	case !pairs:
		missing := workers.RolePrefill
		if len(decodes) == 0 {
			missing = workers.RoleDecode
			if len(prefills) == 0 {
				missing = workers.RolePrefill + " and one with role: " + missing
			}
		}
		all = append(all, stageProblem{"handover",
			"no worker can compute prompts for another one, so one worker serves each request",
			"add a worker with role: " + missing + ", or remove handover", listed + missing, true})
	case off && slices.ContainsFunc(prefills, func(i int) bool { return s.Workers[i].Role == workers.RolePrefill }):
		all = append(all, stageProblem{"uncached_threshold",
			"0 leaves each request to one worker, so workers with role prefill receive none", "raise it, or remove the key", "", true})
	}
	return all
}

// checkStageRegions warns of regions whose requests would be computed in another one.
func (d *decoder) checkStageRegions(s section) {
	computes := func(region string) bool {
		return slices.ContainsFunc(s.Workers, func(w workers.Config) bool {
			return (region == "" || w.Region == region) && w.Region != "" &&
				stagesOf(s.Handover, w.Role)&routing.StagePrefill != 0
		})
	}
	seen := map[string]bool{}
	for i, w := range s.Workers {
		if seen[w.Region] || w.Region == "" || stagesOf(s.Handover, w.Role)&routing.StageDecode == 0 {
			continue
		}
		seen[w.Region] = true
		if path := itemPath(s.path+".workers", i) + ".region"; computes("") && !computes(w.Region) {
			d.warn(path, "no worker of the region "+d.shown(path, w.Region)+" computes prompts, so caches would cross regions",
				"add a worker with role: prefill to the region, or write a tier or pool for each region")
		}
	}
}
