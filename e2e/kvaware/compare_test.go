package kvaware

import (
	"strings"
	"testing"
	"time"

	"tierway/e2e/conversations"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// size is the size of a comparison.
type size struct {
	requests int
	speed    float64 // of the replay
	full     bool
}

func sizeOf(t *testing.T, requests int) size {
	t.Helper()
	if full(t) {
		// Engines, client and gateway share the machine: a faster replay measures their own work, too.
		return size{requests: requests, speed: 2, full: true}
	}
	return size{requests: 24, speed: 40}
}

// full reports whether the comparisons have their full size.
func full(t *testing.T) bool { return rig.Soak(t, time.Second) >= rig.FullSoak }

const workers = 8

// run replays the chats through one policy and new engines. on is called for each request before it is sent,
// and may return another route for it; such a request is not part of the figures.
func run(t *testing.T, p policy, s size, cache int, chats []*conversations.Chat,
	on func(f *fleet, c *call) route) figures {
	t.Helper()
	f := newFleet(t, workers, s.speed, cache, chats)
	defer f.stop()
	var g *gateway.Process
	where := (&greedy{fleet: f}).route
	if p.setting != "" {
		g = f.serve(p)
		defer g.Stop()
		where = to(strings.TrimSuffix(g.BaseURL, "/v1"))
	}
	direct := make([]bool, len(chats))
	samples := replay(t.Context(), chats, s.speed, p.setting == "", func(c *call) (string, func()) {
		if on != nil {
			if other := on(f, c); other != nil {
				direct[c.Number] = true
				return other(c)
			}
		}
		return where(c)
	})
	for i := range samples {
		checkUsage(t, chats[i], &samples[i])
	}
	routed := samples[:0]
	for i, s := range samples {
		if !direct[i] {
			routed = append(routed, s)
		}
	}
	return figuresOf(t, p.name, routed, f, g)
}

// checkUsage compares the reported tokens with those of the trace.
func checkUsage(t *testing.T, c *conversations.Chat, s *sample) {
	t.Helper()
	if s.err != nil {
		return // figuresOf counts it
	}
	if want := int64(c.Input + c.TemplateTokens()); s.prompt != want || s.output != int64(c.Output) {
		t.Errorf("request %d: %d prompt and %d output tokens, want %d and %d", c.Number, s.prompt, s.output, want, c.Output)
	}
}

// TestPoliciesOnATrace compares policies on the same requests, one after the other. The reference is a
// router that reads the real state of each engine. In full size, kv_aware must have lower means than the
// other policies, and means close to the reference.
func TestPoliciesOnATrace(t *testing.T) {
	s := sizeOf(t, 1000)
	chats := conversations.Read(t, s.requests)
	var all []figures
	for _, p := range []policy{
		{name: "perfect greedy"},
		withEvents,
		withoutEvents,
		{name: "chwbl", setting: `{ name: chwbl }`},
		{name: "least_load", setting: `{ name: least_load }`},
	} {
		f := run(t, p, s, cacheTokens, chats, nil)
		if f.failed > 0 {
			t.Errorf("%s: %d requests failed", p.name, f.failed)
		}
		all = append(all, f)
	}
	logTable(t, all)
	if !s.full {
		return
	}
	perfect, exact, history := all[0], all[1], all[2]
	if share := exact.sources["events"]; share < 0.95 {
		t.Errorf("%.1f %% of the choices came from events, want 95 %%", 100*share)
	}
	skipIfLate(t, s, all)
	for _, c := range []struct {
		figures
		most float64
	}{{exact, 1.05}, {history, 1.12}} {
		ratio := c.mean.Seconds() / perfect.mean.Seconds()
		t.Logf("%s: %.3f of perfect greedy", c.name, ratio)
		if ratio > c.most {
			t.Errorf("%s: the mean is %.3f of that of perfect greedy, want at most %.2f", c.name, ratio, c.most)
		}
		for _, peer := range all[3:] {
			if c.mean >= peer.mean {
				t.Errorf("%s: the mean is %v, that of %s %v", c.name, c.mean, peer.name, peer.mean)
			}
		}
	}
}

// skipIfLate skips the comparison of times if the machine was too busy: engines, client and gateway share it.
func skipIfLate(t *testing.T, s size, all []figures) {
	t.Helper()
	const most = 0.02
	for _, f := range all {
		late := f.sendLate.Seconds() * s.speed / f.mean.Seconds()
		if f.prefillLate > most || late > most {
			t.Skipf("%s: prefills ended %.1f %% late, and requests were sent late by %.1f %% of the mean: the machine was "+
				"too busy, and the times are not compared", f.name, 100*f.prefillLate, 100*late)
		}
	}
}

// TestEventsCorrectTheHistory compares routing with and without events where the gateway's own history
// is wrong: events predict the cached tokens better, and find more of them if half of the requests go past the gateway.
// What this gains in time depends on the trace; `tierway simulate` compares the times.
func TestEventsCorrectTheHistory(t *testing.T) {
	s := sizeOf(t, 1000)
	chats := conversations.Read(t, s.requests)
	for _, c := range []struct {
		name   string
		cache  int
		worker string
		on     func(f *fleet, c *call) route
		hits   bool // events raise the hit rate
	}{
		{"half of the requests go past the gateway", cacheTokens, "", func(f *fleet, c *call) route {
			if c.Number%2 == 0 {
				return nil
			}
			return to(f.servers[c.Number/2%workers].URL)
		}, true},
		{"engines restart one after the other", cacheTokens, "", func(f *fleet, c *call) route {
			if every := len(chats) / workers; c.Number%every == every-1 {
				f.restart(c.Number / every % workers)
			}
			return nil
		}, false},
		{"the caches are half as large as configured", cacheTokens / 4, "cache_tokens: 512000", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			exact, history := withEvents, withoutEvents
			exact.worker, history.worker = c.worker, c.worker
			all := []figures{run(t, exact, s, c.cache, chats, c.on), run(t, history, s, c.cache, chats, c.on)}
			logTable(t, all)
			t.Logf("with events, the mean is %+.1f %%, and the hit rate is %+.1f points",
				100*(all[0].mean.Seconds()/all[1].mean.Seconds()-1), 100*(all[0].hits-all[1].hits))
			if !s.full {
				return
			}
			if c.hits && all[0].hits <= all[1].hits {
				t.Errorf("the hit rate is %.3f with events and %.3f without", all[0].hits, all[1].hits)
			}
			if all[0].wrong >= all[1].wrong {
				t.Errorf("%.4f of the prompt tokens are predicted wrong with events and %.4f without", all[0].wrong, all[1].wrong)
			}
		})
	}
}

