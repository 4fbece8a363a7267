package checks

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"tierway/config"
)

// service is what these tests read of a service of docker-compose.yml.
type service struct {
	Image       string            `yaml:"image"`
	Build       map[string]string `yaml:"build"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Profiles    []string          `yaml:"profiles"`
	DependsOn   []string          `yaml:"depends_on"`
	Networks    map[string]struct {
		Aliases []string `yaml:"aliases"`
	} `yaml:"networks"`
}

func services(t *testing.T) map[string]service {
	t.Helper()
	var file struct {
		Services map[string]service `yaml:"services"`
	}
	if err := yaml.Unmarshal(read(t, "docker-compose.yml"), &file); err != nil {
		t.Fatalf("reading docker-compose.yml: %v", err)
	}
	return file.Services
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	recordRoot()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestComposeHasItsServicesPinned(t *testing.T) {
	all := services(t)
	pinned := regexp.MustCompile(`:\d+\.\d+(\.\d+)?(-[a-z0-9.]+)?$`)
	for _, name := range []string{"tierway", "tierway-2", "nginx", "redis", "postgres", "jaeger"} {
		s, ok := all[name]
		switch {
		case !ok:
			t.Errorf("docker-compose.yml has no service %s", name)
		case strings.HasPrefix(name, "tierway"):
			if s.Image != "" || s.Build["dockerfile"] != "deploy/Dockerfile" {
				t.Errorf("%s is %q, built from %q: want deploy/Dockerfile", name, s.Image, s.Build["dockerfile"])
			}
		case !pinned.MatchString(s.Image):
			t.Errorf("%s: the image %q is not pinned to a version", name, s.Image)
		}
	}
}

func TestComposePublishesOnLoopbackOnly(t *testing.T) {
	published := map[string]string{}
	for name, s := range services(t) {
		for _, port := range s.Ports {
			host := port[:strings.LastIndex(port, ":")]
			if other, taken := published[host]; taken {
				t.Errorf("%s and %s publish %s", name, other, host)
			}
			published[host] = name
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %q on more than loopback", name, port)
			}
		}
	}
}

func TestComposeHasNoSecret(t *testing.T) {
	secret := regexp.MustCompile(`(?i)(password|secret|token|key|sha256)`)
	required := regexp.MustCompile(`^\$\{[A-Z0-9_]+:\?[^}]+\}$`)
	for name, s := range services(t) {
		for variable, value := range s.Environment {
			if secret.MatchString(variable) && !required.MatchString(value) {
				t.Errorf("%s: %s is %q: it must be taken from the environment, which must have it", name, variable, value)
			}
		}
		if line := strings.Join(s.Command, " "); regexp.MustCompile(`(?i)(requirepass|password)[ =][^$ ]`).MatchString(line) {
			t.Errorf("%s: its command has a password: %q", name, line)
		}
	}
}

func TestComposeSetsTheVariablesOfTheConfiguration(t *testing.T) {
	const path = "deploy/tierway.yaml"
	s := services(t)["tierway"]
	if want := []string{"./" + path + ":/etc/tierway/config.yaml:ro"}; !slices.Equal(s.Volumes, want) {
		t.Errorf("volumes are %q, want %q", s.Volumes, want)
	}
	if want := []string{"serve", "-c", "/etc/tierway/config.yaml"}; !slices.Equal(s.Command, want) {
		t.Errorf("the command is %q, want %q", s.Command, want)
	}
	readVariables := map[string]bool{}
	env := func(name string) (string, bool) {
		readVariables[name] = true
		if name == "TIERWAY_KEY_SHA256" {
			return strings.Repeat("0123456789abcdef", 4), true
		}
		return "", false // so that the file's own defaults are checked
	}
	if _, err := config.Load(path, env); err != nil {
		t.Errorf("%v", err)
	}
	for name := range readVariables {
		if _, ok := s.Environment[name]; !ok {
			t.Errorf("docker-compose.yml does not set %s, which %s reads: add it to environment", name, path)
		}
	}
	for name := range s.Environment {
		if !readVariables[name] && !strings.HasPrefix(name, "OTEL_") { // the binary itself reads these
			t.Errorf("docker-compose.yml sets %s, which %s does not read: remove it from environment", name, path)
		}
	}
}

func TestImageIsStaticAndUnprivileged(t *testing.T) {
	lines := strings.Split(string(read(t, "deploy/Dockerfile")), "\n")
	last := slices.IndexFunc(lines, func(l string) bool { return l == "FROM scratch" })
	if last < 0 {
		t.Fatal("the image is not made from scratch")
	}
	if !slices.ContainsFunc(lines[:last], func(l string) bool {
		return strings.HasPrefix(l, "RUN CGO_ENABLED=0 go build ")
	}) {
		t.Error("the binary is not built with CGO_ENABLED=0")
	}
	user := regexp.MustCompile(`^USER [1-9]\d*:[1-9]\d*$`)
	if !slices.ContainsFunc(lines[last:], user.MatchString) {
		t.Error("the image does not name a user by a number above 0, which an orchestrator could check")
	}
	for _, l := range lines {
		if image, ok := strings.CutPrefix(l, "FROM "); ok && image != "scratch" &&
			!regexp.MustCompile(`:\d+\.\d+\.\d+`).MatchString(image) {
			t.Errorf("the image %q is not pinned", image)
		}
	}
}

func TestEveryTargetHasAHelpLine(t *testing.T) {
	makefile := string(read(t, "Makefile"))
	phony := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindStringSubmatch(makefile)
	if phony == nil {
		t.Fatal("the Makefile has no .PHONY")
	}
	targets := strings.Fields(phony[1])
	for _, name := range targets {
		shown := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:.* ## \S`)
		prerequisite := regexp.MustCompile(`(?m)^[a-z-]+:[^#\n]* ` + regexp.QuoteMeta(name) + `( |$)`)
		if !shown.MatchString(makefile) && !prerequisite.MatchString(makefile) {
			t.Errorf("make %s has no help line", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):.* ## `).FindAllStringSubmatch(makefile, -1) {
		if !slices.Contains(targets, m[1]) {
			t.Errorf("%s is missing in .PHONY: a file of that name would hide it", m[1])
		}
	}
}

