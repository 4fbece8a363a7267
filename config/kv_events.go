package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tierway/routing"
	"tierway/workers"
	"tierway/workers/kvcache"
)

// KVEvents configures the reader of KV-cache events.
type KVEvents struct {
	Enabled  *bool  `yaml:"enabled" doc:"Read the KV-cache events of engines that publish them, for pools with the policy 'kv_aware' or 'kv_overlap'. Other policies do not use them."`
	Listen   string `yaml:"listen" reload:"restart" doc:"Address, host:port, for engines that connect to the gateway to publish events. Each of their workers has a 'kv_events.topic' of its own. The protocol has no authentication: use an address of a private network. Empty: none; the gateway connects to engines."`
	MaxBytes Size   `yaml:"max_bytes" doc:"Memory limit for what is known of all caches together. A cached block takes at most 288 bytes: 512MiB hold 29 million tokens in blocks of 16. Each data-parallel rank of each worker has the same share. Over it, the ends of the prompts that were not stored for longest are dropped."`
}

// eventsOf returns the section kv_events of a tier or pool with the file's values for absent keys.
func (f *File) eventsOf(own *kvcache.Config) kvcache.Config {
	return overlay(valueOf(own), kvcache.Config{Enabled: f.KVEvents.Enabled})
}

// eventsCopy returns a copy that shares no memory.
func eventsCopy(c kvcache.Config) *kvcache.Config {
	if c.Enabled != nil {
		c.Enabled = new(*c.Enabled)
	}
	return &c
}

// checkEvents checks the sections kv_events of the file and of all workers.
func (d *decoder) checkEvents(f *File) {
	d.checkEventsListener(f)
	if size := f.KVEvents.MaxBytes; size > 0 && size < leastIndex {
		d.warn("kv_events.max_bytes", fmt.Sprintf("%d bytes hold too few blocks to be of use", size),
			"write a number with a unit, such as 512MiB")
	}
	topics, ports := map[string]string{}, map[string]eventPort{}
	for _, s := range f.sections() {
		pool := f.eventsOf(s.KVEvents)
		at := s.path + ".kv_events"
		if s.KVEvents != nil {
			d.checkEventPorts(at, pool, cmp.Or(pool.Ranks, 1))
			d.checkEventsUsed(at, f, s)
		}
		for i, w := range s.Workers {
			worker, events := itemPath(s.path+".workers", i), pool
			if w.KVEvents != nil {
				events = overlay(*w.KVEvents, pool)
			}
			own := worker + ".kv_events"
			first, ranks := d.checkEventRanks(worker, events, w)
			if w.KVEvents != nil {
				d.checkEventPorts(own, events, first+ranks)
				d.checkEventsUsed(own, f, s)
			} else if s.KVEvents != nil {
				d.checkEventPorts(at, events, first+ranks)
			}
			if events.Off() {
				continue
			}
			d.hintRanks(own, at, events, w)
			pathOf := func(key string) string {
				if d.written(own + key) {
					return own + key
				}
				return at + key
			}
			switch {
			case events.Port > 0:
				d.checkEventPort(ports, pathOf(".port"), events.Port, first, ranks, w)
				d.checkEventPort(ports, pathOf(".replay_port"), events.ReplayPort, first, ranks, w)
			case events.Topic != "":
				d.checkTopic(f, topics, pathOf(".topic"), events.Topic, w.Name)
			}
		}
	}
}

// hintRanks warns of a worker whose engine publishes the events of several ranks that are not workers.
func (d *decoder) hintRanks(own, pool string, c kvcache.Config, w workers.Config) {
	if _, _, ranked := workers.SplitRank(w.URL); ranked || w.Ranks > 0 || c.Ranks < 2 || c.Port == 0 {
		return
	}
	path := pool + ".ranks"
	if d.written(own + ".ranks") {
		path = own + ".ranks"
	}
	d.warn(path, fmt.Sprintf("%d ranks publish events, but an engine without ranks is one worker: it chooses the rank of "+
		"a request, so only the mean of the ranks' caches counts", c.Ranks),
		fmt.Sprintf("set ranks: %d at each worker", c.Ranks))
}

// leastIndex is the memory limit below which a warning is worth it.
const leastIndex = 1 << 20

// eventPort is a port on which an engine publishes or replays events.
type eventPort struct{ worker, url string }

// checkEventRanks checks that the number of ranks that publish fits the ranks of a worker's entry, and
// returns the first of these ranks and their number.
func (d *decoder) checkEventRanks(path string, c kvcache.Config, w workers.Config) (first, ranks int) {
	_, rank, ranked := workers.SplitRank(w.URL)
	switch {
	case ranked && c.Ranks > 0 && rank >= c.Ranks:
		d.report(path+".url", fmt.Sprintf("%s has the rank %d, but kv_events.ranks is %d: its ranks are 0 to %d",
			d.shown(path+".url", w.URL), rank, c.Ranks, c.Ranks-1), "raise kv_events.ranks, or lower the rank in url")
	case w.Ranks > 0 && c.Ranks > 0 && c.Ranks != w.Ranks:
		d.report(path+".ranks", fmt.Sprintf("%d differs from kv_events.ranks, which is %d", w.Ranks, c.Ranks),
			"remove kv_events.ranks: each rank of the worker publishes its own events")
	}
	switch {
	case ranked:
		return rank, 1
	case w.Ranks > 0:
		return 0, w.Ranks
	}
	return 0, cmp.Or(c.Ranks, 1)
}

