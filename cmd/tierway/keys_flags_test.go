package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tierway/config"
	"tierway/tenants"
)

// An error names the flag, the value and the way out. Nothing is created.
func TestFlagErrorsNameTheValueAndTheWayOut(t *testing.T) {
	h := newHouse(t, "")
	create := []string{"keys", "create", "-c", h.config}
	acme := append(append([]string{}, create...), "--tenant", "acme")
	for _, c := range []struct {
		args []string
		more []string
		want []string
	}{
		{acme, []string{"--rpm", "-5"}, []string{`"-5"`, `"--rpm"`, "integer from 1"}},
		{acme, []string{"--rps", "many"}, []string{`"many"`, `"--rps"`, "integer from 1"}},
		{acme, []string{"--tpm", "0"}, []string{`"0"`, `"--tpm"`, "omit the flag for no limit"}},
		{acme, []string{"--concurrent", "2000000000"}, []string{`"2000000000"`, `"--concurrent"`, "to 1000000000"}},
		{acme, []string{"--burst", "4"}, []string{"--burst 4", "--rpm or --rps"}},
		{acme, []string{"--expires", "yesterday"}, []string{`--expires "yesterday"`, "720h"}},
		{acme, []string{"--expires", "2020-01-31"}, []string{`--expires "2020-01-31"`, "is in the past"}},
		{acme, []string{"--expires", "-1h"}, []string{`--expires "-1h"`, "is in the past"}},
		{acme, []string{"--tiers", "huge"}, []string{`--tiers "huge"`, "small, medium"}},
		{acme, []string{"--tiers", ""}, []string{`--tiers ""`, "omit the flag for all"}},
		{acme, []string{"--models", "llama-*"}, []string{`--models "llama-*"`, "qwen-7b", "gpt-4*"}},
		{acme, []string{"--priority", "urgent"}, []string{`--priority "urgent"`, "interactive, background, batch"}},
		{acme, []string{"--name", "a\nb"}, []string{`--name "a\nb"`, "printable"}},
		{acme, []string{"--role", "viewer"}, []string{`--role "viewer"`, "--admin"}},
		{acme, []string{"--admin", "--name", "jane"}, []string{"--tenant acme", "remove --admin"}},
		{acme, []string{"--quiet", "--json"}, []string{"quiet", "json"}},
		{create, nil, []string{"--tenant is missing", "--tenant acme"}},
		{create, []string{"--tenant", "Bad Name"}, []string{`--tenant "Bad Name"`, "bad-name"}},
		{create, []string{"--tenant", "../../x"}, []string{`--tenant "../../x"`, "a-z, 0-9 and -"}},
		{create, []string{"--admin"}, []string{"--name is missing", "--name jane"}},
		{create, []string{"--admin", "--name", "Jane Doe"}, []string{`--name "Jane Doe"`, "letters, digits"}},
		{create, []string{"--admin", "--name", "jane", "--role", "root"}, []string{`--role "root"`, "admin or viewer"}},
		{create, []string{"--admin", "--name", "jane", "--rpm", "5"}, []string{"--rpm 5", "remove --admin"}},
		{[]string{"keys", "list", "-c", h.config}, []string{"--tenant", "Bad Name"},
			[]string{`--tenant "Bad Name"`, "a-z, 0-9 and -"}},
		{[]string{"keys", "rotate", "-c", h.config}, nil, []string{"one key ID", "keys list"}},
		{[]string{"keys", "rotate", "-c", h.config}, []string{"x", "--overlap", "-1h"}, []string{"--overlap -1h", "0s"}},
		{[]string{"keys", "rotate", "-c", h.config}, []string{"x", "--overlap", "720h"},
			[]string{"--overlap 720h", "to 168h"}},
		{[]string{"keys", "revoke", "-c", h.config}, []string{"x", "--yes", "--reason", strings.Repeat("long ", 50)},
			[]string{"--reason", "at most 200"}},
		{[]string{"keys", "revoke", "-c", h.config}, []string{"a/b", "--yes"}, []string{`"a/b"`, "keys list"}},
		{[]string{"keys", "creat"}, nil, []string{`"creat"`, "did you mean create?"}},
		{[]string{"migrate", "down"}, nil, []string{`"down"`, "tierway migrate --help"}},
	} {
		s := tierway(t, append(append([]string{}, c.args...), c.more...)...)
		if s.status != 2 || s.out != "" || strings.Count(s.messages, "\n") != 1 {
			t.Errorf("%v: status %d, output %q, messages %q", c.more, s.status, s.out, s.messages)
		}
		for _, want := range c.want {
			if !strings.Contains(s.messages, want) {
				t.Errorf("%v: %q is not in %s", c.more, want, s.messages)
			}
		}
	}
	if _, err := os.Stat(h.database); err == nil {
		t.Error("a command that was refused has made a database")
	}
}

