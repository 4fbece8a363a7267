package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"tierway/bench/processes"
)

// sharedShape is the shape of -shared: half of each prompt is new, so that the routing history grows with every
// request.
const sharedShape = "8 KB, half of it new"

// sharedReport is what -shared prints.
type sharedReport struct {
	setup
	Alone   spread      `json:"alone_cpu_us_per_request"`
	Redis   sharedCosts `json:"one_gateway_with_redis"`
	Two     sharedCosts `json:"two_gateways_with_redis"`
	IdleOps float64     `json:"idle_commands_per_second"` // of Redis, with two gateways without a request
	Keys    [2]float64  `json:"key_bytes"`                // of the loads and of the log, after the last round
}

// sharedCosts are the costs of gateways with one Redis under load, each at the rate of the run.
type sharedCosts struct {
	CPU      spread `json:"cpu_us_per_request"` // of the first gateway
	Ratio    spread `json:"over_alone"`
	RedisCPU spread `json:"redis_cpu_us_per_request"`
	Commands spread `json:"redis_calls_per_second"` // of all gateways, scripts count as one
	In       spread `json:"redis_bytes_in_per_second"`
	Out      spread `json:"redis_bytes_out_per_second"`
}

// sharedGroup is a number of gateways with one Redis, or a single gateway without one.
type sharedGroup struct {
	gateways  []proxy
	redis     *processes.Redis
	loads     []*load
	cpu       []float64 // per round
	redisCPU  []float64
	calls     []float64
	in, outgo []float64
}

// measureShared measures what sharing through Redis costs: a gateway without Redis, one with it and two with it, in
// turns, each at -rate requests per second.
func measureShared(ctx context.Context, o options, out io.Writer) error {
	return withWorker(ctx, o, func(ctx context.Context, c *children, b *bench, worker string) error {
		groups := make([]*sharedGroup, 3)
		for i, gateways := range []int{1, 1, 2} {
			g := &sharedGroup{}
			groups[i] = g
			c.redis = ""
			if i > 0 {
				server, err := c.StartRedis(ctx, fmt.Sprint("redis", i), o.redis)
				if err != nil {
					return err
				}
				g.redis, c.redis = server, "redis://"+server.Addr
			}
			for k := range gateways {
				p, err := c.startTierway(ctx, fmt.Sprintf("gateway%d%d", i, k), o.bin, worker, b.key, silentConf())
				if err != nil {
					return err
				}
				l := b.load
				if k > 0 {
					if l, err = c.startLoad(ctx); err != nil {
						return err
					}
				}
				g.gateways, g.loads = append(g.gateways, p), append(g.loads, l)
			}
		}
		rep := sharedReport{setup: b.setup}
		rep.Tierway = groups[0].gateways[0].version
		for round := -1; round < o.rounds; round++ {
			for turn := range groups {
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("interrupted: %w", err)
				}
				g := groups[(turn+round+1)%len(groups)]
				if err := g.round(b.key, o, round >= 0); err != nil {
					return err
				}
			}
		}
		if err := rep.measureIdle(groups[2].redis); err != nil {
			return err
		}
		rep.Alone = spreadOfList(groups[0].cpu)
		rep.Redis, rep.Two = groups[1].costs(groups[0].cpu), groups[2].costs(groups[0].cpu)
		return printReport(out, o, rep)
	})
}

// round loads all gateways of the group at the same time, and keeps the costs if counts is set.
func (g *sharedGroup) round(key string, o options, counts bool) error {
	before, err := g.snapshot()
	if err != nil {
		return err
	}
	type outcome struct {
		result
		err error
	}
	done := make(chan outcome, len(g.gateways))
	for i, p := range g.gateways {
		go func() {
			r, err := g.loads[i].run(job{Addr: p.addr, Key: key, Shape: sharedShape, Connections: o.connections,
				Seconds: o.seconds, Rate: o.rate})
			if err == nil && (r.Failed > 0 || r.Done == 0) {
				err = fmt.Errorf("%d answers were complete, %d requests failed: %s", r.Done, r.Failed, r.Failure)
			}
			done <- outcome{r, err}
		}()
	}
	requests := 0
	for range g.gateways {
		r := <-done
		if r.err != nil {
			return r.err
		}
		requests += r.Done
	}
	time.Sleep(o.pause)
	after, err := g.snapshot()
	if err != nil || !counts {
		return err
	}
	perGateway := float64(requests) / float64(len(g.gateways))
	g.cpu = append(g.cpu, float64(after.cpu-before.cpu)/1e3/perGateway)
	seconds := after.at.Sub(before.at).Seconds()
	g.redisCPU = append(g.redisCPU, float64(after.redisCPU-before.redisCPU)/1e3/float64(requests))
	g.calls = append(g.calls, (after.stats.Calls-before.stats.Calls)/seconds)
	g.in = append(g.in, (after.stats.In-before.stats.In)/seconds)
	g.outgo = append(g.outgo, (after.stats.Out-before.stats.Out)/seconds)
	return nil
}

