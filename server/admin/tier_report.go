package admin

import (
	"context"
	"time"

	"tierway/store"
	"tierway/tenants"
	"tierway/tierscore/report"
)

// TierReport is the usage of the tiers with their savings, and the quality of the tiers by labels.
type TierReport struct {
	Usage  *TierUsage     `json:"usage,omitempty" doc:"Absent: the gateway has no database."`
	Labels *report.Report `json:"labels,omitempty" doc:"Quality and cost by the share of requests at the large tier. Absent: the gateway writes no labels, or labels_problem has the reason."`
	// LabelsProblem is the reason why Labels is nil although the gateway writes labels.
	LabelsProblem string `json:"labels_problem,omitempty" doc:"Why there is no report of the labels, such as too few of them."`
}

// TierUsage is the usage of the tiers in a period, beside the cost that it would have at the last tier.
type TierUsage struct {
	From       string        `json:"from" doc:"First UTC day."`
	To         string        `json:"to" doc:"UTC day after the last one."`
	Tiers      []TierSum     `json:"tiers" nullable:"false" doc:"Tiers of the configuration, least capable first."`
	Except     string        `json:"except_tenant,omitempty" doc:"Tenant of learning.replay.api_key, whose requests are not counted. Absent: all tenants count."`
	Last       string        `json:"last_tier" doc:"Most capable tier, with which the cost is compared; empty without tiers."`
	Requests   int64         `json:"requests" doc:"Requests of all tiers that were not rejected."`
	Money      tenants.Money `json:"money" doc:"Cost of all tiers, with answers of the response cache at their full price."`
	AtLast     tenants.Money `json:"money_at_last_tier" doc:"Cost that the same tokens would have at the current price of the last tier."`
	Saved      tenants.Money `json:"saved" minimum:"-1000000000" doc:"money_at_last_tier minus money. Below 0: the tiers cost more than the last tier alone would."`
	Assumption string        `json:"assumption" doc:"Assumptions of the comparison."`
}

// TierSum is the usage of one tier.
type TierSum struct {
	Tier     string        `json:"tier"`
	Price    tenants.Price `json:"price" doc:"Current price, in currency units per million tokens."`
	Requests int64         `json:"requests" doc:"Requests that were not rejected."`
	Share    float64       `json:"share" doc:"Share of the requests of all tiers."`
	Prompt   int64         `json:"prompt_tokens"`
	Cached   int64         `json:"cached_tokens"`
	Output   int64         `json:"output_tokens"`
	Money    tenants.Money `json:"money" doc:"As it was charged, with answers of the response cache at their full price."`
	AtLast   tenants.Money `json:"money_at_last_tier" doc:"Cost that the same tokens would have at the current price of the last tier."`
}

const savingsAssumption = "The last tier generates the same tokens, and its current price applies to the whole period. " +
	"All requests of the tiers count, because the ledger does not record which ones were classified: also those that " +
	"named their tier, the repeated requests of learning.replay, and those of its judge.model."

func (a *historyAPI) getTierReport(ctx context.Context, in *struct {
	From string `query:"from" format:"date" doc:"First UTC day. Absent: 30 days before to."`
	To   string `query:"to" format:"date" doc:"UTC day after the last one. Absent: tomorrow."`
}) (*reply[TierReport], error) {
	var q store.UsageQuery
	if err := setUsageDays(&q, in.From, in.To, time.Now()); err != nil {
		return nil, err
	}
	var v TierReport
	if a.control.Stores.SQL != nil {
		except := a.repeater()
		rows, err := a.control.Stores.SQL.UsageByTier(ctx, q.From, q.To, except)
		if err != nil {
			return nil, a.failed("reading the usage by tier", err)
		}
		v.Usage = a.tierUsage(rows)
		if except != "" {
			v.Usage.Except = except
			v.Usage.Assumption += " Requests of the tenant " + except +
				", with which learning.replay repeats requests, do not count."
		}
		v.Usage.From, v.Usage.To = q.From.Format(time.DateOnly), q.To.Format(time.DateOnly)
	}
	if a.options.TierReport != nil {
		labels, err := a.options.TierReport(ctx)
		if v.Labels = labels; err != nil {
			v.Labels, v.LabelsProblem = nil, err.Error()
		}
	}
	if v.Usage != nil && v.Labels != nil {
		v.Labels.Money = v.Usage.MoneyOf(v.Labels.SmallTier, v.Labels.LargeTier)
	}
	return &reply[TierReport]{Body: v}, nil
}

// repeater returns the tenant whose requests are the gateway's own: that of learning.replay.api_key; empty without one.
func (a *historyAPI) repeater() string {
	snap := a.control.Snapshot()
	key := snap.File.Learning.Replay.APIKey
	if key == "" {
		return ""
	}
	own, err := snap.Identity.Directory.Authenticate(key, time.Now())
	if err != nil {
		return ""
	}
	return own.Tenant
}

// tierUsage returns the usage of the configured tiers. Pools, and tiers of the past, are left out.
func (a *historyAPI) tierUsage(rows []store.UsageRow) *TierUsage {
	u := &TierUsage{Tiers: []TierSum{}, Assumption: savingsAssumption}
	for _, p := range a.control.Snapshot().Pools {
		if p.Tier {
			u.Tiers = append(u.Tiers, TierSum{Tier: p.Name, Price: p.Price})
			u.Last = p.Name
		}
	}
	u.sum(rows)
	return u
}

// sum adds rows to the tiers, and compares each tier with the last one.
func (u *TierUsage) sum(rows []store.UsageRow) {
	byTier := map[string]store.UsageRow{}
	for _, r := range rows {
		byTier[r.Group] = r
	}
	for i := range u.Tiers {
		t := &u.Tiers[i]
		r := byTier[t.Tier]
		t.Requests, t.Prompt, t.Cached, t.Output = r.Requests-r.Refused, r.Prompt, r.Cached, r.Output
		t.Money = r.Money + r.Saved
		t.AtLast = u.Tiers[len(u.Tiers)-1].Price.Cost(r.Prompt, r.Cached, r.Output)
		u.Requests, u.Money, u.AtLast = u.Requests+t.Requests, u.Money+t.Money, u.AtLast+t.AtLast
	}
	u.Saved = u.AtLast - u.Money
	for i := range u.Tiers {
		u.Tiers[i].Share = float64(u.Tiers[i].Requests) / float64(max(u.Requests, 1))
	}
}

// MoneyOf returns the cost of requests with the mean tokens of all tiers, at the prices of two tiers; nil if it is not
// known.
func (u *TierUsage) MoneyOf(small, large string) *report.Money {
	prices, prompt, output := map[string]tenants.Price{}, int64(0), int64(0)
	for _, t := range u.Tiers {
		prices[t.Tier], prompt, output = t.Price, prompt+t.Prompt, output+t.Output
	}
	low, known := prices[small]
	high, also := prices[large]
	if !known || !also || u.Requests == 0 {
		return nil
	}
	return report.NewMoney(prompt/u.Requests, output/u.Requests, low, high)
}
