package sim

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestChunkedPrefillFollowsTheModel(t *testing.T) {
	newRequest := func(prompt, output int64) Request { return Request{PromptTokens: prompt, OutputTokens: output} }
	chain := Extend(nil, 1, 640)
	const us = time.Microsecond
	for name, c := range map[string]struct {
		engine   Engine
		requests at
		want     []moments
	}{
		"alone: a step of 20 ms with 1,000 tokens at 10,000/s, then 3 steps of one token": {
			requests: at{{0, newRequest(1000, 3)}},
			want:     []moments{{0, 120 * ms, 181200 * us}},
		},
		"a long prompt takes two steps, and the rest of the second one has the next prompt": {
			requests: at{{0, newRequest(3000, 1)}, {0, newRequest(500, 2)}},
			want:     []moments{{0, 390 * ms, 410800 * us}, {0, 390 * ms, 431200 * us}},
		},
		"an answer's token is part of each step, and waits for the prompt beside it": {
			requests: at{{0, newRequest(1000, 2)}, {130 * ms, newRequest(2047, 1)}},
			want:     []moments{{0, 120 * ms, 365500 * us}, {130 * ms, 365500 * us, 385900 * us}},
		},
		"a request beyond max_num_seqs waits inside the engine": {
			engine:   Engine{MaxSeqs: 1},
			requests: at{{0, newRequest(800, 1)}, {0, newRequest(800, 1)}},
			want:     []moments{{0, 100 * ms, 120400 * us}, {0, 220400 * us, 240800 * us}},
		},
		"cached blocks take no part of a step": {
			requests: at{{0, Request{Chain: chain, PromptTokens: 640, OutputTokens: 1}},
				{time.Second, Request{Chain: chain, PromptTokens: 640, OutputTokens: 1}}},
			want: []moments{{0, 84 * ms, 104400 * us}, {time.Second, 1026400 * us, 1046800 * us}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.engine.Chunk = 2048
			r := play(t, Config{Engines: []Engine{c.engine}, Queue: patient(), Loads: []Load{c.requests}})
			if got := momentsOf(r); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestChunkedPrefillEqualsAModelOfSingleSteps compares the engine with a loop over all steps.
func TestChunkedPrefillEqualsAModelOfSingleSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Engine{Chunk: rapid.Int64Range(1, 300).Draw(t, "chunk"), MaxSeqs: rapid.IntRange(0, 3).Draw(t, "seqs"),
			MaxInflight: 100}
		var requests at
		when := time.Duration(0)
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			when += time.Duration(rapid.IntRange(0, 400).Draw(t, "pause"))*ms + 1 // no arrival at the end of a step
			requests = append(requests, struct {
				when    time.Duration
				request Request
			}{when, Request{PromptTokens: rapid.Int64Range(1, 900).Draw(t, "prompt"),
				OutputTokens: rapid.Int64Range(1, 30).Draw(t, "output")}})
		}
		r, err := Run(Config{Engines: []Engine{e}, Queue: patient(), Loads: []Load{requests}})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := momentsOf(r), singleSteps(e.withDefaults(), requests); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// singleSteps returns the times of requests on an engine that is computed step by step.
func singleSteps(e Engine, requests at) []moments {
	all := make([]moments, len(requests))
	prompt, output := make([]int64, len(requests)), make([]int64, len(requests))
	for i, a := range requests {
		all[i].granted, prompt[i], output[i] = a.when, a.request.PromptTokens, a.request.OutputTokens
	}
	for now, ended := time.Duration(0), 0; ended < len(requests); {
		running, inside, left := 0, 0, int64(0)
		for i := range requests {
			if prompt[i] == 0 && output[i] > 0 {
				running, inside = running+1, inside+1
			}
		}
		left = max(1, e.Chunk-int64(running))
		parts, tokens := make([]int64, len(requests)), int64(0)
		for i, a := range requests {
			if a.when <= now && prompt[i] > 0 && left > 0 && (e.MaxSeqs == 0 || inside < e.MaxSeqs) {
				parts[i] = min(left, prompt[i])
				left, tokens, inside = left-parts[i], tokens+parts[i], inside+1
			}
		}
		if running == 0 && tokens == 0 { // idle until the next arrival
			for _, a := range requests {
				if a.when > now {
					now = a.when
					break
				}
			}
			continue
		}
		now += e.step(tokens, running)
		for i := range requests {
			switch {
			case prompt[i] == 0 && output[i] > 0:
				if output[i]--; output[i] == 0 {
					all[i].done, ended = now, ended+1
				}
			case parts[i] > 0:
				if prompt[i] -= parts[i]; prompt[i] == 0 {
					all[i].first = now
				}
			}
		}
	}
	return all
}
