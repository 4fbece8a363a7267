package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/routing"
)

const (
	prefills     = routing.StagePrefill
	decodes      = routing.StageDecode
	decodesWhole = routing.StageWhole | routing.StageDecode // a decode engine that can compute prompts
	allStages    = decodesWhole | routing.StagePrefill
)

// fleetOf returns engines with these stages.
func fleetOf(stages ...routing.Stages) []Engine {
	engines := make([]Engine, len(stages))
	for i, s := range stages {
		engines[i].Stages = s
	}
	return engines
}

// handedOver returns a simulation without a queue, in which the hand-over is by that threshold.
func handedOver(threshold int64, engines []Engine, loads ...Load) Config {
	return Config{Engines: engines, Policy: leastLoad(), Admission: Direct, Loads: loads, Choices: true,
		Handover: &Handover{Policy: leastLoad(), Threshold: threshold}}
}

func TestBothStagesTakeTheirTimes(t *testing.T) {
	text := Extend(nil, 1, 960)
	ask := func(chain []routing.Block, prompt int64) Request {
		return Request{Chain: chain, PromptTokens: prompt, OutputTokens: 10}
	}
	type stages struct {
		prefill string // engine; empty: the decode engine computes the prompt
		worker  string
		// when the prefill begins and the prompt is computed, and when the answer begins and ends
		begin, computed, first, done time.Duration
		cached                       int64
	}
	us := time.Microsecond
	for name, c := range map[string]struct {
		config Config
		want   []stages
	}{
		"remote: 1,000 tokens at 10,000/s and 8 ms, 5 µs for each to transfer, then the last token and 10 at 20.4 ms": {
			handedOver(1, fleetOf(prefills, decodesWhole), at{{0, ask(nil, 1000)}}),
			[]stages{{"e0", "e1", 0, 108 * ms, 121100 * us, 325100 * us, 0}},
		},
		"at once, with a faster transfer": {
			Config{Engines: fleetOf(prefills, decodes), Policy: leastLoad(), Admission: Direct,
				Loads: []Load{at{{0, ask(nil, 1000)}}}, Handover: &Handover{Policy: leastLoad(), BothAtOnce: true, Rate: 1e6}},
			[]stages{{"e0", "e1", 0, 108 * ms, 117100 * us, 321100 * us, 0}},
		},
		"local: the decode engine computes it": {
			handedOver(0, fleetOf(prefills, decodesWhole), at{{0, ask(nil, 1000)}}),
			[]stages{{"", "e1", 0, 108 * ms, 108 * ms, 312 * ms, 0}},
		},
		"a prompt that is handed over is in both caches, and only missing tokens are transferred": {
			handedOver(1, fleetOf(prefills, decodes), at{{0, ask(text, 960)}, {time.Second, ask(Extend(text, 2, 640), 1600)}}),
			[]stages{{"e0", "e1", 0, 104 * ms, 116900 * us, 320900 * us, 0},
				{"e0", "e1", time.Second, 1072 * ms, 1083300 * us, 1287300 * us, 960}},
		},
		"answers do not slow a prefill down, and prefills no answer": {
			handedOver(1, fleetOf(prefills, decodes), at{{0, ask(nil, 1000)}, {150 * ms, ask(nil, 1000)}}),
			[]stages{{"e0", "e1", 0, 108 * ms, 121100 * us, 325100 * us, 0},
				// the last token at 0.996 of the rate, beside the first answer
				{"e0", "e1", 150 * ms, 258 * ms, 271100401, 479100401, 0}},
		},
		"in chunks: steps of 120, 20.1 and 20.4 ms, and no step for the answer on the prefill engine": {
			handedOver(1, []Engine{{Stages: prefills, Chunk: 1000}, {Stages: decodes, Chunk: 1000}},
				at{{0, ask(nil, 1000)}, {120 * ms, ask(nil, 1000)}}),
			[]stages{{"e0", "e1", 0, 120 * ms, 145100 * us, 350800 * us, 0},
				{"e0", "e1", 120 * ms, 240 * ms, 267600 * us, 473200 * us, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []stages
			for _, rec := range play(t, c.config).Records {
				got = append(got, stages{rec.Prefill, rec.Worker, rec.Started, rec.Computed, rec.First, rec.Done, rec.Cached})
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestBothStagesAreBookedAsInTheGateway compares the bookings at moments between the events of one request.
func TestBothStagesAreBookedAsInTheGateway(t *testing.T) {
	streamed := Request{PromptTokens: 1000, OutputTokens: 10}
	for name, c := range map[string]struct {
		atOnce     bool
		unstreamed float64
		want       []string // requests and pending tokens of both engines, at the moments below
	}{
		"streams":                {want: []string{"1 1000, 1 0", "1 0, 1 0", "0 0, 1 0", "0 0, 0 0"}},
		"whole answers":          {unstreamed: 1, want: []string{"1 1000, 1 0", "0 0, 1 0", "0 0, 1 0", "0 0, 0 0"}},
		"at once":                {atOnce: true, want: []string{"1 1000, 1 0", "1 1000, 1 0", "0 0, 1 0", "0 0, 0 0"}},
		"at once, whole answers": {true, 1, []string{"1 1000, 1 0", "1 1000, 1 0", "1 0, 1 0", "0 0, 0 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := handedOver(1, fleetOf(prefills, decodes), at{{0, streamed}})
			config.UnstreamedShare, config.Handover.BothAtOnce = c.unstreamed, c.atOnce
			w, err := newSimulation(config)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			// during the prefill, the transfer, the answer, and after the end
			for _, moment := range []time.Duration{50 * ms, 110 * ms, 200 * ms, time.Second} {
				w.At(moment, func() {
					all := w.Pool().Snapshot(w.time(w.now))
					got = append(got, fmt.Sprintf("%d %d, %d %d", all[0].Inflight, all[0].PendingTokens, all[1].Inflight,
						all[1].PendingTokens))
				})
			}
			allIsGivenBack(t, w, w.run())
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestPrefillStagesReportTheirUsage: the second of two equal prompts has 14 cached blocks. The gateway reads no usage
// of an SGLang stream's prefill stage.
func TestPrefillStagesReportTheirUsage(t *testing.T) {
	text := Request{Chain: Extend(nil, 1, 960), PromptTokens: 960, OutputTokens: 10}
	for _, c := range []struct {
		atOnce     bool
		unstreamed float64
		hidden     bool
		want       int64
	}{{want: 896}, {unstreamed: 1, want: 896}, {atOnce: true}, {atOnce: true, unstreamed: 1, want: 896}, {hidden: true}} {
		config := handedOver(1, fleetOf(prefills, decodes), at{{0, text}, {time.Second, text}})
		config.UnstreamedShare, config.HideCachedTokens, config.Handover.BothAtOnce = c.unstreamed, c.hidden, c.atOnce
		w, err := newSimulation(config)
		if err != nil {
			t.Fatal(err)
		}
		r := w.run()
		if got := w.Pool().Predictions().CachedTokens; got != c.want || r.Records[1].Cached != 896 {
			t.Errorf("%+v: the gateway learned from %d cached tokens; the engine had %d", c, got, r.Records[1].Cached)
		}
	}
}

// TestRolesWorkWithEveryAdmission: the decision is the gateway's, all is given back, and no engine gets what its role
// cannot serve.
func TestRolesWorkWithEveryAdmission(t *testing.T) {
	fleets := map[string][]routing.Stages{
		"three roles": {prefills, prefills, decodesWhole, decodesWhole, allStages},
		"one stage":   {prefills, prefills, decodes, decodes, routing.StageWhole},
		"mixed":       {allStages, allStages, allStages},
	}
	for name, stages := range fleets {
		for _, admission := range []Admission{Queued, Direct, FIFO} {
			for _, gateways := range []int{1, 3} {
				c := Config{Seed: 1, Engines: fleetOf(stages...), Policy: routing.Config{Name: "kv_aware"}, Events: true,
					Admission: admission, Queue: patient(), Gateways: gateways, UnstreamedShare: 0.3, Scrape: time.Second,
					Loads:    []Load{Sessions{Rate: 3, Until: 20 * time.Second}},
					Handover: &Handover{Policy: routing.Config{Name: "kv_aware"}, Threshold: 500, BothAtOnce: name == "one stage"}}
				for i := range c.Engines {
					c.Engines[i].MaxInflight = 12
				}
				ways := map[string]int{}
				r := play(t, c)
				for _, e := range r.Engines {
					if e.Left != 0 {
						t.Errorf("%s: %d requests are left in %s", name, e.Left, e.Name)
					}
				}
				for _, rec := range r.Records {
					of := func(worker string) routing.Stages { return stages[worker[1]-'0'] }
					switch {
					case rec.Err != nil:
						t.Errorf("%s: %v", name, rec.Err)
					case rec.Prefill == "":
						ways["local"]++
						if of(rec.Worker)&routing.StageWhole == 0 || rec.Computed != rec.First {
							t.Errorf("%s: %s computed a prompt at %s, the answer began at %s", name, rec.Worker, rec.Computed, rec.First)
						}
					default:
						ways["remote"]++
						if of(rec.Prefill)&prefills == 0 || of(rec.Worker)&decodes == 0 || rec.Prefill == rec.Worker ||
							rec.Started > rec.Computed || rec.Computed >= rec.First {
							t.Errorf("%s: %s computed a prompt for %s from %s to %s, the answer began at %s", name, rec.Prefill,
								rec.Worker, rec.Started, rec.Computed, rec.First)
						}
					}
				}
				if ways["local"] < 10 || ways["remote"] < 10 {
					t.Errorf("%s, %v, %d gateways: %v", name, admission, gateways, ways)
				}
			}
		}
	}
}

// TestFiguresOfStages: the prefill engine computes a prompt from 0 to 108 ms. The decode engine answers it from 121.1
// to 325.1 ms, and computes the next one from 400 to 458 ms. The shares are those of the 500 ms up to the last request.
func TestFiguresOfStages(t *testing.T) {
	c := handedOver(600, fleetOf(prefills, decodesWhole), at{{0, Request{PromptTokens: 1000, OutputTokens: 10}},
		{400 * ms, Request{PromptTokens: 500, OutputTokens: 10}}, {500 * ms, Request{PromptTokens: 400, OutputTokens: 10}}})
	f := play(t, c).Figures(0).Stages
	got := fmt.Sprintf("%.3f %v %v %v", f.Remote, f.Prefill, f.Decode, f.Token)
	for _, r := range f.Roles {
		got += fmt.Sprintf(", %d %s %.3f %.3f", r.Engines, r.Role, r.Busy, r.Answers)
	}
	if want := "0.333 [108ms] [13.1ms] [20.4ms 20.4ms 20.8ms], 1 prefill 0.216 0.000, 1 decode 0.116 0.492"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c.Handover = nil
	if f := play(t, c).Figures(0).Stages; len(f.Roles) != 1 || f.Roles[0].Role != "whole" || f.Roles[0].Engines != 2 ||
		f.Remote != 0 || f.Prefill != nil {
		t.Errorf("without a hand-over: %+v", f)
	}
}

func TestHandoversThatCannotWorkAreRefused(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		`no engine generates answers`:                 func(c *Config) { c.Engines = fleetOf(prefills, prefills) },
		`the policy of the prefill stage`:             func(c *Config) { c.Handover.Policy.Name = "fastest" },
		`DirectShare 0.5: requests past the gateways`: func(c *Config) { c.DirectShare = 0.5 },
		`NewPolicy: a policy that reads`:              func(c *Config) { c.NewPolicy = Peers()[0].New },
	} {
		c := handedOver(1, fleetOf(prefills, decodesWhole))
		change(&c)
		if _, err := Run(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
