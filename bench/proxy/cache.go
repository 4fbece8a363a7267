package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// The shapes of -cache: chats of 1 KB without a temperature, each new or all equal, and each new for a gateway that
// answers all of them with one answer.
const (
	newChats     = "1 KB, new"
	equalChats   = "1 KB, equal"
	similarChats = "1 KB, similar"
	cacheBytes   = 1000
)

// cacheShapes returns the shapes of -cache. An answer that the gateway has kept has another id than the worker's.
func cacheShapes() []shape {
	body := question(cacheBytes, `"temperature":0,`)
	kept := func(got []byte) error {
		if bytes.Contains(got, []byte(`"chatcmpl-bench"`)) || !bytes.Contains(got, []byte(`"content":"xxxx`)) {
			return fmt.Errorf("the answer is no kept one: %.200s", got)
		}
		return nil
	}
	return []shape{
		{name: newChats, body: body, check: shapes()[0].check, vary: len(body) / 2},
		{name: equalChats, body: body, check: kept},
		{name: similarChats, body: body, check: kept, vary: len(body) / 2},
	}
}

// embeddingDims is the number of dimensions of small embedding models.
const embeddingDims = 384

// embedding returns the worker's answer to a request for an embedding: all texts have one vector.
func embedding() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"object":"list","model":%q,"data":[{"object":"embedding","index":0,"embedding":[`, served)
	for i := range embeddingDims {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%.9f", math.Sin(float64(i))/14)
	}
	b.WriteString(`]}],"usage":{"prompt_tokens":200,"total_tokens":200}}`)
	return b.String()
}

// cacheCase is a gateway of -cache and its requests.
type cacheCase struct {
	name, section string // section is the tier's response_cache; empty: none
	shape         string
}

// cacheCases are the rows of the report. The first one is the reference. The time-out is so long that a busy machine
// loses no embedding.
var cacheCases = []cacheCase{
	{"without a cache", "", newChats},
	{"exact, misses", "{ exact: { ttl: 1h } }", newChats},
	{"exact, hits", "{ exact: { ttl: 1h } }", equalChats},
	{"semantic, hits", "{ exact: { ttl: 1h }, semantic: { embeddings: embed, ttl: 1h, timeout: 5s } }", similarChats},
}

// cacheConf returns a configuration of a gateway with a section response_cache, and a pool that embeds.
func cacheConf(name, worker, key, section string) string {
	text := tierwayConf(name, worker, key, "") + silentConf() + "pools:\n  - name: embed\n    model: embed\n" +
		fmt.Sprintf("    serves: [embeddings]\n    workers: [ { name: e, url: \"http://%s\" } ]\n", worker)
	if section == "" {
		return text
	}
	return strings.NewReplacer(
		`" }`+"\nstore:", `", response_cache: true }`+"\nstore:",
		"    workers:\n", "    response_cache: "+section+"\n    workers:\n").Replace(text)
}

// cacheReport is what -cache prints.
type cacheReport struct {
	setup
	Cases []cacheCosts `json:"cases"`
}

// cacheCosts are the costs of one case. Ratios compare figures of the same round with those of the first case.
type cacheCosts struct {
	Name  string `json:"name"`
	CPU   spread `json:"cpu_us_per_request"`
	Ratio spread `json:"over_without"`
	P99   spread `json:"p99_over_without"`
}

// measureCache measures what a response cache costs and saves: gateways without one, with misses, with exact hits and
// with semantic hits, at -rate requests per second in turns.
func measureCache(ctx context.Context, o options, out io.Writer) error {
	o.cpu = true
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		for i, r := range cacheCases {
			p, err := c.startGateway(ctx, fmt.Sprint("cache", i), o.bin,
				cacheConf(fmt.Sprint("cache", i), worker, b.key, r.section))
			if err != nil {
				return err
			}
			if r.section != "" {
				if err := fillCache(p.addr, b.key); err != nil {
					return fmt.Errorf("%s: %w", r.name, err)
				}
			}
			b.setup.Tierway = p.version
			b.targets = append(b.targets, target{name: r.name, addr: p.addr, pid: p.pid, shape: r.shape})
		}
		measured, err := b.rounds(ctx, o, job{Key: b.key, Connections: o.connections, Seconds: o.seconds, Rate: o.rate})
		if err != nil {
			return err
		}
		return printReport(out, o, cacheReport{setup: b.setup, Cases: cacheCostsOf(measured)})
	})
}

// fillCache sends a chat until the gateway has kept its answer, which it does after the answer has been sent.
func fillCache(addr, key string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.close()
	s := cacheShapes()[1]
	for end := time.Now().Add(startTimeout); ; time.Sleep(10 * time.Millisecond) {
		body, err := c.do(httpRequest(addr, key, s.body))
		if err == nil {
			err = s.check(body)
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// cacheCostsOf returns the costs of all cases.
func cacheCostsOf(rounds [][]result) (list []cacheCosts) {
	for i, c := range cacheCases {
		list = append(list, cacheCosts{Name: c.name,
			CPU:   spreadOf(rounds, func(r []result) float64 { return r[i].CPU }),
			Ratio: spreadOf(rounds, func(r []result) float64 { return r[i].CPU / r[0].CPU }),
			P99:   spreadOf(rounds, func(r []result) float64 { return r[i].P99 / r[0].P99 })})
	}
	return list
}

// String returns the report as a table.
func (r cacheReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: response cache, %d cores, chats of 1 KB at %g/s, median of %d rounds of %g s\n\n",
		r.Tierway, r.Cores, r.Rate, r.Rounds, r.Seconds)
	fmt.Fprintf(&b, "%-16s  %-24s %-24s %s\n", "", "µs of CPU per request", "÷ without a cache",
		"p99 ÷ without a cache")
	for _, c := range r.Cases {
		micros := fmt.Sprintf("%.0f (%.0f–%.0f)", c.CPU.Median, c.CPU.Min, c.CPU.Max)
		fmt.Fprintf(&b, "%-16s  %-24s %-24s %s\n", c.Name, micros, ratio(c.Ratio), ratio(c.P99))
	}
	return b.String()
}
