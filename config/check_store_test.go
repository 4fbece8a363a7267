package config

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CF-02: invalid values are rejected with line and path.
func TestStoresProxiesAndLimitsAreChecked(t *testing.T) {
	const shared = `warning: store.sql: a SQLite file serves one gateway, but %s: each would have its own tenants, keys and ledger (use postgres:// to share tenants, keys and the ledger)`
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		src  string
		want []string
	}{
		"stores": {keys + small + `gateways: 3
watch: true
store: {sql: "postgres://u:p@h/db", redis: "redis+cluster://:p@a:1,b:2,c:3", redis_timeout: 1s, retention: 0s}
`, nil},
		"one socket":     {keys + small + `store: {sql: "postgresql:///db?host=/run/postgresql"}`, nil},
		"a memory":       {keys + small + `store: {sql: "sqlite://:memory:"}`, nil},
		"no store":       {keys + small + `store: {sql: "", redis: ""}`, nil},
		"a file for two": {keys + small + "gateways: 2\n", []string{"3:1: " + fmt.Sprintf(shared, "gateways is 2")}},
		"a file and Redis": {keys + small + "store: {sql: \"sqlite://x\", redis: \"redis://h:1\"}\n", []string{
			"3:14: " + fmt.Sprintf(shared, "store.redis is for several")}},
		"only Redis is written": {keys + small + "store: {redis: \"redis://h:1\"}\n", []string{
			"3:9: " + fmt.Sprintf(shared, "store.redis is for several")}},
		"bad stores": {keys + small +
			`store: {sql: "u:hunter2@tcp(h)/db", redis: "postgres://u:hunter2@h", retention: -1h, password: hunter2}
gateways: 0
watch: 2
`, []string{
			`3:14: store.sql: is no URL (write sqlite://FILE or postgres://user@host/database)`,
			`3:44: store.redis: has another scheme than redis, rediss, redis+cluster, rediss+cluster, redis+sentinel, rediss+sentinel (write redis://host:6379, or rediss:// with TLS)`,
			`3:81: store.retention: want a duration, got "-1h"`,
			`3:96: store.password: the file must not contain secrets (set it in an environment variable and use that in the URL: postgres://user:${PASSWORD}@host/database)`,
			`4:11: gateways: want an integer from 1 to 1000, got "0"`,
			`5:8: watch: want true or false, got "2" (write true or false)`,
		}},
		"stores of nothing": {keys + small + `store: {sql: "sqlite://?x=1", redis: "redis://"}`, []string{
			`3:14: store.sql: is no file name: it has a ? or a # (write sqlite://FILE or postgres://user@host/database)`,
			`3:38: store.redis: names nothing behind redis:// (write redis://host:6379, or rediss:// with TLS)`,
		}},
		"password files": {keys + small + `store: {sql: "postgres://u@h/db", sql_password_file: ` + password + `, redis: "redis://app@h", redis_password_file: ` + password + `}`,
			nil},
		"password files without an effect": {keys + small + `store: {sql: "sqlite://x", sql_password_file: /none/pw, redis_password_file: /none/pw}`, []string{
			`3:47: warning: store.sql_password_file: has no effect: store.sql names no server (set store.sql to a postgres:// URL, or remove the key)`,
			`3:78: warning: store.redis_password_file: has no effect: store.redis names no server (set store.redis to a redis:// URL, or remove the key)`,
		}},
		"two passwords": {keys + small + `store: {sql: "postgres://u:hunter2@h/db", sql_password_file: /none/pw}`, []string{
			`3:62: store.sql_password_file: store.sql has a password too (remove the password from the URL, or remove the key)`,
		}},
		"no password file": {keys + small + `store: {sql: "postgres://u@h/db", sql_password_file: /none/pw}`, []string{
			`3:54: store.sql_password_file: reading the password file: open /none/pw: no such file or directory (write the password into that file, readable by the gateway's user only)`,
		}},
		"no time for Redis": {keys + small + `store: {sql: "", redis: "redis://h", redis_timeout: 0s}`, []string{
			`3:53: store.redis_timeout: want a duration above 0, got "0s"`,
		}},
		"a database of no name": {keys + small + `store: {sql: "sqlite://"}`, []string{
			`3:14: store.sql: names nothing behind sqlite:// (write sqlite://FILE or postgres://user@host/database)`,
		}},
		"a password that is not escaped": {keys + small + `store: {sql: "postgres://u:hunter2%z/?#z@h/db"}`, nil},
		"a Redis without a database": {keys + small + `store: {sql: "", redis: "redis://:hunter2@127.0.0.1:6379/abc"}`,
			[]string{
				`3:25: store.redis: has a database that is not a number from 0 (write it after the host, as in redis://HOST:6379/0)`,
			}},
		"sentinels without a master": {keys + small + `store: {sql: "", redis: "redis+sentinel://127.0.0.1:26379"}`, []string{
			`3:25: store.redis: names no master (write it after the sentinels, as in redis+sentinel://HOST:26379,HOST:26379/MASTER)`,
		}},
		"several hosts without a kind": {keys + small + `store: {sql: "", redis: "redis://a,hunter2"}`, []string{
			`3:25: store.redis: is not a Redis URL; valid forms are redis://HOST:6379/0, rediss://USER:PASSWORD@HOST:6380, redis+cluster://HOST:6379,HOST:6379 or redis+sentinel://HOST:26379,HOST:26379/MASTER (write redis://host:6379, or rediss:// with TLS)`,
		}},
		"a mode of PostgreSQL that is none": {keys + small + `store: {sql: "postgres://u:hunter2@h/db?sslmode=hunter2"}`,
			[]string{
				`3:14: store.sql: the URL is malformed (write postgres://USER:PASSWORD@HOST:PORT/DATABASE, percent-encode special characters of the password, and check that the files in its parameters exist)`,
			}},
		"proxies": {keys + small +
			`trusted_proxies: [10.0.0.0/8, 10.0.0.7, "fd00::/8", "::1", 10.1.0.0/8, proxy.local, 10.0.0.7/32, "fe80::1%eth0", 0.0.0.0/0, "10.0.0.0/33"]
`, []string{
			`3:60: trusted_proxies[4]: "10.1.0.0/8" has bits set below its prefix length (write 10.0.0.0/8)`,
			`3:72: trusted_proxies[5]: "proxy.local" is not an address or network (write one such as 10.0.0.7, 10.0.0.0/8 or fd00::/8)`,
			`3:85: trusted_proxies[6]: "10.0.0.7/32" is listed twice (remove one of them)`,
			`3:98: trusted_proxies[7]: "fe80::1%eth0" is not an address or network (write one such as 10.0.0.7, 10.0.0.0/8 or fd00::/8)`,
			`3:114: warning: trusted_proxies[8]: "0.0.0.0/0" covers every address: any client could forge its address with X-Forwarded-For (list the proxies' own addresses)`,
			`3:125: trusted_proxies[9]: "10.0.0.0/33" is not an address or network (write one such as 10.0.0.7, 10.0.0.0/8 or fd00::/8)`,
		}},
		"prices": {keys +
			`tiers: [{name: a, model: m, price: {input: 0.0000000001, output: 1e7}, workers: [{name: w, url: "http://h:1"}]}]
pools: [{name: p, models: [n], serves: [chat], price: {cached_input: 1.5, inptu: 2}, workers: [{name: x, url: "http://h:2"}]}]
`, []string{
			`2:44: tiers[0].price.input: 1e-10 has 10 decimals, but prices have at most 9 (round it to 9 decimals)`,
			`2:66: tiers[0].price.output: want a number from 0 to 1000000, got "1e7"`,
			`3:75: pools[0].price.inptu: unknown key (did you mean input?)`,
		}},
		"limits": {small + `auth:
  keys:
    - name: a
      sha256: ` + digestA + `
      limits: {burst: 5, token_burst: 7, day_money: 1.50, month_money: 1e3, day_tokens: -1}
      priority: background
      default_priority: interactive
    - {name: b, sha256: ` + digestB + `, limits: {rps: 5, burst: 5, day_tokens: 9, month_tokens: 8, rmp: 3}, degrade: true, fail_closed: true}
    - {name: c, sha256: ` + strings.Replace(digestA, "a", "c", 1) + `, limits: {month_money: "12"}, degrade: true, default_priority: urgent}
    - {name: d, sha256: ` + strings.Replace(digestA, "a", "d", 1) + `, limits: {day_money: -3, tpm: 1.5, concurrent: 1000000001}}
`, []string{
			`6:23: auth.keys[0].limits.burst: 5 has no effect without rpm or rps (set one of them, or remove burst; concurrent limits in-flight requests)`,
			`6:39: auth.keys[0].limits.token_burst: 7 has no effect without tpm (set tpm, or remove token_burst)`,
			`6:53: auth.keys[0].limits.day_money: 1.5 can never be spent: no tier or pool has a price (set price: { input: 0.5, output: 1.5 } on tiers, or limit tokens instead)`,
			`6:72: auth.keys[0].limits.month_money: want an amount from 0 to 1000000000, got "1e3" (write at most 9 decimals, such as 12.50)`,
			`6:89: auth.keys[0].limits.day_tokens: want an integer from 0 to 1000000000000000, got "-1"`,
			`8:25: auth.keys[0].default_priority: "interactive" is above its priority background (set at most background, or raise priority)`,
			`9:130: warning: auth.keys[1].limits.day_tokens: 9 exceeds month_tokens (8), so it is never reached (lower it, or remove it)`,
			`9:150: auth.keys[1].limits.rmp: unknown key (did you mean rpm?)`,
			`9:187: warning: auth.keys[1].fail_closed: has no effect without store.redis (set store.redis, or remove the key)`,
			`10:113: auth.keys[2].limits.month_money: want an amount from 0 to 1000000000, got "12" (remove the quotes)`,
			`10:129: warning: auth.keys[2].degrade: has no effect without a budget (set day_tokens, month_tokens, day_money or month_money in limits)`,
			`10:153: auth.keys[2].default_priority: want one of interactive, background, batch, got "urgent"`,
			`11:111: auth.keys[3].limits.day_money: want an amount from 0 to 1000000000, got "-3" (write at most 9 decimals, such as 12.50)`,
			`11:120: auth.keys[3].limits.tpm: want an integer from 0 to 1000000000000000, got "1.5"`,
			`11:137: auth.keys[3].limits.concurrent: want an integer from 0 to 1000000000, got "1000000001"`,
		}},
		"limits of one tenant's keys": {small + `auth:
  keys:
    - {name: a, sha256: ` + digestA + `, limits: {rpm: 5}}
    - {name: a, sha256: ` + digestB + `, limits: {rpm: 6}}
`, []string{
			`5:14: auth.keys[1].name: another key of "a" has different settings (give all keys of a tenant the same settings, or choose another name)`,
		}},
		"roles": {keys + small + `admin:  {keys: [{name: a, sha256: ` + digestB + `, role: veiwer}]}`, []string{
			`3:107: admin.keys[0].role: want one of admin, viewer, got "veiwer" (did you mean viewer?)`,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(append([]string{}, c.want...), problemsOf(t, c.src, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestStoreProxyAndLimitKeysAreRead(t *testing.T) {
	f := parsed(t, `auth:
  keys: [{name: a, sha256: `+digestA+`, limits: {rpm: 60, day_money: 0.000000001, month_money: 12.50}, degrade: true}]
admin: {keys: [{name: x, sha256: `+digestB+`}, {name: y, sha256: `+strings.Replace(digestB, "b", "c", 1)+`, role: viewer}]}
tiers: [{name: a, model: m, price: {input: 0.5, output: 1.5}, workers: [{name: w, url: "http://h:1"}]}]
pools: [{name: p, models: [n], serves: [chat], workers: [{name: x, url: "http://h:2"}]}]
trusted_proxies: [10.0.0.0/8, 192.0.2.7, "::ffff:198.51.100.0/120", "::1"]
`, nil)
	var prefixes []string
	for _, p := range f.TrustedProxies() {
		prefixes = append(prefixes, p.String())
	}
	if diff := cmp.Diff([]string{"10.0.0.0/8", "192.0.2.7/32", "198.51.100.0/24", "::1/128"}, prefixes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !f.TrustedProxies()[0].Contains(netip.MustParseAddr("10.9.9.9")) {
		t.Error("a network does not hold its addresses")
	}
	l := f.Auth.Keys[0].Limits
	if l.RPM != 60 || l.DayMoney != 1 || l.MonthMoney != 12_500_000_000 {
		t.Errorf("%+v", l)
	}
	p := f.ResolvedPools()
	if p[0].Price.Input != 0.5 || p[0].Price.Output != 1.5 || p[0].Price.CachedInput != nil ||
		p[1].Price.Cost(1e6, 0, 1e6) != 0 {
		t.Errorf("%+v, %+v", p[0].Price, p[1].Price)
	}
	if f.Admin.Keys[0].Role != "admin" || f.Admin.Keys[1].Role != "viewer" {
		t.Errorf("%+v", f.Admin.Keys)
	}
	if f.Store.SQL != "sqlite://tierway.db" || f.Store.Retention.Hours() != 2160 || f.Gateways != 1 || f.Watch {
		t.Errorf("%+v", f.Store)
	}
	trial, err := FromFlags([]string{"m"}, []string{"http://h:1"}, nil, "", "")
	if err != nil || trial.Store.SQL != "" || trial.Store.Redis != "" {
		t.Errorf("a start without a file keeps state in %q: %v", trial.Store.SQL, err)
	}
}

func TestStoreURLIsPrintedWithoutItsPassword(t *testing.T) {
	src := keys + small + "store: {sql: \"postgres://u:hunter2@h/db\", redis: \"redis://:${SECRET}@h:1\"}\n"
	f := parsed(t, src, map[string]string{"SECRET": "hunter3"})
	if out := fmt.Sprint(f); strings.Contains(out, "hunter") || !strings.Contains(out, "sql: postgres://u:***@h/db\n") ||
		!strings.Contains(out, "redis: redis://:***@h:1\n") {
		t.Errorf("it was printed as\n%s", out)
	}
	if f.Store.Redis != "redis://:hunter3@h:1" {
		t.Error("the environment did not reach the URL")
	}
}

func TestProblemsDoNotShowAStorePassword(t *testing.T) {
	stores := map[string]string{
		"a bad scheme":           "store: {sql: \"mysql://u:hunter2@h/db\"}",
		"no scheme":              "store:\n  sql: u:hunter2@h/db\n",
		"a bad port":             "store:\n  sql: postgres://u:hunter2@h:port/db\n",
		"of the environment":     "store: {sql: \"${SECRET}\", redis: \"x${SECRET}\"}",
		"on the line before":     "store:\n  sql: postgres://u:hunter2@h/db\n  redis: x\n",
		"in a mistyped key":      "store: {sqll: \"postgres://u:hunter2@h/db\"}",
		"behind a mistyped key":  "store: {sql: \"postgres://u:hunt'} er2@h/db\", x: 1}",
		"in a list":              "store: {sql: [\"postgres://u:hunter2@h/db\"]}",
		"a word in place of one": "store: {redis: hunter2}",
		"on several lines":       "store:\n  sql: >-\n    hunter1\n    hunter2@h\n  x: 1\n",
	}
	for name, store := range stores {
		src := keys + small + store
		_, err := Parse("f", []byte(src), environment(map[string]string{"SECRET": "hunter2"}))
		if err == nil {
			t.Errorf("%s: it loads", name)
			continue
		}
		var out bytes.Buffer
		var problems Problems
		errors.As(err, &problems)
		if err := problems.Format(&out, []byte(src)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "hunter2") || strings.Contains(out.String(), "er2@") {
			t.Errorf("%s:\n%s", name, out.String())
		}
	}
}

// TestPasswordsOfVariablesAreTakenLiterally in the URL of a store, also if they look percent-encoded.
func TestPasswordsOfVariablesAreTakenLiterally(t *testing.T) {
	for _, password := range []string{"plain", "p%20w", "100%25", "a@b", "a/b#c?d", "a%2F#", "u:%41", "p+w", "%"} {
		env := func(name string) (string, bool) {
			value, set := map[string]string{"PW": password, "HOST": "db,db2:5433", "ALL": "redis://:p%20w@h"}[name]
			return value, set
		}
		f, err := Parse("t.yaml", []byte(keys+small+
			`store: {sql: "postgres://${USER:-app}:${PW}@${HOST}/t?application_name=a@b", redis: "redis://:${PW}${PW}@h"}`), env)
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{f.Store.SQL: password, f.Store.Redis: password + password} {
			credentials, _, _ := strings.Cut(text, "@")
			parsed, err := url.Parse(credentials + "@h")
			if err != nil {
				t.Errorf("%q: %v", password, err)
				continue
			}
			if got, _ := parsed.User.Password(); got != want {
				t.Errorf("%q is read as %q", want, got)
			}
		}
		if !strings.HasSuffix(f.Store.SQL, "@db,db2:5433/t?application_name=a@b") {
			t.Errorf("the target is changed: %s", f.Store.SQL)
		}
	}
	f, err := Parse("t.yaml", []byte(keys+small+`store: {sql: "sqlite://${ALL}@x", redis: "${ALL}"}`),
		func(string) (string, bool) { return "redis://:p%20w@h", true })
	if err != nil || f.Store.Redis != "redis://:p%20w@h" || f.Store.SQL != "sqlite://redis://:p%20w@h@x" {
		t.Errorf("%v: a whole URL or a file name is changed: %s, %s", err, f.Store.Redis, f.Store.SQL)
	}
}