// A key in place of an ID is rejected, and not printed.
func TestKeyInPlaceOfAnIDIsNotPrinted(t *testing.T) {
	h := newHouse(t, "")
	key := keysIn(must(t, "keys", "create", "-c", h.config, "--tenant", "acme", "--quiet").out)[0]
	s := tierway(t, "keys", "revoke", "-c", h.config, key, "--yes")
	if s.status != 2 || !strings.Contains(s.messages, "shows the ID") || strings.Contains(s.out+s.messages, key) {
		t.Errorf("status %d, %s", s.status, s.messages)
	}
}

// An invalid configuration is reported in the format of `tierway check`.
func TestKeyCommandsPrintConfigurationProblemsLikeCheck(t *testing.T) {
	h := newHouse(t, "")
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.config, string(text)+"listen: \"${NO_SUCH_VARIABLE_OF_TIERWAY}\"\n")
	check := tierway(t, "check", "-c", h.config)
	for _, args := range [][]string{{"keys", "create", "--tenant", "acme"}, {"keys", "list"},
		{"keys", "create", "--admin", "--name", "jane"}, {"migrate", "up"}, {"migrate", "status"}} {
		s := tierway(t, append(args, "-c", h.config)...)
		if s.status != 1 || s.messages != check.messages || !strings.Contains(s.messages, "NO_SUCH_VARIABLE_OF_TIERWAY") {
			t.Errorf("%v: status %d, %s", args, s.status, s.messages)
		}
	}
	without := newHouse(t, "")
	write(t, without.config, strings.Replace(string(text), "sqlite://"+h.database, "", 1)+"auth: { required: false }\n")
	if s := tierway(t, "keys", "list", "-c", without.config); s.status != 2 ||
		!strings.Contains(s.messages, "set store.sql") {
		t.Errorf("without a database: status %d, %s", s.status, s.messages)
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	for _, args := range [][]string{{"keys"}, {"keys", "create"}, {"keys", "list"}, {"keys", "rotate"}, {"keys", "revoke"},
		{"migrate"}, {"migrate", "up"}, {"migrate", "status"}, {"reload"}} {
		s := must(t, append(args, "--help")...)
		lines := strings.Split(s.out, "\n")
		if len(lines) > 40 || len(lines) < 5 || !strings.HasPrefix(lines[2], "Examples:") {
			t.Errorf("%v: %d lines:\n%s", args, len(lines), s.out)
		}
	}
}

func TestExpiryIsADurationADateOrATime(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 500, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"":                          "0001-01-01T00:00:00Z",
		"720h":                      "2026-12-21T07:00:00Z",
		"90m":                       "2026-11-21T08:30:00Z",
		"2027-01-31":                "2027-01-31T00:00:00Z",
		"2027-01-31T12:00:00+02:00": "2027-01-31T10:00:00Z",
	} {
		got, err := expiry(text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q is %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"30d", "soon", "2027-02-30", "0s", "2026-11-21", "31.1.2027"} {
		if got, err := expiry(text, now); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestReachableReturnsALocalURL(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080", "0.0.0.0:80": "http://127.0.0.1:80", ":8080": "http://127.0.0.1:8080",
		"[::]:8080": "http://127.0.0.1:8080", "[::1]:8080": "http://[::1]:8080",
		"gateway.example:8080": "http://gateway.example:8080",
	} {
		if got := reachable(listen, config.TLS{}); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
	if got := reachable(":443", config.TLS{Cert: "c", Key: "k"}); got != "https://127.0.0.1:443" {
		t.Errorf("with TLS: %s", got)
	}
}

func TestOnlyYesConfirms(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\r\n": true, " yes \n": true, "y": true, "n\n": false,
		"\n": false, "": false, "yesterday\n": false} {
		var out bytes.Buffer
		err := ask(strings.NewReader(answer), &out, "Revoke it?")
		if (err == nil) != want || !strings.HasPrefix(out.String(), "Revoke it? [y/N] ") ||
			!want && !errors.Is(err, exit(1)) {
			t.Errorf("%q: %v, %q", answer, err, out.String())
		}
	}
}

func TestNullDeviceIsNotATerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	file, err := os.Open(newHouse(t, "").config)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if terminal(null) || terminal(file) || terminal(strings.NewReader("y\n")) {
		t.Error("what is no terminal would be asked")
	}
}

func TestControlCharactersAreNotPrinted(t *testing.T) {
	if got := plain("a\x1b[31mb\r\u009b\tc é"); got != "a?[31mb???c é" {
		t.Errorf("%q", got)
	}
	if got := limitsText(tenants.Limits{RPM: 1, DayMoney: tenants.Unit / 2}); got != "rpm 1, day_money 0.5" {
		t.Errorf("%q", got)
	}
}
