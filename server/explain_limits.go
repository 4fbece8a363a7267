package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"tierway/tenants"
)

// LimitUse is how far one limit is used. Money is in the unit that prices and
// budgets are written in.
type LimitUse struct {
	Whose string        `json:"whose" enum:"tenant,key"`
	Limit tenants.Limit `json:"limit"`
	Used  float64       `json:"used" doc:"Requests, tokens, or money in the unit of the configuration."`
	Room  float64       `json:"room" doc:"Of it how much may be used at once: of rpm, rps and tpm the burst, else the limit."`
	Rate  int64         `json:"rate,omitempty" doc:"Of rpm, rps and tpm the limit: what is given back a minute, of rps a second."`
	Asks  float64       `json:"asks,omitempty" doc:"What the request takes of it."`
}

// String names the limit as the configuration writes it, and what is used of it.
func (u LimitUse) String() string {
	if u.Rate > 0 {
		return fmt.Sprintf("%s %d (%s of a burst of %s used)", u.Limit, u.Rate, u.text(u.Used), u.text(u.Room))
	}
	return fmt.Sprintf("%s %s (%s used)", u.Limit, u.text(u.Room), u.text(u.Used))
}

// text writes an amount of the limit without an exponent: of money all that is
// booked, of requests and tokens less than what a second gives back.
func (u LimitUse) text(amount float64) string {
	scale := 1e2
	if u.money() {
		scale = float64(tenants.Unit)
	}
	return strconv.FormatFloat(math.Round(amount*scale)/scale, 'f', -1, 64)
}

// money tells whether it is a limit of money.
func (u LimitUse) money() bool {
	return u.Limit == tenants.LimitDayMoney || u.Limit == tenants.LimitMonthMoney
}

// limitsDetail is what the stage of the limits says.
func (n *explainer) limitsDetail() string {
	switch {
	case len(n.limits) == 0:
		return "no limits"
	case n.partial:
		return "as far as this gateway knows: Redis decides for all of them"
	}
	var texts []string
	for _, whose := range [...]string{"tenant", "key"} {
		var of []string
		for _, u := range limitUses(n.limits) {
			if u.Whose == whose {
				of = append(of, u.String())
			}
		}
		if len(of) > 0 {
			texts = append(texts, whose+": "+strings.Join(of, ", "))
		}
	}
	return strings.Join(texts, "; ")
}

// limitUses is what is used of the limits as the API shows it.
func limitUses(uses []tenants.Use) (all []LimitUse) {
	for _, u := range uses {
		shown := LimitUse(u)
		if shown.money() {
			shown.Used, shown.Room = u.Used/float64(tenants.Unit), u.Room/float64(tenants.Unit)
		}
		all = append(all, shown)
	}
	return all
}
