package config

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tierway/tenants"
)

const makeDigest = `printf %s "$KEY" | sha256sum`

// checkTLS checks that certificate and key are both set, can be read and match.
func (d *decoder) checkTLS(path string, t TLS) {
	switch {
	case !t.On():
		return
	case t.Cert == "":
		d.report(path+".cert", "missing, but key is set", "set the path of the certificate's PEM file")
		return
	case t.Key == "":
		d.report(path+".key", "missing, but cert is set", "set the path of the private key's PEM file")
		return
	case d.draft: // a draft may not read files
		return
	}
	cert, hasCert := d.fileText(path+".cert", t.Cert)
	key, hasKey := d.fileText(path+".key", t.Key)
	if !hasCert || !hasKey {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		d.report(path+".cert", fmt.Sprintf("the certificate %s does not load with its key: %v", d.shown(path+".cert", t.Cert),
			err), "check that both are PEM files of the same pair")
		return
	}
	d.checkSecrecy(path+".key", t.Key)
}

// checkAuth checks the keys of tenants and admins.
func (d *decoder) checkAuth(f *File) {
	digests := map[string]string{}
	checkDigest := func(path, digest string) {
		digest = strings.ToLower(digest)
		if first := digests[digest]; first != "" && digest != "" {
			d.report(path+".sha256", "duplicates the key of "+first, "create a separate key for each entry").hide = true
			return
		}
		digests[digest] = path
	}
	for i, k := range f.Auth.Keys {
		checkDigest(fmt.Sprintf("auth.keys[%d]", i), k.SHA256)
	}
	names, adminKeys := map[string]string{}, []tenants.KeyConfig{}
	for i, k := range f.Admin.Keys {
		path := fmt.Sprintf("admin.keys[%d]", i)
		checkDigest(path, k.SHA256)
		d.checkUnique(names, path+".name", k.Name)
		adminKeys = append(adminKeys, tenants.KeyConfig{Name: "admin", SHA256: k.SHA256})
	}
	if len(f.Admin.Keys) > 0 && !slices.ContainsFunc(f.Admin.Keys, func(k AdminKey) bool {
		return k.Role == "" || k.Role == roleAdmin
	}) {
		d.warn("admin.keys", "all keys are viewers: unless the database has an admin key, the admin plane can change nothing",
			"give one key role: admin, or create one with `tierway keys create --admin`")
	}
	_, _, err := tenants.FromConfig(f.Auth.Keys)
	d.reportErrors(err, func(path string) string { return path })
	_, _, err = tenants.FromConfig(adminKeys)
	d.reportErrors(err, func(path string) string { return strings.Replace(path, "auth.", "admin.", 1) })
	if f.Auth.Required && len(f.Auth.Keys) == 0 && f.Store.SQL == "" {
		d.report("auth.keys",
			"keys are required, but the file has none and store.sql is empty: every request would be rejected",
			"add - {name: me, sha256: …} with the output of "+makeDigest+
				", set store.sql, or set auth.required: false on loopback")
	}
}

// checkRights reports tiers and models of keys that match nothing in the file. Otherwise a
// mistyped right would lock its tenant out silently.
func (d *decoder) checkRights(f *File) {
	names := f.RightNames()
	for i, k := range f.Auth.Keys {
		for _, u := range names.Unknown(tenants.Rights{Tiers: k.Tiers, Models: k.Models}) {
			at := fmt.Sprintf("auth.keys[%d].%s[%d]", i, u.Field, u.Index)
			d.report(at, d.shown(at, u.Name)+" "+u.Problem+" of this file", u.Hint())
		}
	}
}

// distinct returns the names without duplicates and empty names, in their order.
func distinct(names []string) []string {
	seen, out := map[string]bool{"": true}, []string{}
	for _, name := range names {
		if !seen[name] {
			out = append(out, name)
		}
		seen[name] = true
	}
	return out
}

// checkLimits reports limits and prices without effect.
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
			d.report(path+".default_priority", d.shown(path+".default_priority", k.DefaultPriority)+" is above its priority "+
				highest.String(),
				"set at most "+highest.String()+", or raise priority")
		}
		if k.Degrade && !k.Limits.Budgeted() {
			d.warn(path+".degrade", "has no effect without a budget",
				"set day_tokens, month_tokens, day_money or month_money in limits")
		}
		if k.FailClosed && f.Store.Redis == "" {
			d.warn(path+".fail_closed", "has no effect without store.redis", "set store.redis, or remove the key")
		}
	}
}

// checkPrice checks one price and reports whether any of its amounts is above 0.
func (d *decoder) checkPrice(path string, p tenants.Price) bool {
	cached := p.Input
	if p.CachedInput != nil {
		cached = *p.CachedInput
	}
	for name, amount := range map[string]float64{"input": p.Input, "cached_input": cached, "output": p.Output} {
		_, decimals, _ := strings.Cut(strconv.FormatFloat(amount, 'f', -1, 64), ".")
		if at := path + "." + name; len(decimals) > 9 && d.written(at) {
			d.report(at, fmt.Sprintf("%v has %d decimals, but prices have at most 9", amount, len(decimals)),
				"round it to 9 decimals")
		}
	}
	return p.Input > 0 || cached > 0 || p.Output > 0
}

// checkLimit checks the limits of one key; priced reports whether any tier or pool has a price.
func (d *decoder) checkLimit(path string, l tenants.Limits, priced bool) {
	if l.Burst > 0 && l.RPM == 0 && l.RPS == 0 {
		d.report(path+".burst", fmt.Sprintf("%d has no effect without rpm or rps", l.Burst),
			"set one of them, or remove burst; concurrent limits in-flight requests")
	}
	if l.TokenBurst > 0 && l.TPM == 0 {
		d.report(path+".token_burst", fmt.Sprintf("%d has no effect without tpm", l.TokenBurst),
			"set tpm, or remove token_burst")
	}
	for name, amount := range map[string]tenants.Money{"day_money": l.DayMoney, "month_money": l.MonthMoney} {
		if amount > 0 && !priced {
			d.report(path+"."+name, fmt.Sprintf("%v can never be spent: no tier or pool has a price", amount),
				"set price: { input: 0.5, output: 1.5 } on tiers, or limit tokens instead")
		}
	}
	if l.DayTokens > l.MonthTokens && l.MonthTokens > 0 {
		d.warn(path+".day_tokens", fmt.Sprintf("%d exceeds month_tokens (%d), so it is never reached", l.DayTokens,
			l.MonthTokens), "lower it, or remove it")
	}
	if l.DayMoney > l.MonthMoney && l.MonthMoney > 0 {
		d.warn(path+".day_money", fmt.Sprintf("%v exceeds month_money (%v), so it is never reached", l.DayMoney,
			l.MonthMoney), "lower it, or remove it")
	}
}
