package store

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errRedisURL shows the forms of a valid URL. It does not repeat the given URL, which may hold a
// secret.
var errRedisURL = errors.New("is not a Redis URL; valid forms are redis://HOST:6379/0, " +
	"rediss://USER:PASSWORD@HOST:6380, redis+cluster://HOST:6379,HOST:6379 or " +
	"redis+sentinel://HOST:26379,HOST:26379/MASTER")

// Parts that a URL can lack. The errors do not repeat the URL, which may hold a secret.
var (
	errRedisDatabase = errors.New("has a database that is not a number from 0: write it after the host, as in " +
		"redis://HOST:6379/0")
	errRedisMaster = errors.New("names no master: write it after the sentinels, as in " +
		"redis+sentinel://HOST:26379,HOST:26379/MASTER")
)

// redisOptions parses a URL. A list of hosts is not valid in a URL, so all hosts but the first are
// removed before parsing.
func redisOptions(text string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	if !ok || base != "redis" && base != "rediss" {
		return nil, errRedisURL
	}
	user, password, target, _ := splitCredentials(rest, redisTarget)
	hosts, path := target, ""
	if i := strings.IndexAny(target, "/?#"); i >= 0 {
		hosts, path = target[:i], target[i:]
	}
	addrs := strings.Split(hosts, ",")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	db := parts[0]
	o := &redis.UniversalOptions{}
	switch {
	case kind == "" && len(addrs) == 1 && len(parts) == 1:
	case kind == "cluster" && len(parts) == 1 && parts[0] == "":
		o.IsClusterMode = true
	case kind == "sentinel" && len(parts) <= 2:
		if parts[0] == "" {
			return nil, errRedisMaster
		}
		o.MasterName, db = parts[0], strings.Join(parts[1:], "")
	default:
		return nil, errRedisURL
	}
	one, err := redis.ParseURL(base + "://" + addrs[0]) // its error would repeat the URL
	if err != nil || strings.ContainsAny(path, "?#") || strings.Contains(target, "@") {
		return nil, errRedisURL
	}
	if db != "" {
		if o.DB, err = strconv.Atoi(db); err != nil || o.DB < 0 {
			return nil, errRedisDatabase
		}
	}
	o.Username, o.Password, o.TLSConfig = user, password, one.TLSConfig
	for _, addr := range addrs {
		u, err := url.Parse("redis://" + addr)
		if err != nil || u.Hostname() == "" || u.Path != "" {
			return nil, errRedisURL
		}
		o.Addrs = append(o.Addrs, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")))
	}
	if base == "rediss" && len(o.Addrs) > 1 {
		o.TLSConfig.ServerName = "" // each server is verified by its own name
	}
	return o, nil
}
