package admin

import (
	"context"
	"time"

	"tierway/tenants"
)

// TierState is a tier or pool as GET /admin/tiers shows it.
type TierState struct {
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

func (a *workerAPI) listTiers(context.Context, *struct{}) (*reply[Page[TierState]], error) {
	p := Page[TierState]{Items: []TierState{}}
	for _, pool := range a.control.Snapshot().Pools {
		states, learned := a.poolWorkers(pool, time.Now())
		t := TierState{Name: pool.Name, Tier: pool.Tier, Model: pool.Model, Models: append([]string{}, pool.Models...), Serves: []string{},
			Context: pool.Context, Price: pool.Price, Workers: map[string]int{}, Queued: pool.WaitQueue.Waiting(), Learned: learned}
		for _, d := range pool.Serves {
			t.Serves = append(t.Serves, d.String())
		}
		for _, w := range states {
			t.Workers[w.State]++
		}
		p.Items = append(p.Items, t)
	}
	p.Total = len(p.Items)
	return &reply[Page[TierState]]{Body: p}, nil
}
