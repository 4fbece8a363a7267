package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The decision file is appended to and rotated. If it were the configuration or the database, it would
// destroy that file.
func TestDecisionFileIsDistinctFromOtherFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	for name, want := range map[string]string{
		"config.yaml": `decisions.file: "config.yaml" is the configuration file`,
		"../" + filepath.Base(dir) + "/./config.yaml": "is the configuration file",
		"t.db":                         `decisions.file: "t.db" is the database file of store.sql`,
		filepath.Join(dir, "t.db"):     "is the database file of store.sql",
		filepath.Join(dir, "t.db-wal"): "is the database file of store.sql",
		"decisions.jsonl":              "",
	} {
		text := keys + small + "store: {sql: \"sqlite://t.db\"}\ndecisions: {file: \"" + name + "\"}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
