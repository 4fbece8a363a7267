package store

import (
	"net/url"
	"slices"
	"strings"
)

// URL schemes of databases and of Redis.
var (
	sqlSchemes   = [...]string{"sqlite", "postgres", "postgresql"}
	redisSchemes = [...]string{"redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"}
)

// CheckSQLURL returns why OpenSQL would reject a URL, and a hint if one depends on the URL. Both
// are empty for a valid URL. Neither repeats more of the URL than its scheme, because it may hold a
// password. CheckSQLURL reads the files that the URL's parameters name.
func CheckSQLURL(text string) (message, hint string) {
	return checkURL(text, sqlSchemes[:], func() error { _, err := parsePostgres(text); return err })
}

// CheckRedisURL does for OpenRedis what CheckSQLURL does for OpenSQL.
func CheckRedisURL(text string) (message, hint string) {
	return checkURL(text, redisSchemes[:], func() error { _, err := redisOptions(text); return err })
}

// checkURL checks what all URLs have in common, then calls parse. Only parse may read files.
func checkURL(text string, schemes []string, parse func() error) (message, hint string) {
	scheme, rest, found := strings.Cut(text, "://")
	_, err := url.Parse(text)
	switch {
	case !found:
		return "is no URL", ""
	case !slices.Contains(schemes, scheme):
		return "has another scheme than " + strings.Join(schemes, ", "), ""
	case rest == "":
		return "names nothing behind " + scheme + "://", ""
	case scheme == "sqlite" && strings.ContainsAny(rest, "?#\x00"):
		return "is no file name: it has a ? or a #", ""
	case scheme == "sqlite":
		return "", ""
	case err != nil && !strings.Contains(text, ","): // with several hosts the URL parser reports a wrong port
		return "is no URL: signs in its password are written as % and two digits", ""
	}
	if err := parse(); err != nil {
		message, hint, _ = strings.Cut(err.Error(), ": ")
	}
	return message, hint
}

// RedactURL returns a store's URL without its password and its query, because a query may contain a password. If the
// end of the password is not certain, RedactURL hides more.
func RedactURL(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	switch {
	case text == "":
		return ""
	case !found || !slices.Contains(sqlSchemes[:], scheme) && !slices.Contains(redisSchemes[:], scheme):
		return "***"
	}
	at, query := strings.LastIndex(rest, "@"), strings.IndexAny(rest, "?#")
	switch {
	case scheme == "sqlite":
		file, _, _ := strings.Cut(rest, "?")
		return scheme + "://" + file
	case query >= 0 && at > query:
		return scheme + "://***" // the query may be the end of a password that was not escaped
	case query >= 0:
		rest = rest[:query]
	}
	if at < 0 {
		return scheme + "://" + rest
	}
	user, _, found := strings.Cut(rest[:at], ":") // a password that was not escaped may contain any delimiter
	if !found {
		user = "***" // of Redis, a password alone
	} else {
		user += ":***"
	}
	return scheme + "://" + user + rest[at:]
}
