package store

import "testing"

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
