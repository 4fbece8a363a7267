package admin

import (
	"context"
	"time"

	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
)

type tierState struct {
	Name    string         `json:"name"`
	Tier    bool           `json:"tier" doc:"One of the tiers, which are listed in their order; else a pool."`
	Model   string         `json:"model" doc:"What its workers serve; empty: what clients ask for."`
	Models  []string       `json:"models" nullable:"false" doc:"Every name that pins it."`
	Serves  []string       `json:"serves" nullable:"false"`
	Context int64          `json:"context" doc:"Tokens of prompt and answer that its model takes; 0: not known."`
	Price   tenants.Price  `json:"price" doc:"Units of money for a million tokens."`
	Workers map[string]int `json:"workers" doc:"By state."`
	Queued  int            `json:"queued" doc:"Requests that wait; GET /admin/queues/{tier} lists them."`
	Learned poolState      `json:"learned"`
}

func (a *Plane) listTiers(context.Context, *struct{}) (*reply[page[tierState]], error) {
	return whole(mapped(a.control.Snapshot().Pools, func(p *control.Pool) tierState {
		states, learned := a.poolWorkers(p, time.Now())
		t := tierState{Name: p.Name, Tier: p.Tier, Model: p.Model, Models: append([]string{}, p.Models...), Serves: mapped(p.Serves, openai.Dialect.String),
			Context: p.Context, Price: p.Price, Workers: map[string]int{}, Queued: p.WaitQueue.Waiting(), Learned: learned}
		for _, w := range states {
			t.Workers[w.State]++
		}
		return t
	})), nil
}
