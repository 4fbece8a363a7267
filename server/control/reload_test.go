package control

import (
	"log/slog"
	"strings"
	"testing"

	"tierway/config"
)

// TestReloadLogsAllChangesAndThoseThatNeedARestart: the number of changes includes those that need a
// restart, as in the audit log and in the output of tierway reload.
func TestReloadLogsAllChangesAndThoseThatNeedARestart(t *testing.T) {
	for name, tt := range map[string]struct{ over, model, want string }{
		"nothing":    {"", "m", `msg="the configuration is unchanged" via="" generation=1 changes=0 restart_needed=[]`},
		"a model":    {"", "n", `msg="the configuration was reloaded" via="" generation=2 changes=1 restart_needed=[]`},
		"both kinds": {"listen: \"127.0.0.1:81\"\n", "n", `via="" generation=2 changes=2 restart_needed=[listen]`},
		"restarts only": {"listen: \"127.0.0.1:81\"\n", "m",
			`msg="the configuration stays in force: every change needs a restart" ` +
				`via="" generation=1 changes=1 restart_needed=[listen]`},
	} {
		t.Run(name, func(t *testing.T) {
			c, log := newTestControl(t, small), &strings.Builder{}
			c.log = slog.New(slog.NewTextHandler(log, nil))
			text := "classifier: { preset: none }\nstore: { sql: \"\" }\n" + tt.over +
				strings.Replace(small, "model: m", "model: "+tt.model, 1)
			c.source = func() (*config.File, error) {
				return config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
			}
			if _, err := c.Reload(t.Context(), ReloadRequest{}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), tt.want) {
				t.Errorf("the log is %s, want %s", log, tt.want)
			}
		})
	}
}
