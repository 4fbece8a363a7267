package store

import (
	"fmt"
	"testing"
)

func TestURLIsShownWithoutItsPassword(t *testing.T) {
	cases := map[string]string{
		"":                                     "",
		"sqlite://tierway.db":                  "sqlite://tierway.db",
		"sqlite:///var/lib/t.db?_key=hunter2":  "sqlite:///var/lib/t.db",
		"sqlite://:memory:":                    "sqlite://:memory:",
		"postgres://h/db":                      "postgres://h/db",
		"postgres://u:hunter2@h:5432/db":       "postgres://u:***@h:5432/db",
		"postgresql://u:hunt/er2@h/db":         "postgresql://u:***@h/db",
		"postgres://u:hunt@er2@a,b/db":         "postgres://u:***@a,b/db",
		"postgres:///db?password=hunter2":      "postgres:///db",
		"postgres://u:hunt?er2@h/db":           "postgres://***",
		"redis://:hunter2@h:6379/0":            "redis://:***@h:6379/0",
		"rediss+cluster://u:hunter2@a:1,b:2":   "rediss+cluster://u:***@a:1,b:2",
		"redis://hunter2@h:6379":               "redis://***@h:6379",
		"postgres://u:hunt/er2:x@h/db":         "postgres://u:***@h/db",
		"hunter2":                              "***",
		"mysql://u:hunter2@h/db":               "***",
		"postgres://u:hunter2#@h/db":           "postgres://***",
		"redis+sentinel://:hunter2@a:1/master": "redis+sentinel://:***@a:1/master",
	}
	for text, want := range cases {
		if got := RedactURL(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// TestPasswordsFromTheEnvironmentWorkInEveryURL, whatever characters they have, and percent-encoded ones too.
func TestPasswordsFromTheEnvironmentWorkInEveryURL(t *testing.T) {
	for written, want := range map[string]string{
		"plain": "plain", "a/b": "a/b", "a#b": "a#b", "a?b": "a?b", "100%": "100%", "a%zz": "a%zz", "%": "%",
		"a@b": "a@b", "a:b": "a:b", "a b": "a b", "/": "/", "#?/%@:": "#?/%@:", "12/3": "12/3", "12?a=b/": "12?a=b/",
		"p\u00e4ss": "p\u00e4ss", "a&b=c": "a&b=c", "a+b": "a+b", `a"b'c\d`: `a"b'c\d`, "a,b": "a,b", "a[b]": "a[b]",
		"h:1/x@": "h:1/x@", "x@h2/y": "x@h2/y", "%2F#": "%2F#",
		"a%2Fb": "a/b", "a%40b%3A": "a@b:", "100%25": "100%",
	} {
		for scheme, target := range map[string]string{"redis": "h:6379/1", "rediss": "h", "redis+cluster": "a:1,[::1]:2",
			"redis+sentinel": "a:1,b:2/main/3"} {
			for _, user := range []string{"", "app"} {
				text := scheme + "://" + user + ":" + written + "@" + target
				o, err := redisOptions(text)
				if err != nil || o.Username != user || o.Password != want {
					t.Errorf("%s: %v, read as %+v", text, err, o)
				}
			}
		}
		for _, target := range []string{"h", "h:5432/db", "a,b:2/db?sslmode=disable", "h/db?application_name=a@b",
			"[::1]:1/db", "/db?host=/run"} {
			text := "postgres://u:" + written + "@" + target
			c, err := parsePostgres(text)
			if err != nil || c.User != "u" || c.Password != want {
				t.Errorf("%s: %v, read as %v", text, err, fmt.Sprintf("%+v", c))
			}
			if message, hint := CheckSQLURL(text); message != "" {
				t.Errorf("%s: %s (%s)", text, message, hint)
			}
		}
	}
}
