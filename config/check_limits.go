package config

import (
	"fmt"
	"strconv"
	"strings"

	"tierway/tenants"
)

// checkLimits notes limits and prices that can do nothing.
func (d *decoder) checkLimits(f *File) {
	priced := false
	for _, s := range f.sections() {
		if s.Price != nil {
			priced = d.checkPrice(s.path+".price", *s.Price) || priced
		}
	}
	for i, k := range f.Auth.Keys {
		path := fmt.Sprintf("auth.keys[%d]", i)
		d.checkLimit(path+".limits", k.Limits, priced)
		highest, ok := tenants.ParseClass(k.Priority)
		usual, known := tenants.ParseClass(k.DefaultPriority)
		if (ok || k.Priority == "") && known && usual < highest {
			d.fault(path+".default_priority", d.shown(path+".default_priority", k.DefaultPriority)+" is above its priority "+highest.String(),
				"write "+highest.String()+", or raise priority")
		}
		if k.Degrade && !k.Limits.Budgeted() {
			d.caution(path+".degrade", "does nothing without a budget", "add limits: with day_tokens, month_tokens, day_money or month_money")
		}
		if k.FailClosed && f.Store.Redis == "" {
			d.caution(path+".fail_closed", "does nothing without store.redis", "set store.redis, or remove the key")
		}
	}
}

// checkPrice checks one price and reports whether anything costs.
func (d *decoder) checkPrice(path string, p tenants.Price) bool {
	cached := p.Input
	if p.CachedInput != nil {
		cached = *p.CachedInput
	}
	for name, amount := range map[string]float64{"input": p.Input, "cached_input": cached, "output": p.Output} {
		_, decimals, _ := strings.Cut(strconv.FormatFloat(amount, 'f', -1, 64), ".")
		if at := path + "." + name; len(decimals) > 9 && d.written(at) {
			d.fault(at, fmt.Sprintf("%v has %d decimals, and amounts are counted in billionths", amount, len(decimals)), "write at most 9 decimals")
		}
	}
	return p.Input > 0 || cached > 0 || p.Output > 0
}

// checkLimit checks the limits of one tenant.
func (d *decoder) checkLimit(path string, l tenants.Limits, priced bool) {
	if l.Burst > 0 && l.RPM == 0 && l.RPS == 0 {
		d.fault(path+".burst", fmt.Sprintf("%d does nothing without rpm or rps", l.Burst), "add one of them, or remove burst; concurrent bounds requests under way")
	}
	if l.TokenBurst > 0 && l.TPM == 0 {
		d.fault(path+".token_burst", fmt.Sprintf("%d does nothing without tpm", l.TokenBurst), "add tpm, or remove token_burst")
	}
	for name, amount := range map[string]tenants.Money{"day_money": l.DayMoney, "month_money": l.MonthMoney} {
		if amount > 0 && !priced {
			d.fault(path+"."+name, fmt.Sprintf("%v can never be spent: no tier or pool has a price", amount),
				"give tiers a price: { input: 0.5, output: 1.5 }, or limit tokens instead")
		}
	}
	if l.DayTokens > l.MonthTokens && l.MonthTokens > 0 {
		d.caution(path+".day_tokens", fmt.Sprintf("%d is more than month_tokens %d and never reached", l.DayTokens, l.MonthTokens), "lower it, or remove it")
	}
	if l.DayMoney > l.MonthMoney && l.MonthMoney > 0 {
		d.caution(path+".day_money", fmt.Sprintf("%v is more than month_money %v and never reached", l.DayMoney, l.MonthMoney), "lower it, or remove it")
	}
}
