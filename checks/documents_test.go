package checks

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// names returns the quoted names in the first column of the table with a heading row.
func names(text []byte, heading string) (all []string) {
	_, rest, _ := strings.Cut(string(text), "\n"+heading+"\n")
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		first, _, _ := strings.Cut(line[1:], "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// TestObservabilityPageHasEveryKeyOfALogLine verifies that docs/observability.md lists the keys of a line of the access
// log in the order of the line.
func TestObservabilityPageHasEveryKeyOfALogLine(t *testing.T) {
	table := regexp.MustCompile(`(?s)accessKeys = \[\.\.\.\]string\{(.*?)\n\}`).FindSubmatch(read(t,
		"decisions/access_log_test.go"))
	if table == nil {
		t.Fatal("decisions/access_log_test.go has no table of keys")
	}
	var want []string
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllSubmatch(table[1], -1) {
		want = append(want, string(m[1]))
	}
	if got := names(read(t, "docs/observability.md"), "| key | meaning |"); !slices.Equal(got, want) {
		t.Errorf("docs/observability.md has the keys\n%q, a line has\n%q", got, want)
	}
}

// conventions returns the span attributes with OpenTelemetry's names.
func conventions() map[string]attribute.Key {
	return map[string]attribute.Key{
		"HTTPRequestMethodKey": semconv.HTTPRequestMethodKey, "HTTPRouteKey": semconv.HTTPRouteKey,
		"HTTPResponseStatusCodeKey": semconv.HTTPResponseStatusCodeKey, "ErrorTypeKey": semconv.ErrorTypeKey,
		"GenAIOperationNameKey": semconv.GenAIOperationNameKey, "GenAIProviderNameKey": semconv.GenAIProviderNameKey,
		"GenAIRequestModelKey": semconv.GenAIRequestModelKey, "GenAIRequestStreamKey": semconv.GenAIRequestStreamKey,
		"GenAIRequestMaxTokensKey": semconv.GenAIRequestMaxTokensKey, "GenAIResponseModelKey": semconv.GenAIResponseModelKey,
		"GenAIUsageInputTokensKey":          semconv.GenAIUsageInputTokensKey,
		"GenAIUsageOutputTokensKey":         semconv.GenAIUsageOutputTokensKey,
		"GenAIUsageCacheReadInputTokensKey": semconv.GenAIUsageCacheReadInputTokensKey,
		"GenAIResponseTimeToFirstChunkKey":  semconv.GenAIResponseTimeToFirstChunkKey,
	}
}

// TestObservabilityPageHasEveryAttributeOfASpan verifies that docs/observability.md lists the attributes of spans, and
// no others.
func TestObservabilityPageHasEveryAttributeOfASpan(t *testing.T) {
	got := names(read(t, "docs/observability.md"), "| attribute | on | meaning |")
	var want []string
	for _, file := range []string{"decisions/spans.go", "decisions/hooks.go", "decisions/cache.go",
		"decisions/span_attributes.go", "e2e/traces/rig_test.go"} {
		for _, m := range regexp.MustCompile(`"(tierway\.[^"]+)"|semconv\.(\w+)`).FindAllSubmatch(read(t, file), -1) {
			name := string(m[1])
			if len(m[2]) > 0 {
				name = string(conventions()[string(m[2])])
			}
			want = append(want, name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("docs/observability.md has the attributes\n%q, spans have\n%q", got, want)
	}
}

// TestObservabilityPageHasTheBoundOfCandidates compares the number in docs/observability.md with the constant.
func TestObservabilityPageHasTheBoundOfCandidates(t *testing.T) {
	bound := regexp.MustCompile(`(?m)^const MaxCandidates = (\d+)$`).FindSubmatch(read(t, "routing/choice.go"))
	if bound == nil {
		t.Fatal("routing/choice.go has no MaxCandidates")
	}
	want := fmt.Sprintf("keeps at most %s candidates", bound[1])
	if !strings.Contains(string(read(t, "docs/observability.md")), want) {
		t.Errorf("docs/observability.md does not say that a record %s", want)
	}
}

// TestLinksBetweenDocumentsResolve verifies that each link leads to an existing file and heading.
func TestLinksBetweenDocumentsResolve(t *testing.T) {
	seen := 0
	check := func(file string, text []byte) {
		for _, m := range regexp.MustCompile(`\]\(([^):]*)\)`).FindAllSubmatch(text, -1) {
			seen++
			if err := checkLink(t, file, string(m[1])); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	documents(t, check)
	check("CHANGELOG.md", read(t, "CHANGELOG.md")) // not in documents, because it names removed metrics
	if seen < 20 {
		t.Errorf("only %d links were found", seen)
	}
}

// checkLink returns an error if the target of a link does not exist.
func checkLink(t *testing.T, from, link string) error {
	target, anchor, _ := strings.Cut(link, "#")
	path := from
	if target != "" {
		path = filepath.Join(filepath.Dir(from), target)
	}
	if matches, err := filepath.Glob(path); err != nil || len(matches) != 1 {
		return fmt.Errorf("%s does not exist", path)
	}
	if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
		return fmt.Errorf("%s has no heading %s", path, anchor)
	}
	return nil
}

// documents calls f with every document for users and contributors.
func documents(t *testing.T, f func(file string, text []byte)) {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md", "examples/*/README.md"} {
		recordRoot()
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no documents at %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		f(file, read(t, file))
	}
}

// TestQueriesInDocumentsUseExportedMetrics checks the blocks of promql, with one expression per line.
func TestQueriesInDocumentsUseExportedMetrics(t *testing.T) {
	metrics := exported(t)
	seen := 0
	documents(t, func(file string, text []byte) {
		for _, block := range regexp.MustCompile("(?ms)^```promql\n(.*?)^```$").FindAllSubmatch(text, -1) {
			for line := range strings.Lines(string(block[1])) {
				if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				seen++
				if _, err := query(metrics, line); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	})
	if seen == 0 {
		t.Error("no document shows a query")
	}
}

// TestDocumentsNameExportedMetrics verifies that each metric that a document names is exported. A document names a
// histogram by its own name or by those of its series.
func TestDocumentsNameExportedMetrics(t *testing.T) {
	metrics := exported(t)
	seen := 0
	documents(t, func(file string, text []byte) {
		for _, name := range regexp.MustCompile(`\btierway_[a-z0-9_]*[a-z0-9]\b`).FindAllString(string(text), -1) {
			if strings.HasPrefix(name, "tierway_session") { // the cookie of the admin UI
				continue
			}
			seen++
			_, plain := metrics[name]
			if _, histogram := metrics[name+"_bucket"]; !plain && !histogram {
				t.Errorf("%s names %s, which is not exported", file, name)
			}
		}
	})
	if seen == 0 {
		t.Error("no document names a metric")
	}
}

// TestDocumentsNameTestsThatExist verifies that a test or benchmark which a document names as Test…,
// Benchmark… or Fuzz… is a function of the module.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	has := map[string]bool{}
	recordRoot()
	err := filepath.WalkDir(".", func(at string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(at, "_test.go") {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`).FindAllSubmatch(read(t, at), -1) {
			has[string(m[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	documents(t, func(file string, text []byte) {
		text = regexp.MustCompile(`(?s)<!--.*?-->`).ReplaceAll(text, nil) // of generated pages, with patterns of -run
		for _, name := range regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+…?`).FindAllString(string(text), -1) {
			prefix, many := strings.CutSuffix(name, "…")
			exists := has[name] || many && slices.ContainsFunc(sorted(has), func(n string) bool {
				return strings.HasPrefix(n, prefix)
			})
			if named++; !exists {
				t.Errorf("%s names %s, which is no test", file, name)
			}
		}
	})
	if named == 0 {
		t.Error("no document names a test")
	}
}

// TestFiguresOfTheREADMEAreMeasured verifies that each bold figure of README.md stands in
// docs/performance.md, which has the command that measures it.
func TestFiguresOfTheREADMEAreMeasured(t *testing.T) {
	measured := string(read(t, "docs/performance.md"))
	seen := 0
	for _, m := range regexp.MustCompile(`\*\*(\S(?:[^*\n]*\S)?)\*\*`).FindAllSubmatch(read(t, "README.md"), -1) {
		if !strings.ContainsAny(string(m[1]), "0123456789") {
			continue
		}
		if seen++; !strings.Contains(measured, string(m[1])) {
			t.Errorf("README.md has the figure %q, which is not in docs/performance.md", m[1])
		}
	}
	if seen < 10 {
		t.Errorf("only %d figures were found in README.md", seen)
	}
}

// TestPathsForContributorsExist verifies the files and folders that CONTRIBUTING.md and the last
// section of docs/architecture.md name.
func TestPathsForContributorsExist(t *testing.T) {
	_, where, found := strings.Cut(string(read(t, "docs/architecture.md")), "## Where a new thing goes")
	if !found {
		t.Fatal("docs/architecture.md does not say where a new thing goes")
	}
	seen := 0
	for file, text := range map[string]string{"CONTRIBUTING.md": string(read(t, "CONTRIBUTING.md")),
		"docs/architecture.md": where} {
		for _, m := range regexp.MustCompile("`((?:\\.ci|[a-z0-9]+)/[a-zA-Z0-9_./-]*)`").FindAllStringSubmatch(text, -1) {
			seen++
			if matches, err := filepath.Glob(m[1]); err != nil || len(matches) != 1 {
				t.Errorf("%s names %s, which does not exist", file, m[1])
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d paths were found", seen)
	}
}

// TestTheChangelogHasTheVersion verifies that CHANGELOG.md names the version that the source becomes.
func TestTheChangelogHasTheVersion(t *testing.T) {
	version := regexp.MustCompile(`(?m)^const version = "([^"]+)"$`).FindSubmatch(read(t, "cmd/tierway/main.go"))
	if version == nil {
		t.Fatal("cmd/tierway/main.go has no version")
	}
	if text := string(read(t, "CHANGELOG.md")); !strings.Contains(text, string(version[1])) ||
		!strings.Contains(text, "## [Unreleased]") {
		t.Errorf("CHANGELOG.md does not name %s, or has no section Unreleased", version[1])
	}
}
