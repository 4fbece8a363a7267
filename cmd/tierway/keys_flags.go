package main

import (
	"errors"
	"fmt"

	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/config"
	"tierway/tenants"
)

// Maximum values of limits, as in config.yaml.
const (
	maxRequests = 1_000_000_000
	maxTokens   = 1_000_000_000_000_000
)

// count is the value of a flag with a limit, from 1 to max. Omitting the flag means no limit.
type count struct {
	n   *int64
	max int64
}

func (c count) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > c.max {
		return fmt.Errorf("write an integer from 1 to %d, or omit the flag for no limit", c.max)
	}
	*c.n = n
	return nil
}

func (c count) String() string {
	if c.n == nil || *c.n == 0 {
		return ""
	}
	return strconv.FormatInt(*c.n, 10)
}

func (c count) Type() string { return "N" }

func (f *createFlags) key(now time.Time) (tenants.Key, error) {
	k := tenants.Key{Tenant: f.tenant, Name: f.name, Limits: f.limits}
	switch {
	case f.tenant == "":
		return k, errors.New("--tenant is missing: write the key's tenant, such as --tenant acme")
	case !tenants.Slug(f.tenant):
		return k, fmt.Errorf("--tenant %q: write 1 to 63 of a-z, 0-9 and -, such as %s", f.tenant, slugOf(f.tenant))
	case f.role != "":
		return k, fmt.Errorf("--role %q: only keys of the admin plane have a role; add --admin, or remove --role", f.role)
	case len(f.name) > maxName || plain(f.name) != f.name:
		return k, fmt.Errorf("--name %q: write at most %d printable characters", f.name, maxName)
	}
	if f.limits.Burst > 0 && f.limits.RPM == 0 && f.limits.RPS == 0 {
		return k, fmt.Errorf("--burst %d: has no effect without --rpm or --rps; add one of them", f.limits.Burst)
	}
	class, ok := tenants.ParseClass(f.priority)
	if !ok && f.priority != "" {
		return k, fmt.Errorf("--priority %q: write one of %s", f.priority, strings.Join(tenants.Classes(), ", "))
	}
	k.Rights = tenants.Rights{Priority: class, Default: class}
	var err error
	if k.Tiers, err = namesOf("--tiers", f.tiers); err != nil {
		return k, err
	}
	if k.Models, err = namesOf("--models", f.models); err != nil {
		return k, err
	}
	k.ExpiresAt, err = expiry(f.expires, now)
	return k, err
}

// maxName bounds a key's name in bytes: it is a label in a table.
const maxName = 100

// namesOf returns the names in a flag's value; nil, which means all, if the flag is not given.
func namesOf(flag string, list []string) ([]string, error) {
	if list == nil {
		return nil, nil
	}
	out := []string{}
	for _, name := range list {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s \"\": the list is empty, so the key could do nothing; omit the flag for all", flag)
	}
	return out, nil
}

// slugOf derives a valid tenant name from text.
func slugOf(text string) string {
	slug := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case strings.ContainsRune(" _.-/", r):
			return '-'
		}
		return -1
	}, strings.ToLower(text))
	if slug = strings.Trim(slug, "-"); !tenants.Slug(slug) {
		return "acme"
	}
	return slug
}

// expiry parses the expiry of a key: a duration from now, a date or a time. Empty means never,
// the zero time.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	if d, wrong := time.ParseDuration(text); wrong == nil {
		at, err = now.Add(d), nil
	}
	switch {
	case err != nil:
		return at, fmt.Errorf("--expires %q: write a duration such as 720h, a date such as %s or a time such as %s",
			text, now.AddDate(0, 3, 0).UTC().Format(time.DateOnly),
			now.AddDate(0, 3, 0).UTC().Truncate(time.Hour).Format(time.RFC3339))
	case !at.After(now):
		return at, fmt.Errorf("--expires %q: is in the past (now: %s); write a future time", text,
			now.UTC().Format(time.RFC3339))
	}
	return at.UTC().Truncate(time.Second), nil
}

// checkRights checks that rights name tiers and models of the configuration. Otherwise a
// mistyped right would lock the key out silently.
func checkRights(file *config.File, r tenants.Rights) error {
	for _, u := range file.RightNames().Unknown(r) {
		return fmt.Errorf("--%s %q: %s of this configuration: %s", u.Field, u.Name, u.Problem, u.Hint())
	}
	return nil
}

// reachable returns the URL at which programs on this machine reach a listen address.
func reachable(listen string, files config.TLS) string {
	scheme := "http"
	if files.On() {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return scheme + "://" + listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
