package store

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// URL schemes of databases and of Redis.
var (
	sqlSchemes   = [...]string{"sqlite", "postgres", "postgresql"}
	redisSchemes = [...]string{"redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"}
)

// hostList matches the hosts of a URL with their ports.
const hostList = `(?:[0-9A-Za-z._%-]+|\[[0-9A-Fa-f:.%]+[0-9A-Za-z.]*\])(?::[0-9]+)?`

// What follows the credentials in a URL. Only the values of some parameters of PostgreSQL may contain @.
var (
	redisTarget    = regexp.MustCompile(`^` + hostList + `(?:,` + hostList + `)*(?:/[^@?#]*)?$`)
	postgresTarget = regexp.MustCompile(`^(?:` + hostList + `(?:,` + hostList + `)*)?(?:/[^/@?#]*)?(?:\?(?:` +
		`(?:user|password|sslpassword|application_name|options|search_path)=[^#&]*|[A-Za-z_.]+=[^#&@]*|&)*)?$`)
)

// splitCredentials splits what follows the scheme of a URL. A password from the environment is not percent-encoded and
// may contain any character, so the credentials end at the first @ with a target behind it. found is false for a URL
// without credentials, and if nothing in rest is a target; target is then rest.
func splitCredentials(rest string, targets *regexp.Regexp) (user, password, target string, found bool) {
	if targets.MatchString(rest) {
		return "", "", rest, false
	}
	for i, c := range rest {
		if c == '@' && targets.MatchString(rest[i+1:]) {
			user, password, _ = strings.Cut(rest[:i], ":")
			return decoded(user), decoded(password), rest[i+1:], true
		}
	}
	return "", "", rest, false
}

// encoded matches text that may be percent-encoded: each % is followed by two hex digits, and no character that an
// encoder would encode is left.
var encoded = regexp.MustCompile(`^(?:[0-9A-Za-z._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*$`)

// decoded returns a part of a URL without percent-encoding, if it has one.
func decoded(text string) string {
	if plain, err := url.PathUnescape(text); err == nil && encoded.MatchString(text) {
		return plain
	}
	return text
}

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
	}
	if err := parse(); err != nil {
		message, hint, _ = strings.Cut(err.Error(), ": ")
	}
	return message, hint
}

// HasPassword reports whether the URL of a server has a password.
func HasPassword(text string) bool {
	scheme, rest, _ := strings.Cut(text, "://")
	if slices.Contains(redisSchemes[:], scheme) {
		_, password, _, _ := splitCredentials(rest, redisTarget)
		return password != ""
	}
	_, password, _, _ := splitCredentials(rest, postgresTarget)
	return password != ""
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
