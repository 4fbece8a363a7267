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

// errRedisURL says what a URL looks like; what was read instead may be a secret.
var errRedisURL = errors.New("is no URL such as redis://HOST:6379/0, rediss://USER:PASSWORD@HOST:6380, redis+cluster://HOST:6379,HOST:6379 or redis+sentinel://HOST:26379,HOST:26379/MASTER")

// What else a URL can lack. Neither names what was read, which may be a secret.
var (
	errRedisDatabase = errors.New("names no database that is a number from 0: write it behind the host, such as redis://HOST:6379/0")
	errRedisMaster   = errors.New("names no master: write it behind the sentinels, such as redis+sentinel://HOST:26379,HOST:26379/MASTER")
)

// redisOptions reads a URL. Lists of hosts are no part of a URL's syntax, so that
// all but the first are taken out before the rest is parsed.
func redisOptions(text string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	base, kind, _ := strings.Cut(scheme, "+")
	if !ok || base != "redis" && base != "rediss" {
		return nil, errRedisURL
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
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
	one, err := redis.ParseURL(base + "://" + user + addrs[0]) // its error would repeat the URL
	if err != nil || strings.ContainsAny(path, "?#") {
		return nil, errRedisURL
	}
	if db != "" {
		if o.DB, err = strconv.Atoi(db); err != nil || o.DB < 0 {
			return nil, errRedisDatabase
		}
	}
	o.Username, o.Password, o.TLSConfig = one.Username, one.Password, one.TLSConfig
	for _, addr := range addrs {
		u, err := url.Parse("redis://" + addr)
		if err != nil || u.Hostname() == "" || u.Path != "" {
			return nil, errRedisURL
		}
		o.Addrs = append(o.Addrs, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")))
	}
	if base == "rediss" && len(o.Addrs) > 1 {
		o.TLSConfig.ServerName = "" // each server is known by its own name
	}
	return o, nil
}
