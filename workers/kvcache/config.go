package kvcache

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"tierway/routing/kvindex"
)

// Config is the section kv_events of a tier, pool or worker. The zero Config discovers the sources.
type Config struct {
	Enabled    *bool  `yaml:"enabled" absent:"'kv_events.enabled'" doc:"Read the KV-cache events of the engine, if it publishes them."`
	Port       int    `yaml:"port" max:"65535" absent:"the answer of the engine to GET /kv_event_sources" doc:"Port of the worker's host on which the engine publishes events, such as 5557."`
	ReplayPort int    `yaml:"replay_port" max:"65535" absent:"none" doc:"Port of the worker's host on which the engine replays events, such as 5657. It needs 'port' or 'topic'. Without replay, a lost event empties the index of the worker."`
	Ranks      int    `yaml:"ranks" min:"1" max:"64" absent:"'1'" doc:"Number of data-parallel ranks of the engine. Rank r publishes on 'port' + r and replays on 'replay_port' + r. It needs 'port'. A worker with 'ranks' needs no such number."`
	Topic      string `yaml:"topic" absent:"all topics" doc:"Topic of the events. With 'port': only topics that begin with it are read. Without: the engine connects to the file's 'kv_events.listen' and publishes this topic, which no other worker has."`
	// The default is sound: what was stored before as many tokens as the GPU holds is neither there nor, if that is
	// smaller, in the other cache.
	OffloadTokens int64 `yaml:"offload_tokens" min:"1" absent:"the size of its cache on the GPU" doc:"Size of the engine's cache in CPU memory and on disks, in tokens, such as that of LMCache. It applies if the engine publishes no removals from it: a block is dropped once as many tokens were stored there after it."`
	// Rank is the only rank with sources, for a worker that is one rank; nil: all ranks.
	Rank *int `yaml:"-"`
}

// Off reports whether the events must not be read.
func (c Config) Off() bool { return c.Enabled != nil && !*c.Enabled }

// Discovers reports whether the sources come from the engine.
func (c Config) Discovers() bool { return !c.Off() && c.Port == 0 }

// Announced is a source as an engine states it: one rank of the answer to GET /kv_event_sources.
type Announced struct {
	Rank             int
	Endpoint, Replay string // ZeroMQ addresses; Replay is empty without replay
	Topic            string
}

// ParseSources reads an answer to GET /kv_event_sources: an object with one source for each rank.
// Ranks that publish no events over ZeroMQ are left out. The result is ordered by rank.
func ParseSources(body []byte) ([]Announced, error) {
	var ranks map[string]struct {
		Enabled   bool    `json:"enable_kv_cache_events"`
		Publisher string  `json:"publisher"`
		Endpoint  string  `json:"endpoint"`
		Replay    *string `json:"replay_endpoint"`
		Topic     string  `json:"topic"`
	}
	if err := json.Unmarshal(body, &ranks); err != nil {
		return nil, fmt.Errorf("reading the sources of KV events: %w", err)
	}
	if len(ranks) > kvindex.MaxWorkers {
		return nil, fmt.Errorf("reading the sources of KV events: %d ranks, at most %d are read", len(ranks),
			kvindex.MaxWorkers)
	}
	var all []Announced
	for name, s := range ranks {
		rank, err := strconv.Atoi(name)
		if err != nil || rank < 0 || !s.Enabled || s.Publisher != "zmq" || s.Endpoint == "" {
			continue
		}
		a := Announced{Rank: rank, Endpoint: s.Endpoint, Topic: s.Topic}
		if s.Replay != nil {
			a.Replay = *s.Replay
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Announced) int { return a.Rank - b.Rank })
	return all, nil
}

// Source is where the events of one rank come from.
type Source struct {
	Rank    int
	Address string // of the publisher; empty: the publisher connects to the gateway
	Replay  string // of the replay endpoint; empty: none
	Topic   string // prefix of the topics to read; without Address, the whole topic
}

// Sources returns the sources of a worker at a host, which is empty for a Unix socket. announced has the
// sources that its engine states; nil if it states none.
func (c Config) Sources(host string, announced []Announced) []Source {
	var all []Source
	ranks := max(1, c.Ranks)
	if c.Rank != nil {
		ranks = *c.Rank + 1
	}
	switch {
	case c.Off():
	case c.Port > 0:
		for r := range ranks {
			s := Source{Rank: r, Address: tcp(host, c.Port+r), Topic: c.Topic}
			if c.ReplayPort > 0 {
				s.Replay = tcp(host, c.ReplayPort+r)
			}
			all = append(all, s)
		}
	case len(announced) > 0:
		for _, a := range announced {
			if s, ok := a.source(host); ok {
				all = append(all, s)
			}
		}
	case c.Topic != "":
		s := Source{Topic: c.Topic}
		if c.ReplayPort > 0 {
			s.Replay = tcp(host, c.ReplayPort)
		}
		all = append(all, s)
	}
	return slices.DeleteFunc(all, func(s Source) bool { return c.Rank != nil && s.Rank != *c.Rank })
}

// source converts an announced source. vLLM listens on an endpoint with a wildcard and on ipc; to
// any other endpoint it connects. It always listens on the replay endpoint. ok is false for an
// endpoint that other processes or machines cannot reach.
func (a Announced) source(host string) (s Source, ok bool) {
	s = Source{Rank: a.Rank, Topic: a.Topic}
	switch {
	case strings.HasPrefix(a.Endpoint, "ipc://"):
		s.Address, ok = a.Endpoint, local(host)
	case strings.Contains(a.Endpoint, "*") || strings.Contains(a.Endpoint, "::"):
		s.Address = atHost(host, a.Endpoint)
		ok = s.Address != ""
	default:
		ok = strings.HasPrefix(a.Endpoint, "tcp://")
	}
	switch {
	case strings.HasPrefix(a.Replay, "tcp://"):
		s.Replay = atHost(host, a.Replay)
	case strings.HasPrefix(a.Replay, "ipc://") && local(host):
		s.Replay = a.Replay
	}
	return s, ok
}

// atHost returns the port of a tcp endpoint at a host; empty if the endpoint has none.
func atHost(host, endpoint string) string {
	port, err := strconv.ParseUint(endpoint[strings.LastIndexByte(endpoint, ':')+1:], 10, 16)
	if err != nil || port == 0 || !strings.HasPrefix(endpoint, "tcp://") {
		return ""
	}
	return tcp(host, int(port))
}

// tcp returns the ZeroMQ address of a port. A worker without a host is on this machine.
func tcp(host string, port int) string {
	if host == "" {
		host = "127.0.0.1"
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
}

func local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || err == nil && ip.IsLoopback()
}