// sharedSnapshot is the counters of a group at one moment.
type sharedSnapshot struct {
	at            time.Time
	cpu, redisCPU time.Duration // of the first gateway and of Redis
	stats         processes.RedisStats
}

func (g *sharedGroup) snapshot() (s sharedSnapshot, err error) {
	proc := os.DirFS("/proc")
	s.at = time.Now()
	if s.cpu, err = processes.CPUTime(proc, g.gateways[0].pid); err != nil || g.redis == nil {
		return s, err
	}
	if s.redisCPU, err = processes.CPUTime(proc, g.redis.PID); err != nil {
		return s, err
	}
	s.stats, err = g.redis.Stats()
	return s, err
}

// costs returns the costs of the group beside those of the gateway without Redis in the same rounds.
func (g *sharedGroup) costs(alone []float64) sharedCosts {
	ratios := make([]float64, len(g.cpu))
	for i := range ratios {
		ratios[i] = g.cpu[i] / alone[i]
	}
	return sharedCosts{CPU: spreadOfList(g.cpu), Ratio: spreadOfList(ratios), RedisCPU: spreadOfList(g.redisCPU),
		Commands: spreadOfList(g.calls), In: spreadOfList(g.in), Out: spreadOfList(g.outgo)}
}

// idleTime is how long the idle gateways are observed.
const idleTime = 5 * time.Second

// measureIdle measures the commands of two gateways without a request, and the size of their keys.
func (r *sharedReport) measureIdle(server *processes.Redis) error {
	for i, key := range []string{"tierway:{gateways}:v1:loads", "tierway:{gateways}:v1:journal"} {
		text, err := server.Do("MEMORY USAGE " + key)
		if err != nil {
			return err
		}
		r.Keys[i], _ = strconv.ParseFloat(text, 64) // an absent key has no size
	}
	before, err := server.Stats()
	if err != nil {
		return err
	}
	time.Sleep(idleTime)
	after, err := server.Stats()
	r.IdleOps = (after.Calls - before.Calls) / idleTime.Seconds()
	return err
}

// spreadOfList is the spread of a list.
func spreadOfList(list []float64) spread {
	rounds := make([][]result, len(list))
	for i, x := range list {
		rounds[i] = []result{{CPU: x}}
	}
	return spreadOf(rounds, func(r []result) float64 { return r[0].CPU })
}

// String returns the report as a table.
func (r sharedReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: what gateways share through Redis, %d cores, %s, %g/s for each gateway, ",
		r.Tierway, r.Cores, sharedShape, r.Rate)
	fmt.Fprintf(&b, "median of %d rounds of %g s\n", r.Rounds, r.Seconds)
	row := func(name string, cells ...string) {
		fmt.Fprintf(&b, "%-34s", name)
		for _, c := range cells {
			fmt.Fprintf(&b, "  %-24s", c)
		}
		b.WriteString("\n")
	}
	whole := func(s spread) string { return fmt.Sprintf("%.0f (%.0f–%.0f)", s.Median, s.Min, s.Max) }
	b.WriteString("\n")
	row("", "one, no Redis", "one, Redis", "two, one Redis")
	row("CPU of a gateway, µs per request", whole(r.Alone), whole(r.Redis.CPU), whole(r.Two.CPU))
	row("÷ one gateway without Redis", "1", ratio(r.Redis.Ratio), ratio(r.Two.Ratio))
	row("CPU of Redis, µs per request", "", whole(r.Redis.RedisCPU), whole(r.Two.RedisCPU))
	row("calls of Redis per second", "", whole(r.Redis.Commands), whole(r.Two.Commands))
	row("bytes to Redis per second", "", whole(r.Redis.In), whole(r.Two.In))
	row("bytes from Redis per second", "", whole(r.Redis.Out), whole(r.Two.Out))
	fmt.Fprintf(&b, "\ntwo gateways without a request: %.1f calls per second\n", r.IdleOps)
	fmt.Fprintf(&b, "size of the loads: %.0f bytes; of the log: %.0f bytes\n", r.Keys[0], r.Keys[1])
	return b.String()
}