// textFiles calls f with every text file that belongs to the repository.
func textFiles(t *testing.T, f func(path string, text []byte)) {
	t.Helper()
	skipped := []string{".git", ".cache", "bin", "node_modules"}
	recordRoot()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && slices.Contains(skipped, e.Name()) {
			return filepath.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(text[:min(len(text), 8000)], []byte{0}) { // as git distinguishes text and binary
			f(path, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoFileNamesAMachineOrARegistry(t *testing.T) {
	rules := map[string]*regexp.Regexp{
		"a path of one machine": regexp.MustCompile(`(^|[\s"'=:(])/(home|root|Users)/[A-Za-z0-9._-]+`),
		"a package registry host": regexp.MustCompile(
			`https?://([a-z0-9-]+\.)*(proxy|registry|index|files|deb|crates|npmjs|pypi|pythonhosted)[a-z0-9.-]*\.(com|org|io)`),
	}
	n := 0
	textFiles(t, func(path string, text []byte) {
		n++
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, len(text)+1)
		for at := 1; lines.Scan(); at++ {
			for what, rule := range rules {
				if rule.Match(lines.Bytes()) {
					t.Errorf("%s:%d names %s: %.120s", path, at, what, lines.Bytes())
				}
			}
		}
	})
	if n < 20 {
		t.Errorf("only %d files were read", n)
	}
}

func TestScriptsFailOnUnsetVariablesAndPipes(t *testing.T) {
	recordRoot()
	scripts, err := filepath.Glob("scripts/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range append(scripts, ".ci/run") {
		text := read(t, path)
		if !regexp.MustCompile(`(?m)^set -e?uo pipefail$`).Match(text) {
			t.Errorf("%s lacks `set -euo pipefail` or `set -uo pipefail`: add one", path)
		}
		if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s cannot be run: %v", path, err)
		}
	}
}

// TestFilesHaveNoOpenMarkers verifies that open work is recorded in issues, not in comments.
func TestFilesHaveNoOpenMarkers(t *testing.T) {
	open := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	textFiles(t, func(path string, text []byte) {
		if at := open.Find(text); at != nil && filepath.Ext(path) != ".json" {
			t.Errorf("%s contains %s: open an issue instead", path, at)
		}
	})
}