// alone returns a replay of one chat, which is sent at once.
func alone(c *conversations.Chat) []*conversations.Chat {
	one := *c
	one.At = 0
	return []*conversations.Chat{&one}
}

// TestChatsReturnToTheWorkerWhoseEventsNameTheirPrompt: requests are sent one after the other. Nearly all
// tokens that a prompt has in common with earlier ones are cached, and events are the source of each choice.
func TestChatsReturnToTheWorkerWhoseEventsNameTheirPrompt(t *testing.T) {
	chats := conversations.New(conversations.Generate(1, 80))
	f := newFleet(t, 4, 1000, cacheTokens, chats)
	p := withEvents
	p.setting = `{ name: kv_aware, lookup_timeout: 10s }` // enough for slow machines
	g := f.serve(p)
	common, seen := int64(0), map[uint64]bool{}
	var samples []sample
	for _, c := range chats {
		for _, id := range c.HashIDs {
			if seen[id] {
				common += conversations.BlockTokens
			}
			seen[id] = true
		}
		s := replay(t.Context(), alone(c), 1, false, to(strings.TrimSuffix(g.BaseURL, "/v1")))[0]
		if s.err != nil {
			t.Fatal(s.err)
		}
		checkUsage(t, c, &s)
		samples = append(samples, s)
	}
	r := figuresOf(t, p.name, samples, f, g)
	logTable(t, []figures{r})
	prompt := int64(0)
	for _, s := range samples {
		prompt += s.prompt
	}
	if best := float64(common) / float64(prompt); r.hits < 0.95*best {
		t.Errorf("%.1f %% of the tokens were cached, and prompts had %.1f %% in common", 100*r.hits, 100*best)
	}
	// The cache of an engine is unknown before its first event.
	if r.sources["events"] < 0.9 {
		t.Errorf("sources of the choices: %v", r.sources)
	}
}

// TestEqualPromptsAtOnceArePrefilledOnce: sixteen requests with the same prompt of 8,000 tokens are sent at
// once to idle engines. Only one engine computes the prompt.
func TestEqualPromptsAtOnceArePrefilledOnce(t *testing.T) {
	const requests = 16
	chats := make([]*conversations.Chat, requests)
	first := conversations.New(conversations.Generate(1, 1))[0]
	for i := range chats {
		c := *first
		c.Number, c.Input, c.Output, c.At = i, 8000, 4, 0
		c.HashIDs, c.Ends, c.Shared = nil, []int{8000}, false
		for id := range uint64(16) {
			c.HashIDs = append(c.HashIDs, id)
		}
		chats[i] = &c
	}
	for _, p := range []policy{withEvents, withoutEvents} {
		t.Run(p.name, func(t *testing.T) {
			f := newFleet(t, 4, 1, cacheTokens, chats)
			g := f.serve(p)
			samples := replay(t.Context(), chats, 1, false, to(strings.TrimSuffix(g.BaseURL, "/v1")))
			computed := int64(0)
			for i := range samples {
				if samples[i].err != nil {
					t.Fatal(samples[i].err)
				}
				checkUsage(t, chats[i], &samples[i])
				computed += samples[i].prompt - samples[i].cached
			}
			// The block of the last token is always computed.
			if most := samples[0].prompt + (requests-1)*16; computed > most {
				t.Errorf("%d tokens were computed, want at most %d", computed, most)
			}
			used := 0
			for _, e := range f.engines {
				if e.Stats().Prefills > 0 {
					used++
				}
			}
			if used != 1 {
				t.Errorf("%d engines computed the prompt", used)
			}
		})
	}
}
