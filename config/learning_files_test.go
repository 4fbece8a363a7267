package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLearningFilesAreChecked: each problem names the key and the way out.
func TestLearningFilesAreChecked(t *testing.T) {
	const key = "learning: { hash_key: " + hashKey + ", "
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"files":       {key + "directory: d, max_size: 1MiB, max_files: 1, exploration: 0.1 }\n", nil},
		"exploration": {key + "exploration: 0 }\n", nil},
		"a directory without a key": {"learning: { directory: d }\n", []string{
			"3:24: learning.directory: requests have no features without learning.hash_key (set hash_key to a key of at " +
				"least 16 bytes)"}},
		"no directory": {key + "max_size: 10MiB, max_files: 2, exploration: 0.02 }\n", []string{
			"3:51: warning: learning.max_size: has no effect without learning.directory (set learning.directory, or remove " +
				"the key)",
			"3:69: warning: learning.max_files: has no effect without learning.directory (set learning.directory, or remove " +
				"the key)",
			"3:85: warning: learning.exploration: has no effect without learning.directory (set learning.directory, or " +
				"remove the key)"}},
		"numbers": {key + "directory: d, max_size: 512KiB, max_files: 101, exploration: 0.2 }\n", []string{
			"3:65: learning.max_size: 512KiB is less than the minimum of 1MiB (set at least 1MiB)",
			`3:84: learning.max_files: want an integer from 1 to 100, got "101"`,
			`3:102: learning.exploration: want a number from 0 to 0.1, got "0.2"`}},
		"the decision file": {key + "directory: . }\ndecisions: { file: labels.jsonl }\n", []string{
			`4:20: decisions.file: "labels.jsonl" is a file of learning.directory (use a separate file, such as ` +
				"decisions.jsonl)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(append([]string{}, c.want...), problemsOf(t, keys+small+c.src, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLearningDirectoryIsResolvedAgainstTheConfigurationsFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	src := keys + small + "learning: { hash_key: " + hashKey + ", directory: d }\n"
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "d", "features.jsonl"); f.Learning.FeaturesFile() != want {
		t.Errorf("%s, want %s", f.Learning.FeaturesFile(), want)
	}
	if want := filepath.Join(dir, "d", "labels.jsonl"); f.Learning.LabelsFile() != want {
		t.Errorf("%s, want %s", f.Learning.LabelsFile(), want)
	}
}
