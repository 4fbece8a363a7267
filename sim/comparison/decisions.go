package comparison

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"tierway/decisions"
	"tierway/routing"
	"tierway/sim"
)

// DecisionArrivals returns the requests of a gateway's decision records, in the order of their
// arrival. Requests that never reached a worker, and those without a prompt, are left out.
//
// A record has the hashes of some blocks of its prompt, with their ends in characters. Prompts share the
// blocks between two of them if they share the later one.
func DecisionArrivals(records []*decisions.Decision) ([]sim.Arrival, error) {
	sent := slices.DeleteFunc(slices.Clone(records), func(d *decisions.Decision) bool {
		return d.Worker == "" || promptTokens(d) <= 0
	})
	if len(sent) == 0 {
		return nil, errors.New("no decision record has a prompt that reached a worker")
	}
	slices.SortStableFunc(sent, func(a, b *decisions.Decision) int { return a.Time.Compare(b.Time) })
	block := blockCharacters(sent)
	all := make([]sim.Arrival, len(sent))
	for i, d := range sent {
		all[i] = sim.Arrival{At: d.Time.Sub(sent[0].Time), Request: requestOf(d, block)}
	}
	return all, nil
}

func promptTokens(d *decisions.Decision) int64 { return cmp.Or(d.Usage.Prompt, d.PromptTokens) }

// blockCharacters returns the characters of a rebuilt block. It is the same for all prompts, so that
// those with a common beginning have common blocks.
func blockCharacters(records []*decisions.Decision) int64 {
	characters, tokens := 1.0, 1.0
	for _, d := range records {
		if n := len(d.Features.Chain); n > 0 {
			characters += float64(d.Features.Chain[n-1].End)
			tokens += float64(promptTokens(d))
		}
	}
	return max(1, int64(math.Round(sim.BlockTokens*characters/tokens)))
}

// requestOf returns the request of a record.
func requestOf(d *decisions.Decision, blockCharacters int64) sim.Request {
	r := sim.Request{
		Kind: "recorded", Tenant: d.Tenant, Session: uint64(d.Features.Session), Prefix: uint64(d.Features.Prefix),
		PromptTokens: promptTokens(d), OutputTokens: max(1, d.Usage.Output), MaxTokens: d.MaxTokens,
	}
	maxBlocks := int((r.PromptTokens + sim.BlockTokens - 1) / sim.BlockTokens)
	r.Chain = chainOf(d.Features.Chain, blockCharacters, maxBlocks)
	return r
}

// chainOf rebuilds a chain of at most that many blocks.
func chainOf(links []routing.Link, blockCharacters int64, maxBlocks int) (chain []routing.Block) {
	for _, l := range links {
		for len(chain) < maxBlocks {
			end := int64(len(chain)+1) * blockCharacters
			if end > l.End {
				break
			}
			chain = append(chain, routing.Block{Hash: routing.Mix(l.Hash ^ routing.Mix(uint64(end))), End: end})
		}
	}
	return chain
}