// checkEventPort checks that the ports of a worker's ranks belong to no other worker and are not the one
// that serves its requests. seen has the ports of the workers before it.
func (d *decoder) checkEventPort(seen map[string]eventPort, path string, port, first, ranks int, w workers.Config) {
	u, err := url.Parse(w.Server())
	if err != nil || u.Hostname() == "" || port == 0 {
		return
	}
	for p := port + first; p < port+first+ranks; p++ {
		address := net.JoinHostPort(u.Hostname(), strconv.Itoa(p))
		other, taken := seen[address]
		switch {
		case u.Port() == strconv.Itoa(p):
			d.report(path, fmt.Sprintf("%d is the port that serves the requests of %s", p, w.Name),
				"set the port of the engine's --kv-events-config")
		case taken && other.url != w.Server():
			d.report(path, address+" is the port of two workers, "+other.worker+" and "+w.Name+
				": the events of one would count for both", "set a port for each worker")
		}
		seen[address] = eventPort{w.Name, w.Server()}
	}
}

// policiesOf returns the policy of a tier or pool, then those of its rules and of its prefill stage.
func (f *File) policiesOf(s section) []routing.Config {
	policies, rules := []routing.Config{s.Policy}, s.PolicyRules
	if s.Policy.Name == "" {
		policies[0] = f.Policy
	}
	if rules == nil {
		rules = f.PolicyRules
	}
	for i := range rules {
		policies = append(policies, rules[i].Policy)
	}
	if s.PrefillPolicy.Name != "" {
		policies = append(policies, s.PrefillPolicy)
	}
	return policies
}

// checkEventsUsed warns of events that no policy uses.
func (d *decoder) checkEventsUsed(path string, f *File, s section) {
	policies := f.policiesOf(s)
	if !slices.ContainsFunc(policies, routing.Config.UsesCaches) {
		d.warn(path, "has no effect: the policy "+policies[0].Name+" does not use the events of engines",
			"set policy: { name: kv_aware }, or remove the key")
	}
}

// checkTopic checks the topic of an engine that connects to the gateway. seen has the worker of each
// topic.
func (d *decoder) checkTopic(f *File, seen map[string]string, path, topic, worker string) {
	switch first := seen[topic]; {
	case f.KVEvents.Listen == "":
		d.report(path, d.shown(path, topic)+" has no effect: no port is set to connect to, and no address for engines "+
			"that connect to the gateway", "set kv_events.port of the worker, or kv_events.listen of the file")
	case first != "":
		d.report(path, d.shown(path, topic)+" is the topic of two workers, "+first+" and "+worker+
			": their events could not be told apart", "set a topic for each worker")
	}
	seen[topic] = worker
}

func (d *decoder) checkEventsListener(f *File) {
	const path = "kv_events.listen"
	if f.KVEvents.Listen == "" {
		return
	}
	l := listener{path: path, address: f.KVEvents.Listen, way: "choose another port"}
	l.loopback, l.ok = d.checkListen(path, l.address)
	if !l.ok {
		return
	}
	for _, other := range listeners(f) {
		d.checkPortConflict(l, other)
	}
	if host, _, _ := net.SplitHostPort(l.address); host == "" || ipOf(host).IsUnspecified() {
		d.warn(path, d.shown(path, l.address)+" accepts events from every network, and the protocol has no authentication",
			"use an address of a private network")
	}
}

// checkEventPorts checks the ports of the first ranks of a server.
func (d *decoder) checkEventPorts(path string, c kvcache.Config, ranks int) {
	const highest = 65535
	for _, p := range [...]struct {
		key  string
		port int
	}{{".port", c.Port}, {".replay_port", c.ReplayPort}} {
		if p.port > 0 && p.port+ranks-1 > highest {
			d.report(path+p.key, fmt.Sprintf("%d is too high: rank %d would have port %d", p.port, ranks-1, p.port+ranks-1),
				fmt.Sprintf("set at most %d", highest-ranks+1))
		}
	}
	apart := c.Port - c.ReplayPort
	switch {
	case d.hasProblemIn(path): // a wrong or misspelt port is not a missing one
	case c.Port > 0 && c.ReplayPort > 0 && apart < ranks && -apart < ranks:
		d.report(path+".replay_port", fmt.Sprintf("ports %d to %d of replays overlap with ports %d to %d of events",
			c.ReplayPort, c.ReplayPort+ranks-1, c.Port, c.Port+ranks-1),
			"set ports that differ by at least the number of ranks, in the engine too")
	case c.Port == 0 && c.ReplayPort > 0 && c.Topic == "":
		d.report(path+".replay_port", "has no effect without port or topic", "set port, or remove the key")
	case c.Port == 0 && c.Ranks > 1:
		d.report(path+".ranks", "has no effect without port", "set port, or remove the key: the engine states its ranks")
	}
}

func (d *decoder) hasProblemIn(path string) bool {
	for reported := range d.reported {
		if strings.HasPrefix(reported, path+".") {
			return true
		}
	}
	return false
}
