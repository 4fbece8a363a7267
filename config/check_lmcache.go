package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"tierway/routing"
	"tierway/workers"
)

// leastPoll is the shortest poll_interval: each poll is a request to a controller that looks prompts up too.
const leastPoll = 100 * time.Millisecond

// checkLMCache checks the options of lmcache_aware.
func (d *decoder) checkLMCache(path string, c routing.Config) {
	if !c.UsesLMCache() {
		return
	}
	d.checkKey(path+".controller_api_key_env", c.ControllerKey, "the controller's key")
	if at := path + ".poll_interval"; c.PollInterval > 0 && c.PollInterval < leastPoll {
		d.report(at, fmt.Sprintf("%v is too short", c.PollInterval),
			"use at least "+leastPoll.String()+"; the default is 10s")
	}
	if c.Mode == "" {
		d.warn(path+".mode", "missing, so "+routing.ModeOccupancy+" applies: it prefers the engine with the most keys, "+
			"whatever the prompt", "set mode: "+routing.ModePrefixLookup+", which looks each prompt up, or mode: "+
			routing.ModeOccupancy+" to keep it")
	}
	unused, mode := []string{"lookup_timeout", "tokenizer"}, routing.ModeOccupancy
	if c.LooksUp() {
		unused, mode = []string{"cache_weight", "fallback"}, routing.ModePrefixLookup
	} else if c.UsesCaches() { // by the fallback
		unused = nil
	}
	for _, name := range unused {
		if at := path + "." + name; d.written(at) && c.Name == "lmcache_aware" {
			hint := "remove it, or write mode: " + routing.ModePrefixLookup
			if mode == routing.ModePrefixLookup {
				hint = "remove it: the cost decides, by the gateway's history while the controller is down"
			}
			d.warn(at, "has no effect with mode: "+mode, hint)
		}
	}
}

// checkWorkerMaps warns of instances of LMCache that no worker has.
func (d *decoder) checkWorkerMaps(f *File) {
	all := map[string]routing.Config{"policy": f.Policy}
	for i, r := range f.PolicyRules {
		all[fmt.Sprintf("policy_rules[%d].policy", i)] = r.Policy
	}
	for _, s := range f.sections() {
		all[s.path+".policy"], all[s.path+".prefill_policy"] = s.Policy, s.PrefillPolicy
		for i, r := range s.PolicyRules {
			all[fmt.Sprintf("%s.policy_rules[%d].policy", s.path, i)] = r.Policy
		}
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		for _, instance := range slices.Sorted(maps.Keys(all[path].WorkerMap)) {
			named, at := all[path].WorkerMap[instance], path+".lmcache_worker_map."+instance
			if !slices.ContainsFunc(f.sections(), func(s section) bool {
				return slices.ContainsFunc(s.Workers, func(w workers.Config) bool { return isWorker(named, w) })
			}) {
				d.warn(at, d.shown(at, named)+" is neither the name nor the URL of a worker, so the instance counts for none",
					"write the name of the worker whose engine has this lmcache_instance_id")
			}
		}
	}
}

// checkControllers reports different controllers in the policies of one tier or pool, which has one client.
func (d *decoder) checkControllers(f *File) {
	for _, s := range f.sections() {
		var first *routing.Config
		for _, c := range f.policiesOf(s) {
			if !c.UsesLMCache() {
				continue
			}
			own := routing.Config{Mode: cmp.Or(c.Mode, routing.ModeOccupancy), ControllerURL: c.ControllerURL,
				ControllerKey: c.ControllerKey, ControllerLimit: c.ControllerLimit, PollInterval: c.PollInterval,
				WorkerMap: c.WorkerMap}
			if first == nil {
				first = &own
			} else if !reflect.DeepEqual(*first, own) {
				d.report(s.path, "its policies lmcache_aware have different modes, controllers or maps, but "+s.kind()+
					"s have one client of LMCache's controller",
					"write the same mode, controller_…, poll_interval and lmcache_worker_map in all of them")
				break
			}
		}
	}
}

// isWorker reports whether a text names a worker, or a rank of one, or is the URL of a worker.
func isWorker(text string, w workers.Config) bool {
	ranks := workers.Spec{Config: w}.PerRank()
	if len(ranks) == 1 && sameURL(text, ranks[0].URL) {
		return true
	}
	return slices.ContainsFunc(ranks, func(r workers.Spec) bool { return text == r.Name })
}

func sameURL(a, b string) bool {
	one, err := workers.Canonical(a)
	other, failed := workers.Canonical(b)
	return a == b || err == nil && failed == nil && one == other
}

// InstanceOf returns the function from instances of LMCache to the names of the pool's workers; it returns an empty
// name for an instance of no worker.
func (p *Pool) InstanceOf(c routing.Config) func(instance string) (worker string) {
	byInstance := make(map[string]string, len(c.WorkerMap))
	for instance, named := range c.WorkerMap {
		byInstance[instance] = p.workerOf(named)
	}
	names := map[string]bool{}
	for i := range p.Workers {
		names[p.Workers[i].Name] = true
	}
	return func(instance string) string {
		if worker, listed := byInstance[instance]; listed {
			return worker
		}
		if names[instance] {
			return instance
		}
		return ""
	}
}

// workerOf returns the name of the worker with that name or URL; empty if there is none. The ranks of a server have one
// URL, so they need names.
func (p *Pool) workerOf(text string) (name string) {
	for i := range p.Workers {
		switch w := &p.Workers[i]; {
		case text == w.Name:
			return w.Name
		case !sameURL(text, w.URL):
		case name != "":
			return ""
		default:
			name = w.Name
		}
	}
	return name
}

// Key returns the key in an environment variable that the file names; empty if there is none.
func (f *File) Key(variable string) string {
	if variable == "" || f.keys == nil {
		return ""
	}
	return f.keys(variable)
}
